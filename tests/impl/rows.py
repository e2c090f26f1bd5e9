"""Rows for tests: rings fed with numbered tokens, and what they hold as token numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.affine import AffinePlanes
from impl.rings.aligned import AlignedRotatingCache
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.transitioning import TransitioningKvRows
from tests.impl.token_table import GROUP, columns_of, table

if TYPE_CHECKING:
    from collections.abc import Sequence

BITS = 4


def feed(ring: Any, *ids: Sequence[int], dtype: mx.Dtype = mx.float32) -> Any:
    """Update with the tokens of each row, and give the ring back."""
    ring.update_and_fetch(*table(dtype, None).block(ids))
    return ring


def solo(max_size: int, *blocks: Sequence[int], bits: int | None = None, dtype: mx.Dtype = mx.float32) -> Any:
    """Make a solo ring fed with blocks."""
    ring: Any = RotatingKVCache(max_size) if bits is None else RotatingQuantizedKVCache(max_size, GROUP, bits)
    for ids in blocks:
        feed(ring, ids, dtype=dtype)
    return ring


def one_by_one(max_size: int, ids: Sequence[int], bits: int | None = None) -> Any:
    """Make a solo ring fed token by token."""
    return solo(max_size, *[[token] for token in ids], bits=bits)


def four(bits: int | None = None) -> list[Any]:
    """Make a wrapped row, a row of two tokens, an empty one and one of a single block of nine; window 4."""
    return [
        one_by_one(4, range(1, 7), bits),
        solo(4, [101, 102], bits=bits),
        solo(4, bits=bits),
        solo(4, range(201, 210), bits=bits),
    ]


def columns(ring: Any, dtype: mx.Dtype = mx.float32) -> list[list[int]]:
    """Token ids ``[rows][temporal columns]``; -1 for padding and for whatever is not stored bit for bit."""
    view = ring.temporal_view()
    if view is None:
        return []
    bits = view[0].bits if isinstance(view[0], AffinePlanes) else None
    return table(dtype, bits).read(*view)


def held(row: Any, dtype: mx.Dtype = mx.float32) -> list[int]:
    """Columns of a solo ring or an aligned row."""
    rows = columns(row.inner if isinstance(row, AlignedRotatingCache) else row, dtype)
    return rows[0] if rows else []


def snapshot(row: Any) -> tuple[object, ...]:
    """Everything that an operation on a solo ring or an aligned row could change."""
    kind = type(row.inner if isinstance(row, AlignedRotatingCache) else row).__name__
    return row.position, row.minimum_reusable_offset, kind, [columns_of(array) for array in row.state()]


def group(
    *sources: Any, crossings: Sequence[int] | None = None, default: int = 4, max_size: int = 4
) -> TransitioningKvRows:
    """Make a group of these rows."""
    rows = TransitioningKvRows(max_size, GROUP, BITS, crossing_tokens=default)
    rows.merge_rows(sources, crossings)
    return rows


def affine_rows(rows: TransitioningKvRows) -> list[bool]:
    """Tell which rows are affine."""
    if rows.packed is not None:
        return [True] * (rows.batch_size or 0)
    return [row.affine_conversion is None for row in rows.rows]


def group_snapshot(rows: TransitioningKvRows) -> tuple[object, ...]:
    """Everything that an operation on a group could change."""
    rope = rows.rope_offset_arr
    return (
        rows.position,
        rows.row_crossing_tokens,
        rows.minimum_reusable_offsets,
        rows.round_offsets,
        None if rope is None else rope.tolist(),
        affine_rows(rows),
        [columns_of(array) for array in rows.state()],
    )
