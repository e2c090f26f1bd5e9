"""Products of vectors with a trellis-coded matrix, in parts of rows as split kernels make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from impl.trellis.decode import decode
from impl.trellis.errors import TrellisFormatError, TrellisShapeError

if TYPE_CHECKING:
    from impl.trellis.layout import TrellisFormat


def split_rows(rows: int, splits: int) -> list[range]:
    """Return the rows of each split: ceil(rows / splits) a split, then the rest, then none.

    Raises TrellisFormatError when `splits` is less than 1.
    """
    if splits < 1:
        raise TrellisFormatError(f"splits={splits}; use 1 for a sum in one part")
    length = -(-rows // splits)
    return [range(min(split * length, rows), min((split + 1) * length, rows)) for split in range(splits)]


def partial_sums(codes: mx.array, scales: mx.array, x: mx.array, layout: TrellisFormat, splits: int = 1) -> mx.array:
    """Return the float32 sums [batch, splits, columns] of `x` [batch, rows] times the matrix, a split's rows each.

    A split without rows is zero. Raises TrellisShapeError when the arrays do not belong to the format.
    """
    if x.ndim != 2 or x.shape[1] != layout.rows or not mx.issubdtype(x.dtype, mx.floating):
        raise TrellisShapeError(f"x is {x.dtype} {list(x.shape)}; a float type and [batch, {layout.rows}] are needed")
    weights = decode(codes, scales, layout)
    columns = x.astype(mx.float32)[:, :, None]
    # Not a matrix product: some devices round its inputs to fewer bits, and then a one-hot x would not give the row.
    parts = [
        (columns[:, part.start : part.stop] * weights[part.start : part.stop]).sum(axis=1)
        for part in split_rows(layout.rows, splits)
    ]
    return mx.stack(parts, axis=1)


def reduce_partials(partials: mx.array) -> mx.array:
    """Add float32 sums [batch, splits, columns] over the splits, in ascending order, to [batch, columns]."""
    total = mx.zeros((partials.shape[0], partials.shape[2]), mx.float32)
    for split in range(partials.shape[1]):
        total = total + partials[:, split]
    return total


def gemv(codes: mx.array, scales: mx.array, x: mx.array, layout: TrellisFormat, splits: int = 1) -> mx.array:
    """Return x @ matrix, float32 [batch, columns], for `x` [batch, rows] of any float type.

    Raises TrellisShapeError when the arrays do not belong to the format, TrellisFormatError when `splits` is less
    than 1.
    """
    return reduce_partials(partial_sums(codes, scales, x, layout, splits))
