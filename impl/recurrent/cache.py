"""What a recurrent layer keeps between chunks: the convolution's last inputs, its state, and how far each row is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import mlx.core as mx

from impl.errors import PendingPrefillError
from impl.recurrent.errors import RecurrentError, StateNotTrimmableError
from impl.recurrent.padding import PrefillPadding, SsmPrefillPadding
from impl.recurrent.rows import checked_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


class RecurrentCache:
    """The cache of one recurrent layer for a batch of rows.

    ``conv_state`` is ``[rows, kernel - 1, channels]`` in the dtype of the inputs, ``state`` float32
    ``[rows, heads, value_dim, key_dim]``; both are None before the first chunk, which means zeros. Arrays are replaced
    and never written to, so that what was handed out, or is shared with a copy, keeps its values.
    """

    def __init__(self, rows: int = 1) -> None:
        """Make an empty cache of ``rows`` rows."""
        if rows < 0:
            raise RecurrentError(f"a batch has no {rows} rows")
        self.conv_state: mx.array | None = None
        self.state: mx.array | None = None
        self._offsets = (0,) * rows
        self._padding: SsmPrefillPadding | None = None

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self._offsets)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Tokens that each row has taken, padding not counted: its position."""
        return self._offsets

    @property
    def padding(self) -> SsmPrefillPadding | None:
        """A copy of the open prefill's padding; None where no prefill is open."""
        return None if self._padding is None else self._padding.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return sum(array.nbytes for array in (self.conv_state, self.state) if array is not None)

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
    ) -> None:
        """Announce a padded prefill; see PrefillPadding for the numbers.

        Raises PendingPrefillError when one is open, RecurrentError for numbers that do not fit, or for left padding of
        a row that took tokens already: its convolution would see zeros between them and the new ones.
        """
        if self._padding is not None:
            raise PendingPrefillError("a padded prefill is open already; call finalize_prefill first")
        padding = SsmPrefillPadding(PrefillPadding(lengths, left_padding, right_padding))
        if padding.batch_size != self.batch_size:
            raise RecurrentError(f"{padding.batch_size} lengths for {self.batch_size} rows; give one a row")
        if any(pad and offset for pad, offset in zip(padding.left, self._offsets, strict=True)):
            raise RecurrentError("left padding needs rows without tokens; pad on the right instead")
        self._padding = padding

    def finalize_prefill(self) -> None:
        """Close the padded prefill: all columns from here on are tokens. Idempotent."""
        self._padding = None

    def make_mask(self, tokens: int) -> mx.array | None:
        """Return bool ``[rows, tokens]`` for the next chunk, or None where all of it is tokens."""
        return None if self._padding is None else self._padding.make_mask(tokens)

    def convolution_lengths(self, tokens: int) -> list[int]:
        """Return how many columns of the next chunk reach up to each row's last token."""
        return [tokens] * self.batch_size if self._padding is None else self._padding.convolution_lengths(tokens)

    def update(self, conv_state: mx.array, state: mx.array, tokens: int) -> list[int]:
        """Take what a layer made of a chunk of ``tokens`` columns; returns each row's tokens among them."""
        if conv_state.shape[0] != self.batch_size or state.shape[0] != self.batch_size:
            raise RecurrentError(f"arrays of {conv_state.shape[0]} and {state.shape[0]} rows for {self.batch_size}")
        counts = [tokens] * self.batch_size if self._padding is None else self._padding.advance(tokens)
        self.conv_state, self.state = conv_state, state
        self._offsets = tuple(offset + count for offset, count in zip(self._offsets, counts, strict=True))
        return counts

    def filter_rows(self, keep: Sequence[int]) -> None:
        """Keep these rows in this order, their padding in an open prefill with them; raises RowIndexError."""
        rows = checked_rows(keep, self.batch_size)
        arrays = self._taken(rows)
        if self._padding is not None:
            self._padding.filter(rows)
        self.conv_state, self.state = arrays
        self._offsets = tuple(self._offsets[row] for row in rows)

    def extract_row(self, row: int) -> RecurrentCache:
        """Return one row as a cache of its own, without padding: in an open prefill, the row as it is by now."""
        (one,) = checked_rows([row], self.batch_size)
        solo = RecurrentCache(1)
        solo.conv_state, solo.state = self._taken([one])
        solo._offsets = (self._offsets[one],)
        return solo

    def extend(self, other: RecurrentCache) -> None:
        """Add the rows of another cache; padding of an open prefill, of either, goes with its rows.

        Raises RecurrentError for arrays of another shape or type; then nothing changes.
        """
        conv_state = _joined(self.conv_state, other.conv_state, self.batch_size, other.batch_size)
        state = _joined(self.state, other.state, self.batch_size, other.batch_size)
        if self._padding is not None or other.padding is not None:
            # Rows without padding are joined as rows without an end; "length 0" would make padding of their tokens.
            mine = self.padding or SsmPrefillPadding.none(self.batch_size)
            mine.extend(other.padding or SsmPrefillPadding.none(other.batch_size))
            self._padding = mine
        self.conv_state, self.state = conv_state, state
        self._offsets = (*self._offsets, *other._offsets)

    @classmethod
    def merge(cls, sources: Sequence[RecurrentCache]) -> RecurrentCache:
        """Return one batch with the rows of all sources, which stay as they are; raises RecurrentError."""
        batch = cls(0)
        for source in sources:
            batch.extend(source)
        return batch

    def copy(self) -> Self:
        """Return an independent copy: also the snapshot that a rollback needs."""
        twin = type(self)(0)
        twin.restore(self)
        return twin

    def restore(self, snapshot: RecurrentCache) -> None:
        """Become as ``snapshot`` is, which stays usable."""
        self.conv_state, self.state = snapshot.conv_state, snapshot.state
        self._offsets, self._padding = snapshot._offsets, snapshot.padding

    def is_trimmable(self) -> bool:
        """Return False: a state is all its tokens at once."""
        return False

    def trim(self, tokens: int) -> int:
        """Raise StateNotTrimmableError; a rollback takes a copy beforehand, and replays (see ``rollback``)."""
        raise StateNotTrimmableError(
            f"a recurrent state can't forget its last {tokens} tokens; copy the cache before them, and replay"
        )

    def _taken(self, rows: list[int]) -> tuple[mx.array | None, mx.array | None]:
        picked = mx.array(rows, dtype=mx.int32)
        conv_state = None if self.conv_state is None else mx.take(self.conv_state, picked, axis=0)
        state = None if self.state is None else mx.take(self.state, picked, axis=0)
        mx.eval([array for array in (conv_state, state) if array is not None])
        return conv_state, state


def _joined(first: mx.array | None, second: mx.array | None, rows: int, more: int) -> mx.array | None:
    """Put rows behind each other; rows that hold nothing are zeros beside rows that do."""
    some = first if first is not None else second
    if some is None:
        return None
    first = mx.zeros((rows, *some.shape[1:]), some.dtype) if first is None else first
    second = mx.zeros((more, *some.shape[1:]), some.dtype) if second is None else second
    if first.shape[1:] != second.shape[1:] or first.dtype != second.dtype:
        mine, theirs = f"{first.shape[1:]} {first.dtype}", f"{second.shape[1:]} {second.dtype}"
        raise RecurrentError(f"rows of {mine} and of {theirs} can't share a batch")
    both = mx.concatenate([first, second])
    mx.eval(both)
    return both
