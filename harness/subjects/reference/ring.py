"""The rings of `impl` behind the protocol of kind `ring`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.subjects.mlx_ring import MlxRing
from harness.subjects.protocol import Ring, Unsupported
from impl.attention import attend
from impl.rings.position import UNBOUNDED
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache

if TYPE_CHECKING:
    from harness.subjects.protocol import RingSpec


def open_ring(spec: RingSpec) -> Ring:
    """Return an empty ring as `spec` asks for; raises Unsupported for sinks."""
    if spec.sinks:
        raise Unsupported("these rings keep no sinks")
    if spec.rows > 1:
        raise Unsupported("batches of several rows are not driven by this adapter yet")
    size = UNBOUNDED if spec.window is None else spec.window
    cache: Any
    if spec.storage is None:
        cache = RotatingKVCache(size)
    else:
        cache = RotatingQuantizedKVCache(size, spec.storage.group_size, spec.storage.bits)
    return MlxRing(cache, spec, lambda ring, tokens: ring.make_mask(tokens, spec.window), attend)
