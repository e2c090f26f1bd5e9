"""Positions of a group of aligned rows, without any planes: what masks and rotary embeddings need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import mlx.core as mx

from impl.errors import MergeError, RingShapeError
from impl.rings.masks import build_batched_rotating_mask
from impl.rings.position import BatchedRotatingState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.rings.aligned import AlignedRotatingCache


def combined_position(max_size: int, rows: Sequence[AlignedRotatingCache]) -> BatchedRotatingState:
    """Position state of a batch made of aligned rows; without rows that of an empty batch.

    Raises MergeError when the rows do not stand in the same columns.
    """
    states = [row.position for row in rows]
    geometries = {(s.max_size, s.ring_index, s.total_offset, s.rotated, s.has_pending_padding) for s in states}
    if len(geometries) > 1 or any(state.max_size != max_size for state in states):
        raise MergeError(
            f"rows at (max_size, ring_index, total_offset, rotated, in a padded prefill) {sorted(geometries)} cannot "
            f"share the columns of a group of max_size {max_size}; align them, and let all of them take every step"
        )
    if not states:
        return BatchedRotatingState(max_size)
    ends = [state.prefill_ends[0] for state in states if state.prefill_ends is not None]
    return replace(
        states[0],
        offsets=tuple(state.offsets[0] for state in states),
        left_pad=tuple(state.left_pad[0] for state in states),
        prefill_ends=tuple(ends) if ends else None,
    )


class GroupPositions(ABC):
    """Where the rows of a batch stand, told from its position state."""

    _rope_offset_arr: tuple[tuple[int, ...], mx.array] | None = None

    @property
    @abstractmethod
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""

    @property
    def max_size(self) -> int:
        """Columns that a wrapped ring keeps."""
        return self.position.max_size

    @property
    def row_offsets(self) -> tuple[int, ...]:
        """Positions advanced per row, padding of an open prefill included."""
        return self.position.offsets

    @property
    def left_pad(self) -> tuple[int, ...]:
        """Temporal columns before the first token of each row."""
        return self.position.left_pad

    @property
    def offset(self) -> int:
        """Columns ever written less columns trimmed; row_offsets says where each request stands."""
        return self.position.total_offset

    @property
    def batch_size(self) -> int | None:
        """Rows; None without any."""
        return self.position.batch_size or None

    @property
    def rope_offset_arr(self) -> mx.array | None:
        """Position of the next column per row, int32 ``[rows]``, None without rows; read it before the update."""
        offsets = self.position.offsets
        if not offsets:
            return None
        # Remembered with the offsets it was made of: a rollback or a filter changes them and no other counter.
        if self._rope_offset_arr is None or self._rope_offset_arr[0] != offsets:
            self._rope_offset_arr = offsets, mx.array(offsets, dtype=mx.int32)
        return self._rope_offset_arr[1][...]


class RotatingKvPositions(GroupPositions):
    """Positions without planes. They never count by themselves: the owner calls ``sync`` after every change."""

    def __init__(self, max_size: int) -> None:
        if max_size < 1:
            raise RingShapeError(f"max_size={max_size}; a ring keeps at least 1 column")
        self._position = BatchedRotatingState(max_size)

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._position

    def sync(self, rows: Sequence[AlignedRotatingCache]) -> None:
        """Take over the positions of aligned rows; none leaves an empty group of the same ``max_size``.

        Raises MergeError, and changes nothing, when the rows do not stand in the same columns.
        """
        self._position = combined_position(self.max_size, rows)

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order; raises RowIndexError for a row outside the group or named twice."""
        self._position = self._position.taking(rows)

    def make_mask(self, tokens: int, window: int | None = None) -> mx.array:
        """Boolean mask ``[rows, 1, tokens, columns]`` for the next tokens; row b is the mask of aligned row b."""
        return build_batched_rotating_mask(self._position, tokens, window)
