"""Rings in files: solo, batched, and with an open speculative round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from impl.errors import RingShapeError
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.saving.contents import describe_ring, read_ring
from impl.saving.parts import MOST_TOKENS

if TYPE_CHECKING:
    from impl.rings.contents import RingContents
    from impl.rings.position import BatchedRotatingState
    from impl.saving.parts import Draft, Part

    Solo = RotatingKVCache | RotatingQuantizedKVCache
    Batched = BatchedRotatingCache | BatchedRotatingQuantCache


def describe_solo(ring: Solo, draft: Draft) -> dict[str, Any]:
    """Describe a ring of one request."""
    return {**describe_ring(ring, draft), "minimum_reusable_offset": ring.minimum_reusable_offset}


def read_solo(part: Part) -> Solo:
    """Return a ring of one request."""
    contents, storage = read_ring(part, rows=1)
    position = contents.position
    ring: Any = (
        RotatingKVCache(position.max_size)
        if storage is None
        else RotatingQuantizedKVCache(position.max_size, storage.group_size, storage.bits)
    )
    ring.minimum_reusable_offset = part.integer("minimum_reusable_offset")
    try:
        ring.restore_state(*(contents.planes or (None, None)), position.offsets[0], position.ring_index)
    except RingShapeError as error:
        raise part.wrong(error) from None
    # Offset and cursor say it all, but for a cursor at the end of a full buffer: before a wrap, or after one.
    told = ring.position
    if position.rotated and position.ring_index == position.max_size:
        told = replace(told, rotated=True)
    if told != position:
        raise part.wrong(f"{position} is no position of a ring of one request")
    solo: Solo = ring.with_contents(contents)
    return solo


def describe_batched(ring: Batched, draft: Draft) -> dict[str, Any]:
    """Describe a ring of several requests."""
    return describe_ring(ring, draft)


def read_batched(part: Part) -> Batched:
    """Return a ring of several requests."""
    contents, storage = read_ring(part)
    max_size = contents.position.max_size
    ring: Any = (
        BatchedRotatingCache(max_size)
        if storage is None
        else BatchedRotatingQuantCache(max_size, storage.group_size, storage.bits)
    )
    _restore(ring, contents, part)
    batched: Batched = ring
    return batched


def describe_speculative(ring: SpeculativeRotatingKVCache, draft: Draft) -> dict[str, Any]:
    """Describe a ring of several requests with its open round."""
    return {**describe_ring(ring, draft), "round": ring.round_offsets}


def read_speculative(part: Part) -> SpeculativeRotatingKVCache:
    """Return a ring of several requests, in its open round."""
    contents, storage = read_ring(part)
    if storage is not None:
        raise part.wrong("a speculative ring is plain")
    ring = SpeculativeRotatingKVCache(contents.position.max_size)
    _restore(ring, contents, part)
    ring._before = read_round(part, contents.position)  # noqa: SLF001 -- our own ring, not yet seen by anybody
    return ring


def read_round(part: Part, position: BatchedRotatingState) -> tuple[int, ...] | None:
    """Return where each row stood when the open round began; None: no round is open."""
    if part.is_null("round"):
        return None
    if position.has_pending_padding:
        raise part.wrong("a round and a padded prefill can't both be open")
    return part.integers("round", position.batch_size, -MOST_TOKENS)


def _restore(ring: Any, contents: RingContents[Any], part: Part) -> None:
    try:
        ring.restore_state(*(contents.planes or (None, None)), contents.position)
    except RingShapeError as error:
        raise part.wrong(error) from None
