"""MLX arrays and addresses: kernels read and write MLX's own memory, without a copy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import mlx.core as mx
import numpy as np

from impl.metal.errors import TracedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NUMPY_TYPES: dict[mx.Dtype, Any] = {
    mx.bool_: np.bool_,
    mx.int8: np.int8,
    mx.uint8: np.uint8,
    mx.int16: np.int16,
    mx.uint16: np.uint16,
    mx.int32: np.int32,
    mx.uint32: np.uint32,
    mx.int64: np.int64,
    mx.uint64: np.uint64,
    mx.float16: np.float16,
    mx.float32: np.float32,
    mx.bfloat16: ml_dtypes.bfloat16,
    mx.complex64: np.complex64,
}
# What an output holds where the kernel wrote nothing: NaN for floats, true, and a pattern that stands out in integers.
_POISON = {mx.float16: 0xFF, mx.bfloat16: 0xFF, mx.float32: 0xFF, mx.complex64: 0xFF, mx.bool_: 1}
_INTEGER_POISON = 0xAA


@dataclass(frozen=True)
class Memory:
    """An evaluated array: its address, its strides in elements, and what keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: NDArray[np.generic]


def memory(array: mx.array) -> Memory:
    """Evaluate `array` and return where it lies.

    Raises TracedError inside mx.compile or mx.vmap, where arrays have no values.
    """
    try:
        # NumPy has no bfloat16; the bits are the same.
        owner = np.asarray(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    except ValueError as error:
        if "transformations" not in str(error):
            raise
        raise TracedError(
            "Metal text on the CPU runs at the call, and inside mx.compile or mx.vmap the inputs have no values yet; "
            "call the function without the transformation (mx.disable_compile() switches mx.compile off)"
        ) from None
    item = owner.itemsize
    address: int = owner.__array_interface__["data"][0]
    return Memory(address, owner.shape, tuple(stride // item for stride in owner.strides), owner)


def row_contiguous(array: mx.array) -> mx.array:
    """Return `array` itself if its rows follow each other in memory, else a copy in which they do."""
    return array if memory(array).owner.flags.c_contiguous else mx.contiguous(array)


def outputs(
    shapes: Sequence[Sequence[int]], dtypes: Sequence[mx.Dtype], init_value: float | None
) -> tuple[list[mx.array], list[Memory]]:
    """Return new arrays with memory of their own, and that memory; filled with `init_value`, else with poison."""
    made = [_filled(tuple(shape), dtype, init_value) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return made, [memory(array) for array in made]


def _filled(shape: tuple[int, ...], dtype: mx.Dtype, init_value: float | None) -> mx.array:
    if init_value:
        # MLX's own `full` makes float32 of a number for most types.
        return mx.array(np.full(shape, init_value).astype(_NUMPY_TYPES[dtype]))
    # An array made from NumPy's is there at once; one made by an operation waits for MLX's own thread.
    byte = 0 if init_value is not None else _POISON.get(dtype, _INTEGER_POISON)
    count = math.prod(shape)
    return mx.array(np.full(count * dtype.size, byte, np.uint8).view(_NUMPY_TYPES[dtype]).reshape(shape))
