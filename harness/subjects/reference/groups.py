"""Rows of one batch that `impl` stores in other ways than one ring: aligned, packed in a layout, crossing to affine.

Aligned rows are an `AlignedGroup`, whose masks come from `RotatingKvPositions` alone. A step of a group that fails
leaves a part of its rows behind, so each is taken on a copy, which replaces the group when it is done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from harness.subjects.mlx_ring import Apart
from harness.subjects.protocol import Unsupported
from harness.subjects.reference.ring import ReferenceRing
from impl.rings.aligned import align_rotating_rows
from impl.rings.group import AlignedGroup
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.transitioning import TransitioningKvRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from harness.subjects.protocol import Ring, RingSpec

T = TypeVar("T")
LAYOUTS = {"affine": RotatingAffineLayout, "speculative-affine": SpeculativeRotatingAffineLayout}


def open_group(spec: RingSpec, size: int) -> Ring:
    """Return empty rows stored as `spec.layout` and `spec.crossing` say."""
    return _merged(spec, size, [_empty_row(spec, size) for _ in range(spec.rows)], spec.crossing or None)


def merge_into_group(spec: RingSpec, size: int, caches: Sequence[Any]) -> Ring:
    """Return the rows of solo caches in one batch as `spec.layout` and `spec.crossing` say."""
    return _merged(spec, size, caches, None)


def _empty_row(spec: RingSpec, size: int) -> RotatingKVCache | RotatingQuantizedKVCache:
    if spec.storage is None or spec.crossing:
        return RotatingKVCache(size)
    return RotatingQuantizedKVCache(size, spec.storage.group_size, spec.storage.bits)


def _merged(spec: RingSpec, size: int, caches: Sequence[Any], crossing: Sequence[int] | None) -> Ring:
    if spec.layout == "aligned":
        return ReferenceAligned(AlignedGroup(size, align_rotating_rows(caches)), spec)
    if spec.storage is None:
        raise Unsupported("rows of a layout are affine")
    numbers = (size, spec.storage.group_size, spec.storage.bits)
    if spec.crossing:
        rows = TransitioningKvRows(*numbers, crossing_tokens=spec.crossing[0])
        rows.merge_rows(caches, crossing)
        return ReferenceRows(rows, spec)
    layout = LAYOUTS[spec.layout](*numbers)
    layout.merge_rows(caches)
    return ReferenceRows(layout, spec)


class ReferenceRows(ReferenceRing):
    """Rows packed in a layout, or on their way to it: what speaks of rounds and merges itself."""

    def _wrapped(self, cache: Any, before: list[int] | None = None, **changes: Any) -> Ring:
        if isinstance(cache, RotatingKVCache | RotatingQuantizedKVCache):
            return ReferenceRing(cache, replace(self.spec, layout="ring", crossing=(), **changes), before)
        return type(self)(cache, replace(self.spec, **changes), before)

    def fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Update; rows that are not all stored alike come in parts."""
        return _in_parts(self.cache.update_and_fetch(keys, values))

    def begin(self) -> None:
        """Open a round."""
        self.cache.spec_round_begin()

    def commit(self) -> None:
        """Accept the round."""
        self.cache.spec_round_commit()

    def rollback(self, keep: Sequence[int]) -> None:
        """Keep the first tokens of the round in every row."""
        self.cache.spec_round_rollback(list(keep))

    def extend(self, other: Ring) -> None:
        """Merge the rows of both anew."""
        assert isinstance(other, ReferenceRing)  # noqa: S101 - the driver opens both
        self.cache.merge_rows([self.cache, other.cache])
        self.spec = replace(self.spec, rows=self.spec.rows + other.spec.rows)

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Say no: rows become affine by themselves here, or are."""
        raise Unsupported(
            f"{type(self.cache).__name__} quantizes by itself, not to {bits} bits x {group_size} on demand"
        )


class ReferenceAligned(ReferenceRing):
    """Aligned rows, each in planes of its own, which take every step together."""

    def _wrapped(self, cache: Any, before: list[int] | None = None, **changes: Any) -> Ring:
        if isinstance(cache, AlignedGroup):
            return ReferenceAligned(cache, replace(self.spec, **changes), before)
        return ReferenceRing(cache, replace(self.spec, layout="ring", **changes), before)

    def mask(self, tokens: int) -> Any:
        """Return the mask of the group, made from positions alone."""
        return self.cache.positions.make_mask(tokens, self.spec.window)

    def fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Update every row."""
        return self._take(lambda group: _in_parts(group.update_and_fetch(keys, values)))

    def _take(self, step: Callable[[AlignedGroup], T]) -> T:
        group = self.cache.copy()
        result = step(group)
        self.cache = group
        return result

    def rope_offsets(self) -> list[int] | None:
        """Return the positions that rotary embeddings of the next block begin with."""
        array = self.cache.positions.rope_offset_arr
        return None if array is None else [int(value) for value in array.tolist()]

    def trim(self, tokens: int) -> int:
        """Trim every row."""
        self._take(lambda group: group.trim(tokens))
        return tokens

    def begin(self) -> None:
        """Note where the rows stand."""
        self._before = self.offsets()

    def commit(self) -> None:
        """Forget it."""
        self._before = None

    def rollback(self, keep: Sequence[int]) -> None:
        """Go back in every row."""
        before = self._before or []
        self._take(lambda group: group.roll_back(before, list(keep)))
        self._before = None

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill to every row."""
        pads = list(left) if any(left) else None
        self._take(lambda group: group.prepare_prefill(list(lengths), pads, list(right), force=False))

    def finalize(self) -> None:
        """Close it in every row."""
        self._take(lambda group: group.finalize_prefill())

    def extend(self, other: Ring) -> None:
        """Align the rows of both anew."""
        assert isinstance(other, ReferenceAligned)  # noqa: S101 - the driver opens both
        solos = [row.extract() for row in (*self.cache.rows, *other.cache.rows)]
        self.cache = AlignedGroup(self.cache.position.max_size, align_rotating_rows(solos))
        self.spec = replace(self.spec, rows=len(solos))

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        self._take(lambda group: group.filter_rows(list(rows)))
        if self._before is not None:
            self._before = [self._before[row] for row in rows]

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo ring."""
        return self._wrapped(self.cache.rows[row].extract(limit), rows=1)

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Quantize every row where its columns lie."""
        return self.quantize_rows(range(len(self.cache.rows)), bits, group_size)

    def quantize_rows(self, rows: Sequence[int], bits: int, group_size: int) -> Ring:
        """Quantize the columns of some rows where they lie."""
        changed = [
            row.to_quantized(group_size, bits) if index in rows else row for index, row in enumerate(self.cache.rows)
        ]
        return self._wrapped(AlignedGroup(self.cache.position.max_size, changed), self._before)


def _in_parts(fetched: Any) -> tuple[Any, Any]:
    if isinstance(fetched, tuple):
        return fetched
    keys, values = zip(*fetched.parts, strict=True)
    return Apart(keys), Apart(values)
