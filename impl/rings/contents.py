"""What a ring holds, and the changes of it, as functions that make new contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from impl.errors import RingShapeError
from impl.rings.position import BatchedRotatingState, check_rows
from impl.rings.storage import COLUMNS, AffineStorage, P, RowStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from impl.affine import AffinePlanes


@dataclass(frozen=True, slots=True)
class RingContents(Generic[P]):
    """Position state with the key and value planes that belong to it; planes are None iff no column is in use."""

    position: BatchedRotatingState
    planes: tuple[P, P] | None = None


def both(planes: tuple[P, P], change: Callable[[P], P]) -> tuple[P, P]:
    """Apply one change to keys and values."""
    return change(planes[0]), change(planes[1])


def physical_planes(storage: RowStorage[P], planes: tuple[P, P], columns: int) -> tuple[P, P]:
    """Keys and values in physical order without spare columns, as objects of their own."""
    keys, values = planes
    if columns == storage.width(keys):
        return storage.share(keys), storage.share(values)
    return storage.columns(keys, 0, columns), storage.columns(values, 0, columns)


def temporal_planes(
    storage: RowStorage[P], contents: RingContents[P], start: int = 0, stop: int | None = None
) -> tuple[P, P] | None:
    """Keys and values of the columns ``start`` to ``stop``, oldest first; None when there are none."""
    position = contents.position
    pieces = position.physical_ranges(start, position.active_length if stop is None else stop)
    if contents.planes is None or not pieces:
        return None
    return both(contents.planes, lambda part: _join(storage, [storage.columns(part, *piece) for piece in pieces]))


def append_block(storage: RowStorage[P], before: RingContents[P], block: tuple[P, P]) -> RingContents[P]:
    """Contents after a block of any length: the newest ``max_size - 1`` columns, then the block, in temporal order.

    In an open prefill, rows whose input ended earlier first move right over their padding, so that the padding is
    what leaves the ring and not their tokens.
    """
    position, planes = before.position, before.planes
    shifts = position.padding_rolls() if position.has_pending_padding else ()
    if any(shifts):
        position = position.rolled(shifts)
        planes = None if planes is None else both(planes, lambda part: storage.roll_rows(part, shifts))
    old = min(position.active_length, position.max_size - 1)
    pieces = position.physical_ranges(position.active_length - old, position.active_length)
    after = position.kept_newest(old).appended(block[0].shape[COLUMNS])
    if planes is None or not pieces:
        return RingContents(after, block)

    def behind(old_planes: P, new: P) -> P:
        return _join(storage, [*(storage.columns(old_planes, *piece) for piece in pieces), new])

    return RingContents(after, (behind(planes[0], block[0]), behind(planes[1], block[1])))


def write_token(
    storage: RowStorage[P], before: RingContents[P], token: tuple[P, P], growth_columns: Callable[[], int]
) -> RingContents[P]:
    """Contents after one token per row, written in place; a full buffer first grows by ``growth_columns()``."""
    position, planes = before.position, before.planes
    if position.active_length > position.max_size:
        # The queries of a block needed more than max_size columns; the next token does not.
        planes = temporal_planes(storage, before, position.active_length - position.max_size)
        position = position.kept_newest(position.max_size)
    if planes is None:
        # Two buffers: keys and values must never be one object, not even while both are zeros.
        columns = growth_columns()
        planes = both(token, lambda part: storage.zeros_like(part, position.batch_size, columns))
    elif position.ring_index < position.max_size and position.ring_index == storage.width(planes[0]):
        columns = growth_columns()
        planes = both(planes, lambda part: storage.grow(part, columns))
    after = position.stepped()
    column = after.ring_index - 1
    keys = storage.write_column(planes[0], column, token[0])
    return RingContents(after, (keys, storage.write_column(planes[1], column, token[1])))


def cut_newest(storage: RowStorage[P], before: RingContents[P], tokens: int) -> RingContents[P]:
    """Contents without the newest ``tokens`` columns, physically cut: counters alone would let them reappear."""
    after = before.position.trimmed(tokens)
    return settled(storage, RingContents(after, temporal_planes(storage, before, 0, after.active_length)))


def roll_rows(
    storage: RowStorage[P], before: RingContents[P], shifts: Sequence[int], after: BatchedRotatingState
) -> RingContents[P]:
    """Contents with row b moved right by ``shifts[b]`` over the whole physical buffer.

    A cyclic move commutes with the rotation of the ring and with spare columns, so the order stays as it is.
    """
    if before.planes is None or not any(shifts):
        return RingContents(after, before.planes)
    return settled(storage, RingContents(after, both(before.planes, lambda part: storage.roll_rows(part, shifts))))


def take_rows(storage: RowStorage[P], before: RingContents[P], rows: Sequence[int]) -> RingContents[P]:
    """Contents of the given rows, in the given order."""
    after = before.position.taking(rows)
    if before.planes is None or not rows:
        return RingContents(after)
    return settled(storage, RingContents(after, both(before.planes, lambda part: storage.take_rows(part, rows))))


def row_contents(
    storage: RowStorage[P], contents: RingContents[P], row: int, limit: int | None = None
) -> RingContents[P]:
    """Contents of a solo ring with the newest ``limit`` tokens of one row (all, when None), in memory of its own.

    Padding stays behind. Raises RowIndexError for a row outside the batch, RingShapeError for a limit below 1.
    """
    position = contents.position
    check_rows([row], position.batch_size)
    if limit is not None and limit < 1:
        raise RingShapeError(f"limit={limit}; keep at least 1 token, or make a new ring")
    stored = position.stored(row)
    length = stored if limit is None else min(stored, limit)
    offset, end = max(0, position.valid_offset(row)), position.end(row)
    after = BatchedRotatingState(position.max_size, (offset,), (0,), length, offset)
    if contents.planes is None or not length:
        return RingContents(after)
    one_row = RingContents(position, both(contents.planes, lambda part: storage.take_rows(part, [row])))
    planes = temporal_planes(storage, one_row, end - length, end)
    return settled(storage, RingContents(after, None if planes is None else both(planes, storage.copy)))


def quantized_contents(storage: AffineStorage, contents: RingContents[mx.array]) -> RingContents[AffinePlanes]:
    """Contents with every stored column quantized where it lies; the position state stays.

    Groups run along head_dim, so a token gets the bits it would have got when it came.
    """
    if contents.planes is None:
        return RingContents(contents.position)
    keys, values = contents.planes
    return settled(storage, RingContents(contents.position, (storage.encode(keys), storage.encode(values))))


def checked_planes(storage: RowStorage[P], keys: P | None, values: P | None, rows: int) -> tuple[P, P] | None:
    """Foreign planes as objects of our own; raises RingShapeError when they are no keys and values of one ring."""
    if keys is None and values is None:
        return None
    if keys is None or values is None:
        raise RingShapeError("keys without values, or values without keys; give both or neither")
    if not (storage.holds(keys) and storage.holds(values)):
        raise RingShapeError(f"keys and values must be stored as {storage}; convert them first")
    if keys.ndim != 4 or keys.shape[0] != rows or values.shape[:3] != keys.shape[:3]:
        raise RingShapeError(
            f"keys {keys.shape} and values {values.shape} for {rows} rows; both must be "
            "[rows, kv_heads, columns, head_dim], alike but for head_dim"
        )
    return storage.share(keys), storage.share(values)


def settled(storage: RowStorage[P], contents: RingContents[P]) -> RingContents[P]:
    """Compute the planes before they are taken over: MLX allocates at evaluation, and a failure must come here."""
    if contents.planes is not None:
        storage.settle(*contents.planes)
    return contents


def _join(storage: RowStorage[P], parts: list[P]) -> P:
    return parts[0] if len(parts) == 1 else storage.concatenate(parts, COLUMNS)
