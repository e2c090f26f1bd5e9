"""The one place where NumPy and MLX arrays are turned into each other, bit for bit.

`np.array` of an MLX bfloat16 array raises, and `mx.array` of float64 silently becomes float32: nobody else converts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import mlx.core as mx
import numpy as np

from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["numpy_dtype", "to_mlx", "to_numpy"]

_EXACT = {
    "float32",
    "float16",
    "bfloat16",
    "uint32",
    "int32",
    "uint16",
    "int16",
    "uint8",
    "int8",
    "bool",
    "int64",
    "uint64",
}


def to_mlx(array: NDArray[np.generic]) -> mx.array:
    """Copy a NumPy array into MLX with the same bits; raises TypeError for a dtype that MLX would round."""
    if array.dtype.name not in _EXACT:
        raise TypeError(f"MLX can't hold {array.dtype.name} exactly; convert to float32 first, on purpose")
    return mx.array(np.ascontiguousarray(array) if array.ndim else array)


def to_numpy(array: mx.array) -> NDArray[Any]:
    """Copy an MLX array into NumPy with the same bits (bfloat16 as `ml_dtypes.bfloat16`)."""
    if array.dtype == mx.bfloat16:
        return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(array)
