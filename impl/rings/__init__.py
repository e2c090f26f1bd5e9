"""Rotating (sliding-window) KV caches: rings of one request, batches of them, rollback of rejected tokens."""

from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.masks import build_batched_rotating_mask
from impl.rings.position import UNBOUNDED, BatchedRotatingState
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import RollbackPlan, rollback_rotating_ring, rotating_rollback_plan

__all__ = [
    "UNBOUNDED",
    "BatchedRotatingCache",
    "BatchedRotatingQuantCache",
    "BatchedRotatingState",
    "RollbackPlan",
    "RotatingKVCache",
    "RotatingQuantizedKVCache",
    "SpeculativeRotatingKVCache",
    "build_batched_rotating_mask",
    "rollback_rotating_ring",
    "rotating_rollback_plan",
]
