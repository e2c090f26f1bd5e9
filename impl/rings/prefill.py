"""Padded prefills: announcing the padding of a batch before its prompts come, and removing it afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from impl.errors import PendingPrefillError, RingShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.rings.position import BatchedRotatingState


def prepared(
    position: BatchedRotatingState,
    lengths: Sequence[int],
    left_padding: Sequence[int] | None = None,
    right_padding: Sequence[int] | None = None,
    *,
    force: bool = False,
) -> BatchedRotatingState:
    """State with a prefill announced, whose input is ``lengths[b] + right_padding[b]`` columns wide in every row.

    ``lengths`` counts columns up to the row's last real token, left padding included. Right padding opens the
    prefill; ``force`` opens it without any, for rows whose siblings elsewhere have some and must take the same path.

    Raises PendingPrefillError when a prefill is open, RingShapeError for numbers that do not fit together or left
    padding on a ring that was used before.
    """
    if position.has_pending_padding:
        raise PendingPrefillError("a padded prefill is open already; call finalize_prefill first")
    rows = position.batch_size or len(lengths)
    left = [0] * rows if left_padding is None else list(left_padding)
    right = [0] * rows if right_padding is None else list(right_padding)
    _check(rows, lengths, left, right)
    if any(left) and (position.active_length or any(position.offsets)):
        raise RingShapeError("left padding needs rows without tokens; pad on the right instead")
    before = position.offsets or (0,) * rows
    offsets = tuple(offset - pad for offset, pad in zip(before, left, strict=True))
    pads = position.left_pad or (0,) * rows
    ends = tuple(offset + length for offset, length in zip(offsets, lengths, strict=True))
    return replace(
        position,
        offsets=offsets,
        left_pad=tuple(old + new for old, new in zip(pads, left, strict=True)),
        prefill_ends=ends if force or any(right) else None,
    )


def finalized(position: BatchedRotatingState) -> tuple[BatchedRotatingState, tuple[int, ...]]:
    """State after an open prefill, and the columns by which each row moves right over its padding.

    Columns and ``total_offset`` stay. A prefill may end before all announced columns came.
    """
    shifts = position.padding_rolls()
    return replace(position.rolled(shifts), prefill_ends=None), shifts


def _check(rows: int, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
    if not len(lengths) == len(left) == len(right) == rows:
        raise RingShapeError(
            f"{len(lengths)} lengths, {len(left)} left and {len(right)} right paddings; give one per row, {rows}"
        )
    if any(value < 0 for value in (*lengths, *left, *right)):
        raise RingShapeError(f"lengths {lengths} and paddings {left}, {right} must not be negative")
    if any(length < pad for length, pad in zip(lengths, left, strict=True)):
        raise RingShapeError(f"lengths {lengths} count the left padding {left} and cannot be smaller")
    widths = {length + pad for length, pad in zip(lengths, right, strict=True)}
    if len(widths) > 1:
        raise RingShapeError(f"lengths {lengths} and right padding {right} give widths {sorted(widths)}; one is needed")
