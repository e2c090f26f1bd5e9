"""Rotating (sliding-window) KV caches: rings, batches of them, rollback, donors, rows that change precision."""

from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows, rotating_source_position
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.donor import DonorAttention, capture_rotating_donor_attention, join_donors
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.masks import build_batched_rotating_mask
from impl.rings.position import UNBOUNDED, BatchedRotatingState
from impl.rings.positions import RotatingKvPositions
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import RollbackPlan, rollback_rotating_ring, rotating_rollback_plan
from impl.rings.transitioning import TransitioningKvRows

__all__ = [
    "UNBOUNDED",
    "AlignedRotatingCache",
    "BatchedRotatingCache",
    "BatchedRotatingQuantCache",
    "BatchedRotatingState",
    "DonorAttention",
    "RollbackPlan",
    "RotatingAffineLayout",
    "RotatingKVCache",
    "RotatingKvPositions",
    "RotatingQuantizedKVCache",
    "SpeculativeRotatingAffineLayout",
    "SpeculativeRotatingKVCache",
    "TransitioningKvRows",
    "align_rotating_rows",
    "build_batched_rotating_mask",
    "capture_rotating_donor_attention",
    "join_donors",
    "rollback_rotating_ring",
    "rotating_rollback_plan",
    "rotating_source_position",
]
