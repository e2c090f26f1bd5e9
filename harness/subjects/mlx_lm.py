"""Subject `mlx-lm`: the caches of the installed mlx-lm package.

What mlx-lm's models and generators do, this adapter does: a mask is asked for before each update, with the window of
the layer; a chunked cache is told to trim its front before each update; attention is mlx-lm's own
`scaled_dot_product_attention`; caches are merged by the class of the first; prompt caches are written and read by
`save_prompt_cache` and `load_prompt_cache`.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from harness.subjects.mlx_ring import MlxRing
from harness.subjects.protocol import AffineStorage, Answer, Ring, Subject, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import Attention, Recurrent, RecurrentSpec, RingSpec


class MlxLm(Subject):
    """KVCache, QuantizedKVCache, RotatingKVCache, ChunkedKVCache, BatchKVCache, BatchRotatingKVCache."""

    name: ClassVar[str] = "mlx-lm"
    package: ClassVar[str | None] = "mlx-lm"
    capabilities: ClassVar[frozenset[str]] = frozenset({"sinks", "chunked", "save-load"})

    def attention(self) -> Attention:
        """Return attention as models call it."""
        from harness.subjects.mlx_lm_attention import MlxLmAttention

        return MlxLmAttention()

    def ring(self, spec: RingSpec) -> Ring:
        """Choose the cache class for `spec`."""
        return MlxLmRing(_empty_cache(spec), spec)

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        """Return an empty recurrent cache with its layer."""
        from harness.subjects.mlx_lm_recurrent import open_recurrent

        return open_recurrent(spec)


def _empty_cache(spec: RingSpec) -> Any:
    from mlx_lm.models import cache as caches

    if spec.chunked:
        if spec.storage is not None or spec.rows > 1:
            raise Unsupported("mlx-lm's chunked cache is plain and has one row")
        return caches.ChunkedKVCache(spec.window)
    if spec.storage is not None:
        if spec.window is not None:
            raise Unsupported("mlx-lm has no quantized rotating cache")
        if spec.rows > 1:
            raise Unsupported("mlx-lm has no quantized batch cache")
        return caches.QuantizedKVCache(group_size=spec.storage.group_size, bits=spec.storage.bits)
    if spec.rows > 1:
        if spec.sinks:
            raise Unsupported("mlx-lm's batch cache keeps no sinks")
        if spec.window is not None:
            return caches.BatchRotatingKVCache(spec.window, [0] * spec.rows)
        return caches.BatchKVCache([0] * spec.rows)
    if spec.window is not None:
        return caches.RotatingKVCache(max_size=spec.window, keep=spec.sinks)
    return caches.KVCache()


class MlxLmRing(MlxRing):
    """One cache of mlx-lm."""

    def __init__(self, cache: Any, spec: RingSpec) -> None:
        """Wrap a cache."""
        super().__init__(cache, spec, self._mask, self._attention)

    def append(
        self, keys: NDArray[np.generic], values: NDArray[np.generic], queries: NDArray[np.generic] | None
    ) -> Answer:
        """Update as a model does; a chunked cache trims its front first."""
        if hasattr(self.cache, "maybe_trim_front"):
            self.cache.maybe_trim_front()
        return super().append(keys, values, queries)

    def _mask(self, cache: Any, tokens: int) -> Any:
        if not hasattr(cache, "make_mask"):
            return None if tokens == 1 else "causal"
        return cache.make_mask(tokens, return_array=False, window_size=self.spec.window)

    def _attention(self, queries: mx.array, keys: Any, values: Any, scale: float, mask: Any) -> mx.array:
        from mlx_lm.models.base import scaled_dot_product_attention

        # mlx-lm scales the queries in place: give it an array of its own.
        own = queries + 0
        out: mx.array = scaled_dot_product_attention(own, keys, values, cache=self.cache, scale=scale, mask=mask)
        return out

    def _has(self, method: str, what: str) -> Any:
        found = getattr(self.cache, method, None)
        if found is None:
            raise Unsupported(f"{type(self.cache).__name__} has no {what}")
        return found

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill. mlx-lm counts lengths from behind the left padding."""
        prepare = self._has("prepare", "padded prefill")
        real = [length - pad for length, pad in zip(lengths, left, strict=True)]
        if any(left) and any(right):
            raise Unsupported("mlx-lm pads prompts on one side")
        prepare(left_padding=list(left) if any(left) else None, lengths=real, right_padding=list(right))

    def finalize(self) -> None:
        """Close it."""
        self._has("finalize", "padded prefill")()

    def merge(self, others: Sequence[Ring]) -> Ring:
        """Merge by the class of the first."""
        self._has("merge", "merge")
        merged = type(self.cache).merge([other.cache for other in others if isinstance(other, MlxLmRing)])
        return MlxLmRing(merged, replace(self.spec, rows=len(others)))

    def extend(self, other: Ring) -> None:
        """Add the rows of another batch."""
        assert isinstance(other, MlxLmRing)  # noqa: S101 - the driver opens both
        self._has("extend", "extend")(other.cache)
        self.spec = replace(self.spec, rows=self.spec.rows + other.spec.rows)

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        self._has("filter", "filter")(list(rows))
        self.spec = replace(self.spec, rows=len(rows))

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo cache."""
        if limit is not None:
            raise Unsupported("mlx-lm extracts whole rows")
        return MlxLmRing(self._has("extract", "extract")(row), replace(self.spec, rows=1))

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Return the cache with affine storage."""
        quantized = self._has("to_quantized", "quantization")(group_size=group_size, bits=bits)
        return MlxLmRing(quantized, replace(self.spec, storage=AffineStorage(bits, group_size)))

    def copy(self) -> Ring:
        """Return a deep copy, as mlx-lm's server makes of its prompt caches."""
        return MlxLmRing(copy.deepcopy(self.cache), self.spec)

    def save_load(self) -> Ring:
        """Write a prompt cache and read it."""
        from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "cache.safetensors")
            save_prompt_cache(path, [self.cache])
            return MlxLmRing(load_prompt_cache(path)[0], self.spec)
