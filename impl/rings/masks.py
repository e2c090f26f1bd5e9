"""Attention masks of rings, computed from the position state before the update."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx

from impl.errors import RingShapeError

if TYPE_CHECKING:
    from impl.attention import Mask
    from impl.rings.position import BatchedRotatingState

SEEN: Final = b"\1"
# Token masks are cut from remembered ones, whose width is a multiple of this.
MASK_COLUMNS: Final = 256


def make_ring_mask(
    position: BatchedRotatingState, tokens: int, window: int | None = None, *, return_array: bool = False
) -> Mask:
    """Mask for the next ``tokens`` tokens; a shortcut (None, ``"causal"``) when it says exactly the same.

    ``return_array`` asks for the boolean array ``[rows, 1, tokens, columns]`` in every case. ``window`` counts
    tokens, the query included; None, or more than ``max_size``, means ``max_size``.
    """
    window = _window(position, tokens, window)
    if _in_place(position, tokens):
        hidden = _hidden_columns(position, window)
        return _token_mask(position, hidden) if return_array or any(hidden) else None
    if not return_array and not any(_block_pads(position)) and _old_columns(position) + tokens <= window:
        return "causal" if tokens > 1 else None
    return _block_mask(position, tokens, window)


def build_batched_rotating_mask(position: BatchedRotatingState, tokens: int, window: int | None = None) -> mx.array:
    """Boolean mask ``[rows, 1, tokens, columns]``, columns as the update will return them.

    A query at position p sees positions ``max(0, p - window + 1)`` to p of its own row. Which columns fall out is
    counted from the columns in use: the write cursor is small right after a wrap and would hide live tokens.

    Raises RingShapeError for a window or a token count below 1.
    """
    window = _window(position, tokens, window)
    if _in_place(position, tokens):
        return _token_mask(position, _hidden_columns(position, window))
    return _block_mask(position, tokens, window)


def _window(position: BatchedRotatingState, tokens: int, window: int | None) -> int:
    if tokens < 1:
        raise RingShapeError(f"a mask for {tokens} tokens; ask for 1 or more")
    if window is None:
        return position.max_size
    if window < 1:
        raise RingShapeError(f"window={window}; a query sees at least itself, so use 1 or more, or None")
    return min(window, position.max_size)


def _in_place(position: BatchedRotatingState, tokens: int) -> bool:
    return tokens == 1 and not position.has_pending_padding


def _hidden_columns(position: BatchedRotatingState, window: int) -> tuple[int, ...]:
    """Oldest columns, per row, that a token written in place does not see."""
    length = position.active_length
    columns = min(length + 1, position.max_size)
    evicted, outside = length + 1 - columns, max(0, columns - window)
    if not evicted and not outside and max(position.left_pad, default=0) <= columns:
        return position.left_pad
    return tuple([outside if pad - evicted < outside else min(pad - evicted, columns) for pad in position.left_pad])


def _token_mask(position: BatchedRotatingState, hidden: tuple[int, ...]) -> mx.array:
    # This runs once per decoded token. Written as array operations it was a third of a decode step.
    length, max_size = position.active_length, position.max_size
    if length < max_size:
        columns = length + 1
        if hidden != position.left_pad:
            return _host_mask(hidden, 0, columns)
        # The next tokens hide the same columns, so their masks are cut from one.
        width = min(-(-columns // MASK_COLUMNS) * MASK_COLUMNS, max_size)
        return _remembered_mask(hidden, width)[..., :columns]
    if not any(hidden):
        return _remembered_mask(hidden, max_size)[...]
    # The token lands on the oldest column, and the oldest one left is the next.
    full_turn = length > max_size or position.ring_index == max_size
    return _host_mask(hidden, 1 if full_turn else position.ring_index + 1, max_size)


@lru_cache(maxsize=16)
def _remembered_mask(hidden: tuple[int, ...], columns: int) -> mx.array:
    return _host_mask(hidden, 0, columns)


def _host_mask(hidden: tuple[int, ...], oldest: int, columns: int) -> mx.array:
    # Bytes of the host are an array at once, without anything left to evaluate.
    if not hidden:
        return mx.zeros((0, 1, 1, columns), dtype=mx.bool_)
    rows = b"".join([_physical_row(count, oldest, columns) for count in hidden])
    # MLX takes every buffer, though its annotations name none.
    mask: Any = memoryview(rows).cast("?", (len(hidden), 1, 1, columns))
    return mx.array(mask)


def _physical_row(hidden: int, oldest: int, columns: int) -> bytes:
    # The columns from the oldest one on are hidden, on from the first physical one when they reach the last.
    end = oldest + hidden
    if end <= columns:
        return bytes(hidden).rjust(end, SEEN).ljust(columns, SEEN)
    return bytes(end - columns).ljust(oldest, SEEN).ljust(columns, b"\0")


def _old_columns(position: BatchedRotatingState) -> int:
    return min(position.active_length, position.max_size - 1)


def _block_pads(position: BatchedRotatingState) -> list[int]:
    dropped = position.active_length - _old_columns(position)
    return [max(0, pad - dropped) for pad in position.left_pad]


def _block_mask(position: BatchedRotatingState, tokens: int, window: int) -> mx.array:
    old = _old_columns(position)
    columns = mx.arange(old + tokens)
    queries = mx.arange(old, old + tokens)[:, None]
    mask = queries >= columns
    if old + tokens > window:
        mask = mask & (queries < columns + window)
    pads = _block_pads(position)
    if any(pads):
        mask = mask & (columns >= mx.array(pads, dtype=mx.int32)[:, None, None, None])
    return mx.broadcast_to(mask, (position.batch_size, 1, tokens, old + tokens))
