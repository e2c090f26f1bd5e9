"""Subject `mlx-lm`: the caches of the installed mlx-lm package.

The mask is asked for before each update, as mlx-lm's models do, with the window of the case. Attention is mlx-lm's
own `scaled_dot_product_attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from harness.subjects.mlx_ring import MlxRing
from harness.subjects.protocol import Ring, Subject, Unsupported

if TYPE_CHECKING:
    import mlx.core as mx

    from harness.subjects.protocol import RingSpec


class MlxLm(Subject):
    """KVCache, QuantizedKVCache and RotatingKVCache of mlx-lm."""

    name: ClassVar[str] = "mlx-lm"
    package: ClassVar[str | None] = "mlx-lm"
    capabilities: ClassVar[frozenset[str]] = frozenset({"sinks"})

    def ring(self, spec: RingSpec) -> Ring:
        """Choose the cache class for `spec`."""
        from mlx_lm.models import cache as caches
        from mlx_lm.models.base import scaled_dot_product_attention

        if spec.rows > 1:
            raise Unsupported("batches of several rows are not driven by this adapter yet")
        cache: Any
        if spec.storage is not None:
            if spec.window is not None:
                raise Unsupported("mlx-lm has no quantized rotating cache")
            cache = caches.QuantizedKVCache(group_size=spec.storage.group_size, bits=spec.storage.bits)
        elif spec.window is not None:
            cache = caches.RotatingKVCache(max_size=spec.window, keep=spec.sinks)
        else:
            cache = caches.KVCache()

        def make_mask(cache: Any, tokens: int) -> Any:
            return cache.make_mask(tokens, return_array=False, window_size=spec.window)

        def attend(queries: mx.array, keys: Any, values: Any, scale: float, mask: Any) -> mx.array:
            # mlx-lm scales the queries in place: give it an array of its own.
            own: mx.array = queries + 0
            out: mx.array = scaled_dot_product_attention(own, keys, values, cache=cache, scale=scale, mask=mask)
            return out

        return MlxRing(cache, spec, make_mask, attend)
