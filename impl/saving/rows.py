"""Rows that are stored apart or packed, in files: aligned rows, groups of them, layouts, rows that become affine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from impl.errors import AffineError, MergeError, RingShapeError
from impl.rings.aligned import AlignedRotatingCache
from impl.rings.batched import BatchedRotatingQuantCache
from impl.rings.group import AlignedGroup
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.transitioning import TransitioningKvRows
from impl.saving.contents import describe_ring, describe_size, read_format, read_size
from impl.saving.rings import describe_batched, read_batched, read_round

if TYPE_CHECKING:
    from impl.saving.parts import Draft, Part

LayoutT = TypeVar("LayoutT", bound=RotatingAffineLayout)


def describe_aligned(row: AlignedRotatingCache, draft: Draft) -> dict[str, Any]:
    """Describe one row in the columns of its group."""
    return {
        "ring": describe_batched(row.inner, draft.part("ring")),
        "minimum_reusable_offset": row.minimum_reusable_offset,
    }


def read_aligned(part: Part) -> AlignedRotatingCache:
    """Return one row in the columns of its group."""
    inner = part.part("ring")
    ring = read_batched(inner)
    inner.close()
    try:
        return AlignedRotatingCache(ring, part.integer("minimum_reusable_offset"))
    except RingShapeError as error:
        raise part.wrong(error) from None


def describe_group(group: AlignedGroup, draft: Draft) -> dict[str, Any]:
    """Describe rows that take every step together, apart or packed."""
    packed = group.packed
    return {
        "max_size": describe_size(group.position.max_size),
        "rows": [describe_aligned(row, draft.part(f"rows.{index}")) for index, row in enumerate(group.rows)],
        "packed": None if packed is None else describe_layout(packed, draft.part("packed")),
    }


def read_group(part: Part) -> AlignedGroup:
    """Return rows that take every step together."""
    max_size, rows = read_size(part), []
    for item in part.parts("rows"):
        rows.append(read_aligned(item))
        item.close()
    packed = None
    if not part.is_null("packed"):
        inner = part.part("packed")
        packed = _layout(inner, SpeculativeRotatingAffineLayout)
        inner.close()
        if rows or packed.max_size != max_size:
            raise part.wrong("packed rows stand alone, and in a layout of the group's max_size")
    try:
        return AlignedGroup(max_size, rows, packed)
    except MergeError as error:
        raise part.wrong(error) from None


def describe_layout(layout: RotatingAffineLayout, draft: Draft) -> dict[str, Any]:
    """Describe rows packed in one affine ring."""
    return {
        "ring": describe_ring(layout._ring, draft.part("ring")),  # noqa: SLF001 -- also without rows, when it is not lent
        "minimum_reusable_offsets": layout.minimum_reusable_offsets,
        "round": layout.round_offsets,
    }


def read_layout(part: Part) -> RotatingAffineLayout:
    """Return rows packed in one affine ring."""
    return _layout(part, RotatingAffineLayout)


def read_speculative_layout(part: Part) -> SpeculativeRotatingAffineLayout:
    """Return rows packed in one affine ring, for verified drafts."""
    return _layout(part, SpeculativeRotatingAffineLayout)


def _layout(part: Part, kind: type[LayoutT]) -> LayoutT:
    inner = part.part("ring")
    ring = read_batched(inner)
    inner.close()
    if not isinstance(ring, BatchedRotatingQuantCache):
        raise part.wrong("the rows of a layout are affine")
    layout = kind(ring.max_size, ring.group_size, ring.bits)
    # Our own layout, not yet seen by anybody.
    layout._ring = ring  # noqa: SLF001
    layout._minimum = part.integers("minimum_reusable_offsets", ring.batch_size)  # noqa: SLF001
    layout._before = read_round(part, ring.position)  # noqa: SLF001
    return layout


def describe_transitioning(rows: TransitioningKvRows, draft: Draft) -> dict[str, Any]:
    """Describe rows that become affine one by one."""
    return {
        "group_size": rows.group_size,
        "bits": rows.bits,
        "crossing_tokens": rows.crossing_tokens,
        "row_crossing_tokens": rows.row_crossing_tokens,
        "round": rows.round_offsets,
        "group": describe_group(rows._group, draft.part("group")),  # noqa: SLF001 -- lent in pieces only
    }


def read_transitioning(part: Part) -> TransitioningKvRows:
    """Return rows that become affine one by one, each as far as it was."""
    inner = part.part("group")
    group = read_group(inner)
    inner.close()
    position, packed = group.position, group.packed
    group_size, bits = read_format(part)
    rows = TransitioningKvRows(position.max_size, group_size, bits, crossing_tokens=part.integer("crossing_tokens"))
    crossings = part.integers("row_crossing_tokens", position.batch_size)
    before = read_round(part, position)
    try:
        group.require_convertible(group_size, bits)
    except (MergeError, AffineError) as error:
        raise part.wrong(error) from None
    if packed is not None and (packed.group_size, packed.bits, packed.round_offsets) != (group_size, bits, before):
        raise part.wrong("the packed rows have another group_size, bits or round than the group")
    # Our own rows, not yet seen by anybody.
    rows._group, rows._crossings, rows._before = group, crossings, before  # noqa: SLF001
    for index, row in enumerate(rows.rows):
        committed = rows.committed_offsets[index]
        if row.affine_conversion is not None and committed >= crossings[index]:
            raise part.wrong(f"row {index} has {committed} tokens, is plain, and had to cross at {crossings[index]}")
    return rows
