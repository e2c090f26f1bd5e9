"""Padding of a prefill for recurrent layers: which columns of each chunk are tokens of their row.

A state has no token axis that could be rolled afterwards, so padding must never get into it. All numbers are relative
to the first column of the next chunk and become negative behind it, as in mlx-lm's ArraysCache.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import mlx.core as mx

from impl.recurrent.errors import RecurrentError
from impl.recurrent.rows import checked_counts, checked_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

# The end of a row that nobody announced one for: further away than any prompt, and still an int32.
NO_END: Final = 1 << 30


@dataclass(frozen=True)
class PrefillPadding:
    """A padded prefill as its caller announces it.

    ``lengths[b]`` counts input columns up to the row's last token, left padding included; ``right_padding[b]`` the
    columns behind it, so that ``lengths[b] + right_padding[b]`` is the same in every row.
    """

    lengths: Sequence[int]
    left_padding: Sequence[int] | None = None
    right_padding: Sequence[int] | None = None


class SsmPrefillPadding:
    """What is left of a padded prefill: per row the padding in front, and the columns up to its last token.

    Raises RecurrentError for numbers that do not fit together.
    """

    def __init__(self, padding: PrefillPadding) -> None:
        """Take copies of the caller's lists."""
        rows = len(padding.lengths)
        lengths = checked_counts("lengths", padding.lengths, rows)
        left = checked_counts("left paddings", padding.left_padding or [0] * rows, rows)
        if any(length < pad for length, pad in zip(lengths, left, strict=True)):
            raise RecurrentError(f"lengths {lengths} count the left padding {left} and can't be smaller")
        if padding.right_padding is not None:
            right = checked_counts("right paddings", padding.right_padding, rows)
            widths = {length + pad for length, pad in zip(lengths, right, strict=True)}
            if len(widths) > 1:
                raise RecurrentError(f"lengths {lengths} and right padding {right} give several widths {widths}")
        self._left, self._lengths = left, lengths

    @classmethod
    def none(cls, rows: int) -> Self:
        """Return the padding of rows that have none: every column to come is a token."""
        return cls(PrefillPadding([NO_END] * rows))

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self._lengths)

    @property
    def left(self) -> tuple[int, ...]:
        """Columns of padding in front of each row's next token; negative once they are behind."""
        return tuple(self._left)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Columns up to each row's last token, left padding included; negative once it is behind."""
        return tuple(self._lengths)

    def make_mask(self, tokens: int) -> mx.array:
        """Return bool ``[rows, tokens]``: which columns of the next chunk are tokens of their row."""
        column = mx.arange(_columns(tokens), dtype=mx.int32)[None]
        left = mx.array(self._left, dtype=mx.int32)[:, None]
        ends = mx.array(self._lengths, dtype=mx.int32)[:, None]
        return mx.logical_and(column >= left, column < ends)

    def convolution_lengths(self, tokens: int) -> list[int]:
        """Return how many columns of the next chunk reach up to each row's last token, left padding included."""
        columns = _columns(tokens)
        return [max(0, min(columns, length)) for length in self._lengths]

    def advance(self, tokens: int) -> list[int]:
        """Go behind the next chunk; returns how many of its columns were tokens, per row."""
        columns = _columns(tokens)
        pairs = zip(self._left, self._lengths, strict=True)
        counts = [max(0, min(columns, length) - max(0, min(columns, left))) for left, length in pairs]
        # New lists: a copy of this object must not move along.
        self._left = [left - columns for left in self._left]
        self._lengths = [length - columns for length in self._lengths]
        return counts

    def filter(self, keep: Sequence[int]) -> None:
        """Keep these rows in this order; raises RowIndexError."""
        rows = checked_rows(keep, self.batch_size)
        self._left = [self._left[row] for row in rows]
        self._lengths = [self._lengths[row] for row in rows]

    def extend(self, other: SsmPrefillPadding) -> None:
        """Add the rows of another batch's padding."""
        self._left = [*self._left, *other.left]
        self._lengths = [*self._lengths, *other.lengths]

    def copy(self) -> Self:
        """Return an independent copy; the lists themselves are replaced and never written to."""
        return copy(self)


def _columns(tokens: int) -> int:
    if tokens < 0:
        raise RecurrentError(f"a chunk has no {tokens} columns")
    return tokens
