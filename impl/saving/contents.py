"""What a ring holds, in a file: its position state, and the columns in use of its planes in physical order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.affine import BITS, FLOAT_DTYPES, GROUP_SIZES, WORD_BITS, AffinePlanes
from impl.rings.contents import RingContents, physical_planes
from impl.rings.position import UNBOUNDED, BatchedRotatingState
from impl.rings.storage import AffineStorage
from impl.saving.parts import MOST_TOKENS

if TYPE_CHECKING:
    from impl.rings.ring import RotatingRing
    from impl.saving.parts import Draft, Part

_LEAST = -MOST_TOKENS


def describe_ring(ring: RotatingRing[Any], draft: Draft) -> dict[str, Any]:
    """Describe position and storage; spare columns stay behind, since nobody may look at them."""
    position, planes = ring.contents.position, ring.contents.planes
    if planes is not None:
        columns = physical_planes(ring.storage, planes, position.active_length)
        for name, part in zip(("keys", "values"), columns, strict=True):
            _put(name, part, draft)
    storage = ring.storage
    return {
        "position": _describe_position(position),
        "storage": {"group_size": storage.group_size, "bits": storage.bits}
        if isinstance(storage, AffineStorage)
        else None,
    }


def read_ring(part: Part, rows: int | None = None) -> tuple[RingContents[Any], AffineStorage | None]:
    """Return contents and storage (None: plain); ``rows`` is how many there must be, if that is known."""
    storage = read_storage(part)
    position = _read_position(part.part("position"), rows)
    if not position.active_length:
        return RingContents(position), storage
    keys = _read_planes("keys", part, storage, position, None)
    return RingContents(position, (keys, _read_planes("values", part, storage, position, keys))), storage


def read_storage(part: Part) -> AffineStorage | None:
    """Return the affine storage that a part speaks of; None: plain."""
    if part.is_null("storage"):
        return None
    inner = part.part("storage")
    group_size, bits = read_format(inner)
    inner.close()
    return AffineStorage(group_size, bits)


def read_format(part: Part) -> tuple[int, int]:
    """Return group size and bits."""
    group_size, bits = part.integer("group_size"), part.integer("bits")
    if group_size not in GROUP_SIZES or bits not in BITS:
        raise part.wrong(f"no affine format has group_size {group_size} and {bits} bits")
    return group_size, bits


def describe_size(max_size: int) -> int | None:
    """Return the number of columns that a wrapped ring keeps; None: nothing ever leaves it."""
    return None if max_size == UNBOUNDED else max_size


def read_size(part: Part) -> int:
    """Return max_size."""
    return UNBOUNDED if part.is_null("max_size") else part.integer("max_size", 1, UNBOUNDED)


def _describe_position(position: BatchedRotatingState) -> dict[str, Any]:
    return {
        "max_size": describe_size(position.max_size),
        "offsets": position.offsets,
        "left_pad": position.left_pad,
        "ring_index": position.ring_index,
        "total_offset": position.total_offset,
        "rotated": position.rotated,
        "prefill_ends": position.prefill_ends,
    }


def _read_position(part: Part, rows: int | None) -> BatchedRotatingState:
    """Return a position state that some program of calls could have led to, as far as counters can tell."""
    rows = part.length("offsets") if rows is None else rows
    position = BatchedRotatingState(
        read_size(part),
        part.integers("offsets", rows, _LEAST),
        part.integers("left_pad", rows),
        part.integer("ring_index"),
        part.integer("total_offset"),
        part.flag("rotated"),
        None if part.is_null("prefill_ends") else part.integers("prefill_ends", rows, _LEAST),
    )
    part.close()
    length = position.active_length
    if position.rotated and position.ring_index > position.max_size:
        raise part.wrong(f"ring_index {position.ring_index} lies outside a rotated buffer of {position.max_size}")
    if length > position.total_offset:
        raise part.wrong(f"{length} columns are in use, and only {position.total_offset} were ever written")
    if not rows and (length or position.has_pending_padding):
        raise part.wrong("a batch without rows has no columns and no prefill")
    for row, (offset, pad) in enumerate(zip(position.offsets, position.left_pad, strict=True)):
        if pad > length + max(0, -offset):
            raise part.wrong(f"row {row} has {pad} columns of padding, and {length} columns are in use")
        if position.stored(row) > max(0, position.valid_offset(row)):
            seen = max(0, position.valid_offset(row))
            raise part.wrong(f"row {row} holds {position.stored(row)} tokens, and has only seen {seen}")
    return position


def _put(name: str, planes: mx.array | AffinePlanes, draft: Draft) -> None:
    if isinstance(planes, mx.array):
        draft.put(name, planes)
        return
    for plane, array in zip(("packed", "scales", "biases"), planes.parts, strict=True):
        draft.put(f"{name}.{plane}", array)


def _read_planes(
    name: str, part: Part, storage: AffineStorage | None, position: BatchedRotatingState, like: Any
) -> mx.array | AffinePlanes:
    """Return keys or values ``[rows, kv_heads, columns, head_dim]``; values have the heads of the keys, ``like``."""
    heads = None if like is None else like.shape[1]
    lead = (position.batch_size, heads, position.active_length)
    if storage is None:
        return part.tensor(name, FLOAT_DTYPES, (*lead, None))
    scales = part.tensor(f"{name}.scales", FLOAT_DTYPES, (*lead, None))
    groups = scales.shape[-1]
    words = groups * storage.group_size * storage.bits // WORD_BITS
    return AffinePlanes(
        part.tensor(f"{name}.packed", [mx.uint32], (*scales.shape[:3], words)),
        scales,
        part.tensor(f"{name}.biases", [scales.dtype], scales.shape),
        storage.group_size,
        storage.bits,
    )
