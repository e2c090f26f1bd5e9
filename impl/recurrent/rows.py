"""Row numbers and per-row numbers, checked before anything changes."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

from impl.errors import RowIndexError
from impl.recurrent.errors import RecurrentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def checked_rows(keep: Sequence[int], rows: int) -> list[int]:
    """Return row numbers as a list; raises RowIndexError for one outside the batch or named twice."""
    found = [index(row) for row in keep]
    if any(not 0 <= row < rows for row in found) or len(set(found)) < len(found):
        raise RowIndexError(f"rows {found}: a batch of {rows} has rows 0 to {rows - 1}, and each can be kept once")
    return found


def checked_counts(what: str, counts: Sequence[int], rows: int) -> list[int]:
    """Return one count a row as a list of its own; raises RecurrentError for another number of them, or negatives."""
    found = [index(count) for count in counts]
    if len(found) != rows:
        raise RecurrentError(f"{len(found)} {what} for {rows} rows; give one a row")
    if any(count < 0 for count in found):
        raise RecurrentError(f"{what} {found} must not be negative")
    return found
