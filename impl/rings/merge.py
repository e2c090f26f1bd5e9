"""Rows of different rings in one batch, right-aligned: every row ends with the last column."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from impl.errors import MergeError
from impl.rings.contents import RingContents, both, settled, temporal_planes
from impl.rings.position import BatchedRotatingState
from impl.rings.storage import COLUMNS, ROWS, P, RowStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from impl.attention import Tensor


def merged_rows(
    storage: RowStorage[P], max_size: int, sources: Sequence[tuple[RowStorage[P], RingContents[P]]]
) -> RingContents[P]:
    """Contents of a batch with one row per solo source: its newest ``max_size`` tokens behind zero columns.

    How many tokens a source holds is asked of its columns: after a rollback it may hold one fewer than its offset
    promises. The sources stay as they are. Raises MergeError when they cannot share one batch.
    """
    if any(contents.position.batch_size != 1 for _, contents in sources):
        raise MergeError("a batch is not one row; extract its rows first, or use extend")
    _check_alike(storage, max_size, sources)
    lengths = [min(contents.position.stored(0), max_size) for _, contents in sources]
    width = max(lengths, default=0)
    position = BatchedRotatingState(
        max_size,
        tuple(max(0, contents.position.valid_offset(0)) for _, contents in sources),
        tuple(width - length for length in lengths),
        width,
        width,
    )
    model = next((contents.planes for _, contents in sources if contents.planes is not None), None)
    if model is None or not width:
        return RingContents(position)
    rows = []
    for (_, contents), length in zip(sources, lengths, strict=True):
        end = contents.position.end(0)
        newest = temporal_planes(storage, contents, end - length, end)
        rows.append(_right_aligned(storage, newest, model, rows=1, columns=width))
    return settled(storage, RingContents(position, _stacked(storage, rows)))


def extended(
    storage: RowStorage[P], first: RingContents[P], second: tuple[RowStorage[P], RingContents[P]]
) -> RingContents[P]:
    """Contents of one batch with the rows of two, both right-aligned; no row loses a column.

    Raises MergeError when they cannot share one batch, PendingPrefillError when a prefill is open in either.
    """
    _check_alike(storage, first.position.max_size, [(storage, first), second])
    batches = [first, second[1]]
    for batch in batches:
        batch.position.require_no_pending("extend")
    width = max(batch.position.active_length for batch in batches)
    pads = [width - batch.position.active_length for batch in batches]
    position = replace(
        first.position,
        offsets=first.position.offsets + second[1].position.offsets,
        left_pad=tuple(old + pad for batch, pad in zip(batches, pads, strict=True) for old in batch.position.left_pad),
        ring_index=width,
        total_offset=max(batch.position.total_offset for batch in batches),
        rotated=False,
    )
    model = first.planes or second[1].planes
    if model is None:
        return RingContents(position)
    parts = [
        _right_aligned(storage, temporal_planes(storage, batch), model, batch.position.batch_size, width)
        for batch in batches
        if batch.position.batch_size
    ]
    return settled(storage, RingContents(position, _stacked(storage, parts)))


def _right_aligned(
    storage: RowStorage[P], planes: tuple[P, P] | None, model: tuple[P, P], rows: int, columns: int
) -> tuple[P, P]:
    if planes is None:
        return both(model, lambda part: storage.zeros_like(part, rows, columns))
    pad = columns - storage.width(planes[0])
    return both(planes, lambda part: storage.pad_left(part, pad)) if pad else planes


def _stacked(storage: RowStorage[P], rows: Sequence[tuple[P, P]]) -> tuple[P, P]:
    if len(rows) == 1:
        return both(rows[0], storage.share)
    return storage.concatenate([keys for keys, _ in rows], ROWS), storage.concatenate([vals for _, vals in rows], ROWS)


def _check_alike(
    storage: RowStorage[P], max_size: int, sources: Sequence[tuple[RowStorage[P], RingContents[P]]]
) -> None:
    sizes = sorted({contents.position.max_size for _, contents in sources} | {max_size})
    if len(sizes) > 1:
        raise MergeError(f"rings of max_size {sizes} cannot share a batch; group them by max_size first")
    if any(other != storage for other, _ in sources):
        raise MergeError(
            f"rows stored as {[other for other, _ in sources]} cannot join {storage}; quantize alike first"
        )
    check_same_shape(contents.planes for _, contents in sources)


def check_same_shape(rows: Iterable[tuple[Tensor, Tensor] | None]) -> None:
    """Raise MergeError when rows differ in heads, head_dim or (decoded) type; None stands for a row without planes."""
    kinds = {
        tuple((part.shape[1], part.shape[COLUMNS + 1], str(part.dtype)) for part in planes)
        for planes in rows
        if planes is not None
    }
    if len(kinds) > 1:
        raise MergeError(
            f"rows of different (kv_heads, head_dim, dtype) {sorted(kinds)} cannot share a batch; convert them first"
        )
