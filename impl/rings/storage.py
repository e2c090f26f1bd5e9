"""How rings store rows of tokens: one interface, plain arrays or affine planes behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import mlx.core as mx

from impl import affine
from impl.affine import AffinePlanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = TypeVar("P", bound=mx.array | AffinePlanes)

ROWS: Final = 0
COLUMNS: Final = 2


class RowStorage(Protocol[P]):
    """Operations on planes ``[rows, kv_heads, columns, head_dim]``.

    Every operation gives new planes and leaves its operands as they were; none changes a stored token. The first
    ones are the codec's own, those from ``share`` on follow from them.
    """

    def holds(self, planes: object) -> bool:
        """Whether planes are in this stored form."""
        ...

    def encode(self, block: mx.array) -> P:
        """Bring an incoming block into stored form, as an object of its own."""
        ...

    def arrays(self, planes: P) -> list[mx.array]:
        """List the arrays of the stored form."""
        ...

    def each(self, planes: P, change: Callable[[mx.array], mx.array]) -> P:
        """Apply one change of rows or columns to every array of the stored form."""
        ...

    def concatenate(self, parts: Sequence[P], axis: int) -> P:
        """Join planes along rows (0) or columns (2)."""
        ...

    def write_column(self, planes: P, column: int, token: P) -> P:
        """Replace one physical column; no copy is made if nobody else holds the old planes at evaluation."""
        ...

    def share(self, planes: P) -> P:
        """Give the same data as another object, without a copy."""
        return self.each(planes, _share)

    def columns(self, planes: P, start: int, stop: int) -> P:
        """Borrow the physical columns ``start`` to ``stop``."""
        return self.each(planes, lambda plane: plane[:, :, start:stop])

    def take_rows(self, planes: P, rows: Sequence[int]) -> P:
        """Take the given rows, in the given order."""
        if len(rows) == 1:
            return self.each(planes, lambda plane: plane[rows[0] : rows[0] + 1])
        index = mx.array(list(rows), dtype=mx.int32)
        return self.each(planes, lambda plane: mx.take(plane, index, axis=ROWS))

    def pad_left(self, planes: P, columns: int) -> P:
        """Put ``columns`` zero columns before the first; zeros decode to zeros in every stored form."""
        return self.each(planes, lambda plane: mx.pad(plane, [(0, 0), (0, 0), (columns, 0), (0, 0)]))

    def grow(self, planes: P, columns: int) -> P:
        """Put ``columns`` spare zero columns behind the last."""
        return self.each(planes, lambda plane: mx.pad(plane, [(0, 0), (0, 0), (0, columns), (0, 0)]))

    def zeros_like(self, planes: P, rows: int, columns: int) -> P:
        """Make zero columns with the heads, head_dim and type of ``planes``."""
        return self.each(
            planes, lambda plane: mx.zeros((rows, plane.shape[1], columns, plane.shape[3]), dtype=plane.dtype)
        )

    def roll_rows(self, planes: P, shifts: Sequence[int]) -> P:
        """Move row b right by ``shifts[b]`` columns, cyclically, over the whole buffer."""
        return self.each(planes, lambda plane: _roll_rows(plane, shifts))

    def copy(self, planes: P) -> P:
        """Free the planes of the larger buffer they may have been cut from."""
        return self.each(planes, mx.contiguous)

    def width(self, planes: P) -> int:
        """Columns of the buffer, spare ones included."""
        return int(planes.shape[COLUMNS])

    def nbytes(self, planes: P) -> int:
        """Bytes of the stored form."""
        return sum(array.nbytes for array in self.arrays(planes))

    def settle(self, *planes: P) -> None:
        """Compute the planes now: MLX allocates at evaluation, so this is where running out of memory shows."""
        mx.eval([self.arrays(part) for part in planes])


@dataclass(frozen=True, slots=True)
class PlainStorage(RowStorage[mx.array]):
    """Tokens stored as they come."""

    def holds(self, planes: object) -> bool:
        """Whether planes are a plain array."""
        return isinstance(planes, mx.array)

    def encode(self, block: mx.array) -> mx.array:
        """Share the caller's data; later writes rebind our object, never the caller's."""
        return _share(block)

    def arrays(self, planes: mx.array) -> list[mx.array]:
        """List the one array."""
        return [planes]

    def each(self, planes: mx.array, change: Callable[[mx.array], mx.array]) -> mx.array:
        """Apply the change."""
        return change(planes)

    def concatenate(self, parts: Sequence[mx.array], axis: int) -> mx.array:
        """Join arrays along rows (0) or columns (2)."""
        return mx.concatenate(list(parts), axis=axis)

    def columns(self, planes: mx.array, start: int, stop: int) -> mx.array:
        """Borrow physical columns; every decoded token does so twice, too often for a detour over ``each``."""
        return planes[:, :, start:stop]

    def write_column(self, planes: mx.array, column: int, token: mx.array) -> mx.array:
        """Replace one physical column."""
        return _write_column(planes, column, token)


@dataclass(frozen=True, slots=True)
class AffineStorage(RowStorage[AffinePlanes]):
    """Tokens quantized once, when they come, and moved as they are from then on."""

    group_size: int
    bits: int

    def __post_init__(self) -> None:
        affine.check_format(self.group_size, self.bits)

    def holds(self, planes: object) -> bool:
        """Whether planes are affine with this group size and number of bits."""
        return isinstance(planes, AffinePlanes) and (planes.group_size, planes.bits) == (self.group_size, self.bits)

    def encode(self, block: mx.array) -> AffinePlanes:
        """Quantize; raises AffineError when head_dim is not a multiple of the group size."""
        return affine.quantize(block, self.group_size, self.bits)

    def arrays(self, planes: AffinePlanes) -> list[mx.array]:
        """List packed words, scales and biases."""
        return list(planes.parts)

    def each(self, planes: AffinePlanes, change: Callable[[mx.array], mx.array]) -> AffinePlanes:
        """Apply the change to packed words, scales and biases alike."""
        return planes.map(change)

    def concatenate(self, parts: Sequence[AffinePlanes], axis: int) -> AffinePlanes:
        """Join planes along rows (0) or columns (2)."""
        return affine.concatenate(parts, axis)

    def write_column(self, planes: AffinePlanes, column: int, token: AffinePlanes) -> AffinePlanes:
        """Replace one physical column of the three planes."""
        packed, scales, biases = (
            _write_column(plane, column, part) for plane, part in zip(planes.parts, token.parts, strict=True)
        )
        return AffinePlanes(packed, scales, biases, self.group_size, self.bits)


def _share(plane: mx.array) -> mx.array:
    # Indexing with an ellipsis makes another array object over the same data. Item assignment rebinds the one
    # object it is applied to, so neither side sees the other's writes.
    return plane[...]


def _write_column(plane: mx.array, column: int, token: mx.array) -> mx.array:
    written = _share(plane)
    written[:, :, column : column + 1] = token
    return written


def _roll_rows(plane: mx.array, shifts: Sequence[int]) -> mx.array:
    # Long runs copied row by row: a gather with one index per column takes about three times as long.
    length = plane.shape[COLUMNS]
    rows = []
    for row, shift in enumerate(shifts):
        part, split = plane[row : row + 1], length - shift % length
        rows.append(part if split == length else mx.concatenate([part[:, :, split:], part[:, :, :split]], axis=COLUMNS))
    return mx.concatenate(rows, axis=ROWS)
