"""Columns of a ring lent to query-only layers, which columns of them belong to each row, and attention over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import mlx.core as mx

from impl.affine import AffinePlanes, dequantize
from impl.attention import AttentionView, Tensor, range_mask
from impl.errors import MergeError, RingError, RingShapeError
from impl.rings.contents import both, temporal_planes
from impl.rings.storage import P

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.rings.contents import RingContents
    from impl.rings.position import BatchedRotatingState
    from impl.rings.ring import RotatingRing
    from impl.rings.storage import RowStorage


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
class DonorRows(Generic[P]):
    """Keys and values ``[rows, kv_heads, columns, head_dim]`` lent by a ring, oldest column first, stored as there.

    Row b stands at position ``offsets[b]``; its tokens are columns ``starts[b]`` to ``ends[b]``.
    """

    keys: P
    values: P
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DonorAttention:
    """Rows lent by one ring, or by several joined, for layers that bring queries only.

    ``offsets``, ``starts`` and ``ends`` are those of DonorRows. While a donor lives, the next token of its ring is
    written into a copy of the buffer, so let go of it before the ring goes on.
    """

    view: AttentionView
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of the rectangle that all rows share."""
        return self.view.width

    @property
    def dtype(self) -> mx.Dtype:
        """Type of keys and values, decoded."""
        return self.view.dtype

    def window_starts(self, window: int | None = None) -> tuple[int, ...]:
        """First column that a layer of this window sees, per row; None means all that is lent.

        Raises RingShapeError for a window below 1.
        """
        if window is None:
            return self.starts
        if window < 1:
            raise RingShapeError(f"window={window}; a query-only layer sees at least one token, so use 1 or more")
        return tuple(max(start, end - window) for start, end in zip(self.starts, self.ends, strict=True))

    def mask(self, window: int | None = None) -> mx.array | None:
        """Boolean ``[rows, 1, 1, width]``, None when every row sees the whole rectangle.

        All queries of a row see the same columns, at whatever draft position: a draft stores nothing.
        """
        return range_mask(self.window_starts(window), self.ends, self.width)

    def attend(
        self,
        queries: mx.array,
        scale: float,
        window: int | None = None,
        *,
        mask: mx.array | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Attention of queries ``[rows, query_heads, tokens, head_dim]`` over the newest ``window`` tokens lent.

        ``mask``, boolean ``[rows or 1, 1, tokens or 1, width]``, hides more of them. Affine rows are not decoded.
        Raises AttentionError when shapes do not belong together, RingShapeError for a window below 1.
        """
        lent = self.mask(window)
        both_masks = lent if mask is None else mask if lent is None else mx.logical_and(lent, mask)
        return self.view.attend(queries, scale, both_masks, sinks)

    def decoded(self) -> DonorAttention:
        """Give the same rows in plain storage, for layers that take arrays."""
        parts = tuple((_plain(keys), _plain(values)) for keys, values in self.view.parts)
        return DonorAttention(AttentionView(parts), self.offsets, self.starts, self.ends)


def capture_rotating_donor_attention(ring: RotatingRing[Any]) -> DonorAttention:
    """Lend the columns of a solo or batched ring, plain or affine; later operations of the ring do not change them.

    Tokens of an open speculative round are included. Raises RingError when nothing is held.
    """
    rows = capture_donor_rows(ring)
    return DonorAttention(AttentionView(((rows.keys, rows.values),)), rows.offsets, rows.starts, rows.ends)


def capture_donor_rows(ring: RotatingRing[P]) -> DonorRows[P]:
    """Lend the planes of a ring as stored; see capture_rotating_donor_attention."""
    span = donor_span(ring.position)
    keys, values = donor_planes(ring.storage, ring.contents, span)
    return DonorRows(keys, values, span.offsets, span.starts, span.ends)


def join_donors(donors: Sequence[DonorAttention]) -> DonorAttention:
    """Join the rows of donors captured one by one, in order; each row is attended in its own precision.

    Raises MergeError without donors, or when they differ in width, heads, head_dim or type: then they were not
    captured from aligned rows at one moment.
    """
    if not donors:
        raise MergeError("nothing to join; capture at least one row")
    parts = tuple(part for donor in donors for part in donor.view.parts)
    kinds = sorted({tuple((*plane.shape[1:], str(plane.dtype)) for plane in part) for part in parts})
    if len(kinds) != 1:
        raise MergeError(
            f"donors of (kv_heads, columns, head_dim, dtype) {kinds} cannot be joined; capture aligned rows together"
        )
    return DonorAttention(
        AttentionView(parts),
        tuple(offset for donor in donors for offset in donor.offsets),
        tuple(start for donor in donors for start in donor.starts),
        tuple(end for donor in donors for end in donor.ends),
    )


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


def _plain(planes: Tensor) -> mx.array:
    return dequantize(planes) if isinstance(planes, AffinePlanes) else planes
