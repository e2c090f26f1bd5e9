"""Which columns of a ring are lent to query-only layers, and which of them belong to each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from impl.errors import RingError
from impl.rings.contents import both, temporal_planes

if TYPE_CHECKING:
    import mlx.core as mx

    from impl.rings.contents import RingContents
    from impl.rings.position import BatchedRotatingState
    from impl.rings.storage import P, RowStorage


@dataclass(frozen=True, slots=True)
class DonorSpan:
    """Temporal columns ``start`` to ``stop`` of a ring, and within them the tokens of each row.

    Row b stands at position ``offsets[b]``; its tokens are columns ``starts[b]`` to ``ends[b]``, from ``start`` on.
    """

    start: int
    stop: int
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DonorRows:
    """Keys and values ``[rows, kv_heads, columns, head_dim]`` lent by a ring, oldest column first.

    Row b stands at position ``offsets[b]``; its tokens are columns ``starts[b]`` to ``ends[b]``.
    """

    keys: mx.array
    values: mx.array
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def donor_span(position: BatchedRotatingState) -> DonorSpan:
    """Columns that a ring lends: the newest ``max_size``, or all of them in an open prefill.

    There a row that ended early has its tokens far from the last column, and rows lent one by one must all have
    the same width.
    """
    length = position.active_length
    start = 0 if position.has_pending_padding else max(0, length - position.max_size)
    rows = range(position.batch_size)
    ends = [max(0, position.end(row) - start) for row in rows]
    starts = (max(0, position.left_pad[row] - start, ends[row] - position.max_size) for row in rows)
    return DonorSpan(
        start,
        length,
        tuple(position.valid_offset(row) for row in rows),
        tuple(min(first, end) for first, end in zip(starts, ends, strict=True)),
        tuple(ends),
    )


def donor_planes(storage: RowStorage[P], contents: RingContents[P], span: DonorSpan) -> tuple[P, P]:
    """Keys and values of the span, which later updates of the ring do not change; raises RingError when empty."""
    planes = temporal_planes(storage, contents, span.start, span.stop)
    if planes is None:
        raise RingError("an empty ring has nothing to lend; prefill it first")
    return both(planes, storage.share)
