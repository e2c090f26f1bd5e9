"""Subject `mlx-optiq`: the caches of the installed mlx-optiq package, and mlx-lm's with what mlx-optiq changes in them.

mlx-optiq quantizes mlx-lm's caches. Its own classes are a quantized ring, a quantized cache of one row that can join a
batch, and a quantized batch; windows in a batch stay plain. What its server does, this adapter does: its patches of
mlx-lm are installed once; a cache with tokens is quantized by `quantize_cache_layer`, one without is replaced by
`empty_quantized_like`; from a number of tokens on, `streaming_maybe_quantize_kv_cache` quantizes after an update.
A speculative round is what its draft loops know: one verify block, whose rejected tail `_trim_entries` drops.
All else is done as for `mlx-lm`: masks are asked for before each update, and attention is mlx-lm's function as
mlx-optiq has replaced it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from harness.subjects.mlx_lm import MlxLmRing
from harness.subjects.protocol import AffineStorage, Answer, Ring, Subject, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import RingSpec


class MlxOptiq(Subject):
    """RotatingQuantizedKVCache, MergeableQuantizedKVCache, BatchQuantizedKVCache, and mlx-lm's plain caches."""

    name: ClassVar[str] = "mlx-optiq"
    package: ClassVar[str | None] = "mlx-optiq"
    capabilities: ClassVar[frozenset[str]] = frozenset({"crossing", "save-load", "sinks"})

    def __init__(self) -> None:
        """Install the patches of mlx-lm that `optiq serve` installs for its caches; they stay in this process."""
        from optiq.runtime.kv import batch_rotating_merge, patch_rotating_to_quantized

        patch_rotating_to_quantized()
        batch_rotating_merge.install()

    def ring(self, spec: RingSpec) -> Ring:
        """Choose the cache class for `spec`."""
        if spec.chunked:
            raise Unsupported("mlx-optiq has no chunked cache")
        if spec.layout != "ring":
            raise Unsupported("mlx-optiq has one layout of rows")
        if spec.crossing and spec.rows > 1:
            raise Unsupported("mlx-optiq quantizes no batch that is plain")
        return OptiqRing(_empty_cache(replace(spec, storage=None) if spec.crossing else spec), spec)

    def versions(self) -> dict[str, str]:
        """Tell mlx-lm's version, too: most methods are inherited from its caches."""
        from importlib.metadata import version

        return {**super().versions(), "mlx-lm": version("mlx-lm")}


def _empty_cache(spec: RingSpec) -> Any:
    from mlx_lm.models import cache as plain
    from optiq.runtime.kv.batch import BatchQuantizedKVCache, MergeableQuantizedKVCache
    from optiq.runtime.kv.rotating import RotatingQuantizedKVCache

    storage, window = spec.storage, spec.window
    if storage is None:
        if spec.rows > 1:
            if spec.sinks:
                raise Unsupported("mlx-lm's batch cache keeps no sinks")
            zeros = [0] * spec.rows
            return plain.BatchKVCache(zeros) if window is None else plain.BatchRotatingKVCache(window, zeros)
        return plain.KVCache() if window is None else plain.RotatingKVCache(max_size=window, keep=spec.sinks)
    affine = {"group_size": storage.group_size, "bits": storage.bits}
    if spec.rows > 1:
        if window is not None:
            raise Unsupported("mlx-optiq leaves windows in a batch plain")
        return BatchQuantizedKVCache([0] * spec.rows, **affine)
    if window is None:
        return MergeableQuantizedKVCache(**affine)
    return RotatingQuantizedKVCache(max_size=window, keep=spec.sinks, **affine)


class OptiqRing(MlxLmRing):
    """One cache of mlx-optiq, or of mlx-lm as mlx-optiq uses it."""

    def __init__(self, cache: Any, spec: RingSpec) -> None:
        """Wrap a cache."""
        super().__init__(cache, spec)
        self._round: list[int] | None = None

    def append(
        self, keys: NDArray[np.generic], values: NDArray[np.generic], queries: NDArray[np.generic] | None
    ) -> Answer:
        """Update as a model does, then quantize if the row has enough tokens by now."""
        answer = super().append(keys, values, queries)
        if self._round is not None:
            self._round.append(keys.shape[2])
        if self.spec.crossing and self.spec.storage is not None:
            from optiq.runtime.streaming_kv_quant import streaming_maybe_quantize_kv_cache

            caches, (start,) = [self.cache], self.spec.crossing
            streaming_maybe_quantize_kv_cache(caches, start, self.spec.storage.group_size, self.spec.storage.bits)
            self.cache = caches[0]
        return answer

    def begin(self) -> None:
        """Open a round."""
        if self.spec.rows > 1:
            raise Unsupported("mlx-optiq drafts for one request at a time")
        if self.spec.crossing:
            raise Unsupported("mlx-optiq counts rejected tokens when it quantizes from a number of tokens on")
        self._round = []

    def commit(self) -> None:
        """Close the round; its draft loops have nothing to do then."""
        self._round = None

    def rollback(self, keep: Sequence[int]) -> None:
        """Drop the rejected tail of the verify block as the draft loops do."""
        from optiq.runtime.ngram_spec import _trim_entries

        blocks, self._round = self._round or [], None
        drop = sum(blocks) - keep[0]
        if drop and (len(blocks) != 1 or blocks[0] < 2):
            raise Unsupported("a round of mlx-optiq is one block of two tokens or more")
        if drop:
            _trim_entries([self.cache], drop)

    def merge(self, others: Sequence[Ring]) -> Ring:
        """Merge by the class of the first, as mlx-lm's batch generator does."""
        if self.spec.crossing:
            raise Unsupported("mlx-optiq quantizes no batch that is plain")
        self._has("merge", "merge")
        merged = type(self.cache).merge([other.cache for other in others if isinstance(other, OptiqRing)])
        return OptiqRing(merged, replace(self.spec, rows=len(others)))

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo cache."""
        if limit is not None:
            raise Unsupported("mlx-optiq extracts whole rows")
        return OptiqRing(self._has("extract", "extract")(row), replace(self.spec, rows=1))

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Return the cache with affine storage."""
        from optiq.runtime.kv.rotating import empty_quantized_like, quantize_cache_layer

        if self.spec.storage is not None:
            raise Unsupported("mlx-optiq leaves a quantized cache as it is")
        if self.spec.rows > 1 or not hasattr(self.cache, "to_quantized"):
            raise Unsupported("mlx-optiq quantizes no batch that is plain")
        empty = self.cache.keys is None
        quantized = (empty_quantized_like if empty else quantize_cache_layer)(
            self.cache, bits=bits, group_size=group_size
        )
        return OptiqRing(quantized, replace(self.spec, storage=AffineStorage(bits, group_size)))

    def copy(self) -> Ring:
        """Return a deep copy, as the server makes of its prompt caches."""
        return OptiqRing(copy.deepcopy(self.cache), self.spec)

    def save_load(self) -> Ring:
        """Write a prompt cache and read it by mlx-lm's functions: mlx-optiq has none of its own."""
        loaded = super().save_load()
        assert isinstance(loaded, MlxLmRing)  # noqa: S101 - that is what its save_load returns
        return OptiqRing(loaded.cache, self.spec)
