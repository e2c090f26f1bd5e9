"""The rings of `impl` behind the protocol of kind `ring`: solo rings for one request, batched ones for several.

A round on a batched ring is `rollback_rotating_ring` from the offsets at its beginning, or the speculative ring's own
where storage is plain. A solo ring has no rounds; there a rollback is a trim of what was not kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.subjects.mlx_ring import MlxRing
from harness.subjects.protocol import AffineStorage, Ring, Unsupported
from impl.attention import attend
from impl.rings.batched import BatchedRotatingQuantCache
from impl.rings.position import UNBOUNDED
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.subjects.protocol import RingSpec


def open_ring(spec: RingSpec) -> Ring:
    """Return an empty ring as `spec` asks for; raises Unsupported for sinks and chunked caches."""
    if spec.sinks:
        raise Unsupported("these rings keep no sinks")
    if spec.chunked:
        raise Unsupported("there is no chunked cache here")
    size = UNBOUNDED if spec.window is None else spec.window
    cache: Any
    if spec.rows == 1:
        if spec.storage is None:
            cache = RotatingKVCache(size)
        else:
            cache = RotatingQuantizedKVCache(size, spec.storage.group_size, spec.storage.bits)
    elif spec.storage is None:
        cache = SpeculativeRotatingKVCache(size, [0] * spec.rows)
    else:
        cache = BatchedRotatingQuantCache(size, spec.storage.group_size, spec.storage.bits, [0] * spec.rows)
    return ReferenceRing(cache, spec)


class ReferenceRing(MlxRing):
    """One ring of `impl`."""

    def __init__(self, cache: Any, spec: RingSpec, before: list[int] | None = None) -> None:
        """Wrap a ring; `before`: where its rows stood when an open round began."""
        super().__init__(cache, spec, lambda ring, tokens: ring.make_mask(tokens, spec.window), attend)
        self._before = before

    def _wrapped(self, cache: Any, before: list[int] | None = None, **changes: Any) -> Ring:
        return ReferenceRing(cache, replace(self.spec, **changes), before)

    def offsets(self) -> list[int]:
        """Return the position of every row."""
        return list(self.cache.position.offsets)

    def rope_offsets(self) -> list[int] | None:
        """Return the positions that rotary embeddings of the next block begin with."""
        array = getattr(self.cache, "rope_offset_arr", None)
        return None if array is None else [int(value) for value in array.tolist()]

    def begin(self) -> None:
        """Open a round."""
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_begin()
        self._before = self.offsets()

    def commit(self) -> None:
        """Accept the round."""
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_commit()
        self._before = None

    def rollback(self, keep: Sequence[int]) -> None:
        """Keep the first tokens of the round in every row."""
        before = self._before or []
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_rollback(list(keep))
        elif isinstance(self.cache, BatchedRotatingQuantCache):
            self.cache = rollback_rotating_ring(self.cache, before, list(keep))
        else:
            drop = self.offsets()[0] - before[0] - keep[0]
            if drop:
                self.cache.trim(drop)
        self._before = None

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill; a solo ring takes no padding."""
        if not hasattr(self.cache, "prepare_prefill"):
            raise Unsupported("a solo ring takes no padding")
        self.cache.prepare_prefill(list(lengths), list(left) if any(left) else None, list(right))

    def finalize(self) -> None:
        """Close it."""
        self.cache.finalize_prefill()

    def merge(self, others: Sequence[Ring]) -> Ring:
        """Make one batch of solo rings."""
        caches = [other.cache for other in others if isinstance(other, ReferenceRing)]
        batch: Any
        if self.spec.storage is None:
            batch = SpeculativeRotatingKVCache(self.cache.max_size)
            batch.merge_rows(caches)
        else:
            batch = BatchedRotatingQuantCache.merge(caches)
        return self._wrapped(batch, rows=len(others))

    def extend(self, other: Ring) -> None:
        """Add the rows of another batch."""
        if not hasattr(self.cache, "extend"):
            raise Unsupported("a solo ring is no batch; merge it first")
        assert isinstance(other, ReferenceRing)  # noqa: S101 - the driver opens both
        self.cache.extend(other.cache)

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        if not hasattr(self.cache, "filter_rows"):
            raise Unsupported("a solo ring has no rows to filter")
        self.cache.filter_rows(list(rows))
        if self._before is not None:
            self._before = [self._before[row] for row in rows]

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo ring."""
        if hasattr(self.cache, "extract_row"):
            return self._wrapped(self.cache.extract_row(row, limit), rows=1)
        return self._wrapped(self.cache.extract(limit), rows=1)

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Return the ring with affine storage."""
        quantized = self.cache.to_quantized(group_size, bits)
        return self._wrapped(quantized, self._before, storage=AffineStorage(bits, group_size))

    def copy(self) -> Ring:
        """Return a copy."""
        return self._wrapped(self.cache.copy(), self._before)
