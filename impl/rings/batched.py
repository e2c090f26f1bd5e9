"""Rings of several requests, one row each, that advance together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import mlx.core as mx

from impl.affine import AffinePlanes
from impl.errors import MergeError, RingShapeError
from impl.rings.contents import (
    RingContents,
    checked_planes,
    quantized_contents,
    roll_rows,
    row_contents,
    take_rows,
)
from impl.rings.merge import extended, merged_rows
from impl.rings.position import BatchedRotatingState
from impl.rings.prefill import finalized, prepared
from impl.rings.ring import RotatingRing
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache, SoloRing
from impl.rings.storage import AffineStorage, P, PlainStorage, RowStorage

if TYPE_CHECKING:
    from collections.abc import Sequence


class BatchedRing(RotatingRing[P], ABC):
    """Ring of several requests. Rows stand at different positions but share the physical columns."""

    def __init__(self, storage: RowStorage[P], max_size: int, left_padding: Sequence[int], keep: int = 0) -> None:
        if any(pad < 0 for pad in left_padding):
            raise RingShapeError(f"left_padding={list(left_padding)} must not be negative")
        pads = tuple(left_padding)
        super().__init__(storage, BatchedRotatingState(max_size, tuple(-pad for pad in pads), pads), keep)
        self._rope_offset_arr: tuple[tuple[int, ...], mx.array] | None = None

    @property
    def batch_size(self) -> int:
        """Rows."""
        return self._contents.position.batch_size

    @property
    def offset(self) -> int:
        """Columns ever written less columns trimmed; row_offsets says where each request stands."""
        return self._contents.position.total_offset

    @property
    def row_offsets(self) -> tuple[int, ...]:
        """Positions advanced per row, padding of an open prefill included."""
        return self._contents.position.offsets

    @property
    def left_pad(self) -> tuple[int, ...]:
        """Temporal columns before the first token of each row."""
        return self._contents.position.left_pad

    @property
    def rope_offset_arr(self) -> mx.array | None:
        """Position of the next column per row, int32 ``[rows]``, None without rows; read it before the update."""
        offsets = self._contents.position.offsets
        if not offsets:
            return None
        # Remembered with the offsets it was made of: a rollback or a filter changes them and no other counter.
        if self._rope_offset_arr is None or self._rope_offset_arr[0] != offsets:
            self._rope_offset_arr = offsets, mx.array(offsets, dtype=mx.int32)
        return self._rope_offset_arr[1][...]

    def restore_state(self, keys: P | None, values: P | None, position: BatchedRotatingState) -> None:
        """Take over planes ``[rows, kv_heads, columns, head_dim]`` in physical order with their position state.

        Raises RingShapeError when planes and position do not belong together or are not of this ring's size.
        """
        planes = checked_planes(self._storage, keys, values, position.batch_size)
        _check_position(position, self.max_size, 0 if planes is None else self._storage.width(planes[0]))
        self._contents = RingContents(position, planes if position.active_length else None)

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Announce a padded prefill, which may then come in chunks of any size; see prefill.prepared.

        On a ring without rows it makes one row per length.
        """
        before = self._contents
        position = prepared(before.position, lengths, left_padding, right_padding, force=force)
        self._contents = RingContents(position, before.planes)

    def finalize_prefill(self) -> None:
        """Close a padded prefill: right padding leaves, every row ends with the last column; nothing when not open."""
        before = self._contents
        if before.position.has_pending_padding:
            position, shifts = finalized(before.position)
            self._contents = roll_rows(self._storage, before, shifts, position)

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order; keeping none leaves an empty batch of the same size.

        Raises RowIndexError for a row outside the batch or named twice.
        """
        self._contents = take_rows(self._storage, self._contents, rows)

    @abstractmethod
    def extract_row(self, row: int, limit: int | None = None) -> SoloRing[P]:
        """Solo ring with the newest ``limit`` tokens of one row (all that are held, when None), copied.

        Right padding of an open prefill stays behind. Raises RowIndexError, or RingShapeError for a limit below 1.
        """

    def extend(self, other: Self) -> None:
        """Append the rows of another batch, which stays as it is; both are right-aligned.

        Raises MergeError when the two differ in size, storage, heads or type, PendingPrefillError in an open prefill.
        """
        self._contents = extended(self._storage, self._contents, (other.storage, other.contents))

    def with_rows(self, sources: Sequence[SoloRing[P]]) -> Self:
        """Ring of the same kind with one row per solo ring, its newest ``max_size`` tokens; see merge.merged_rows."""
        rows = [(source.storage, source.contents) for source in sources]
        return self.with_contents(merged_rows(self._storage, self.max_size, rows))


class BatchedRotatingCache(BatchedRing[mx.array]):
    """Plain batched ring; ``left_padding`` makes one row per number, that many columns before its first token."""

    def __init__(self, max_size: int, left_padding: Sequence[int] = (), keep: int = 0) -> None:
        super().__init__(PlainStorage(), max_size, left_padding, keep)

    @classmethod
    def merge(cls, rows: Sequence[RotatingKVCache]) -> Self:
        """Batch with one row per solo ring, its newest ``max_size`` tokens; the solo rings stay as they are.

        Raises MergeError without rows, and when they differ in size, heads or type.
        """
        return cls(_first_of(rows).max_size).with_rows(rows)

    def extract_row(self, row: int, limit: int | None = None) -> RotatingKVCache:
        """Solo ring with the newest ``limit`` tokens of one row; see BatchedRing.extract_row."""
        solo = RotatingKVCache(self.max_size)
        return solo.with_contents(row_contents(self._storage, self._contents, row, limit))

    def signature(self) -> str:
        """Name of everything that two rings must share to hold rows of one batch."""
        return f"kv:rotating-plain:{self.max_size}"

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> BatchedRotatingQuantCache:
        """Affine ring with every stored column quantized where it lies; this ring stays as it is.

        Raises AffineError when a head_dim is not a multiple of ``group_size``.
        """
        ring = BatchedRotatingQuantCache(self.max_size, group_size, bits)
        return ring.with_contents(quantized_contents(AffineStorage(group_size, bits), self._contents))


class BatchedRotatingQuantCache(BatchedRing[AffinePlanes]):
    """Affine batched ring: a token is quantized when it comes, and its bits never change again."""

    def __init__(
        self, max_size: int, group_size: int = 64, bits: int = 4, left_padding: Sequence[int] = (), keep: int = 0
    ) -> None:
        super().__init__(AffineStorage(group_size, bits), max_size, left_padding, keep)
        self.group_size = group_size
        self.bits = bits

    @classmethod
    def merge(cls, rows: Sequence[RotatingQuantizedKVCache]) -> Self:
        """Batch with one row per solo ring, its newest ``max_size`` tokens; the solo rings stay as they are.

        Raises MergeError without rows, and when they differ in size, precision, heads or type.
        """
        first = _first_of(rows)
        storage = first.storage
        if not isinstance(storage, AffineStorage):
            raise MergeError("plain rows cannot join an affine batch; call to_quantized on them first")
        return cls(first.max_size, storage.group_size, storage.bits).with_rows(rows)

    def extract_row(self, row: int, limit: int | None = None) -> RotatingQuantizedKVCache:
        """Solo ring with the newest ``limit`` tokens of one row; see BatchedRing.extract_row."""
        solo = RotatingQuantizedKVCache(self.max_size, self.group_size, self.bits)
        return solo.with_contents(row_contents(self._storage, self._contents, row, limit))

    def signature(self) -> str:
        """Name of everything that two rings must share to hold rows of one batch."""
        return f"kv:rotating-affine:{self.max_size}:{self.group_size}:{self.bits}"


def _first_of(rows: Sequence[SoloRing[P]]) -> SoloRing[P]:
    if not rows:
        raise MergeError("nothing to merge; make an empty batch with the class itself")
    return rows[0]


def _check_position(position: BatchedRotatingState, max_size: int, columns: int) -> None:
    rows, pads, ends = position.batch_size, position.left_pad, position.prefill_ends
    if position.max_size != max_size:
        raise RingShapeError(f"a position of max_size {position.max_size} for a ring of {max_size}")
    if len(pads) != rows or (ends is not None and len(ends) != rows):
        raise RingShapeError(f"{position} needs one offset, left_pad and prefill end per row")
    if not 0 <= position.ring_index <= columns or (position.rotated and columns != max_size):
        raise RingShapeError(
            f"{position} does not fit {columns} columns; a rotated buffer has exactly max_size, any other at least "
            "ring_index"
        )
    length = position.active_length
    if any(not 0 <= pad <= length + max(0, -offset) for pad, offset in zip(pads, position.offsets, strict=True)):
        raise RingShapeError(f"{position} has a left_pad outside its {length} columns and the padding still to come")
