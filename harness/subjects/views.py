"""NumPy views become MLX views: the same strides over a copy of the same memory, and not a contiguous copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from harness.subjects.arrays import to_mlx

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_mlx_view(array: NDArray[np.generic]) -> mx.array:
    """Copy the memory that `array` spans into MLX, gaps included, and return the view of it with the same strides.

    The view begins behind the first element of its memory, as slices do. Strides must not be negative. Raises
    TypeError as `to_mlx` does.
    """
    if array.flags.c_contiguous:
        return to_mlx(array)
    strides = [stride // array.itemsize for stride in array.strides]
    span = 1 + sum((length - 1) * stride for length, stride in zip(array.shape, strides, strict=True))
    memory = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,), writeable=False)
    view = mx.as_strided(to_mlx(np.concatenate([memory[:1], memory])), array.shape, strides, 1)
    # As a result of an earlier operation: an unevaluated one might be fused with what follows.
    mx.eval(view)
    return view
