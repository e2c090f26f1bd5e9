"""Where the tokens of a batched ring stand: plain host integers, without any array."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from impl.errors import HistoryLostError, PendingPrefillError, RingShapeError, RowIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

# A ring with this window is a full cache: nothing ever leaves it.
UNBOUNDED: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class BatchedRotatingState:
    """Position state of a batched ring; it never changes, so it is its own snapshot.

    Columns are counted in time, 0 the oldest; a position counts the real tokens before a token of its row.
    ``max_size``: columns that a wrapped ring keeps. ``offsets``: positions advanced per row, right padding of an
    open prefill included, negative while left padding is still to come. ``left_pad``: columns before the first
    token of each row. ``ring_index``: next physical column to write. ``total_offset``: columns ever written less
    columns trimmed. ``rotated``: physical column 0 is not the oldest, and the buffer has exactly ``max_size``
    columns. ``prefill_ends``: where the real input of each row ends, None unless a padded prefill is open.
    """

    max_size: int
    offsets: tuple[int, ...] = ()
    left_pad: tuple[int, ...] = ()
    ring_index: int = 0
    total_offset: int = 0
    rotated: bool = False
    prefill_ends: tuple[int, ...] | None = None

    @property
    def batch_size(self) -> int:
        """Rows."""
        return len(self.offsets)

    @property
    def active_length(self) -> int:
        """Columns in use; spare columns of the buffer do not count."""
        return self.max_size if self.rotated else self.ring_index

    @property
    def has_pending_padding(self) -> bool:
        """Whether a padded prefill is open."""
        return self.prefill_ends is not None

    def valid_offset(self, row: int) -> int:
        """Position after the row's last real token; negative while left padding is still to come."""
        if self.prefill_ends is None:
            return self.offsets[row]
        return min(self.offsets[row], self.prefill_ends[row])

    def end(self, row: int) -> int:
        """Column after the row's last real token."""
        return self.active_length - (self.offsets[row] - self.valid_offset(row))

    def stored(self, row: int) -> int:
        """Tokens of the row that the ring holds."""
        return max(0, self.end(row) - self.left_pad[row])

    def lost_history(self, row: int) -> bool:
        """Whether tokens of the row have left the ring."""
        return self.stored(row) < max(0, self.valid_offset(row))

    def max_trim(self) -> int:
        """Tokens that can leave every row as if they had never come; 0 for a batch without rows."""
        return min((self._row_trim(row) for row in range(self.batch_size)), default=0)

    def _row_trim(self, row: int) -> int:
        # The next query brings itself, so max_size - 1 older tokens answer it in full.
        if self.max_size == 1 or not self.lost_history(row):
            return max(0, self.valid_offset(row))
        return max(0, self.stored(row) - (self.max_size - 1))

    def physical_ranges(self, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        """Physical ``(start, stop)`` ranges, oldest first, of columns ``start`` to ``stop``; none without columns."""
        if start >= stop:
            return ()
        if not self.rotated:
            return ((start, stop),)
        low, high = start + self.ring_index, stop + self.ring_index
        if low >= self.max_size:
            return ((low - self.max_size, high - self.max_size),)
        if high <= self.max_size:
            return ((low, high),)
        return (low, self.max_size), (0, high - self.max_size)

    def padding_rolls(self) -> tuple[int, ...]:
        """Columns by which each row must move right so that its tokens end with the last column."""
        return tuple(self.offsets[row] - self.valid_offset(row) for row in range(self.batch_size))

    def rolled(self, shifts: Sequence[int]) -> BatchedRotatingState:
        """State after moving row b right by ``shifts[b]``: the newest columns of the row become its oldest padding."""
        offsets = tuple(offset - shift for offset, shift in zip(self.offsets, shifts, strict=True))
        left_pad = tuple(
            self._clamp_pad(pad + shift, self.active_length, offset)
            for pad, shift, offset in zip(self.left_pad, shifts, offsets, strict=True)
        )
        return replace(self, offsets=offsets, left_pad=left_pad)

    def trimmed(self, tokens: int) -> BatchedRotatingState:
        """State after cutting the newest ``tokens`` columns off every row, in temporal order."""
        length = max(0, self.active_length - tokens)
        offsets = tuple(offset - tokens for offset in self.offsets)
        total = self.total_offset - tokens
        return replace(
            self,
            offsets=offsets,
            left_pad=tuple(self._clamp_pad(p, length, o) for p, o in zip(self.left_pad, offsets, strict=True)),
            ring_index=length,
            # With fewer columns than a query needs, all that ever left was padding, and it no longer counts.
            total_offset=total if length >= self.max_size - 1 else min(total, length),
            rotated=False,
        )

    @staticmethod
    def _clamp_pad(pad: int, length: int, offset: int) -> int:
        # Announced left padding that has not come yet (a negative offset) counts beyond the last column.
        return min(pad, length + max(0, -offset))

    def kept_newest(self, columns: int) -> BatchedRotatingState:
        """State after dropping all but the newest ``columns`` columns, in temporal order."""
        drop = self.active_length - columns
        # Clamped at zero: a negative pad would count as tokens once a row is rolled.
        left_pad = tuple(max(0, pad - drop) for pad in self.left_pad) if drop else self.left_pad
        return replace(self, left_pad=left_pad, ring_index=columns, rotated=False)

    def appended(self, tokens: int) -> BatchedRotatingState:
        """State after a block written behind the last column of a buffer in temporal order."""
        return replace(
            self,
            offsets=tuple(offset + tokens for offset in self.offsets),
            ring_index=self.ring_index + tokens,
            total_offset=self.total_offset + tokens,
        )

    def stepped(self) -> BatchedRotatingState:
        """State after one token written in place; a full ring loses its oldest column."""
        full = self.active_length == self.max_size
        column = 0 if full and self.ring_index == self.max_size else self.ring_index
        return BatchedRotatingState(
            self.max_size,
            tuple([offset + 1 for offset in self.offsets]),
            tuple([pad - 1 if pad else 0 for pad in self.left_pad]) if full else self.left_pad,
            column + 1,
            self.total_offset + 1,
            full,
            None,
        )

    def taking(self, rows: Sequence[int]) -> BatchedRotatingState:
        """State of the given rows, in the given order; without rows an empty batch of the same window.

        Raises RowIndexError for a row outside the batch or named twice.
        """
        check_rows(rows, self.batch_size)
        if not rows:
            return BatchedRotatingState(self.max_size)
        ends = self.prefill_ends
        return replace(
            self,
            offsets=tuple(self.offsets[row] for row in rows),
            left_pad=tuple(self.left_pad[row] for row in rows),
            prefill_ends=None if ends is None else tuple(ends[row] for row in rows),
        )

    def require_no_pending(self, operation: str) -> None:
        """Raise PendingPrefillError when a padded prefill is open."""
        if self.has_pending_padding:
            raise PendingPrefillError(f"{operation} while a padded prefill is open; call finalize_prefill first")

    def require_trim(self, tokens: int) -> None:
        """Raise unless the newest ``tokens`` tokens can leave every row as if they had never come."""
        self.require_no_pending("trim")
        if tokens < 0:
            raise RingShapeError(f"cannot trim {tokens} tokens; give 0 or more")
        room = self.max_trim()
        if tokens > room:
            raise HistoryLostError(
                f"trimming {tokens} tokens needs history that is no longer held; at most {room} can go, "
                "or restore a copy taken before them"
            )


def check_rows(rows: Sequence[int], batch_size: int) -> None:
    """Raise RowIndexError unless the rows are different and within the batch."""
    if any(not 0 <= row < batch_size for row in rows) or len(set(rows)) != len(rows):
        raise RowIndexError(f"rows {list(rows)} of a batch of {batch_size}; name each row from 0 once at most")
