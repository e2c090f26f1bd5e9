"""Outputs of two lane orders that differ by more than the order of additions explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of the largest magnitude in the output. Sums in another order differ by a few roundings of their terms; a bound far
# above that leaves what no rounding makes.
_BOUNDS = {mx.float32: 1e-3, mx.complex64: 1e-3, mx.float16: 2e-2, mx.bfloat16: 1e-1}


def difference(first: mx.array, second: mx.array) -> str | None:
    """Return where and by how much the arrays differ beyond the bound (integers: at all), or None."""
    bound = _BOUNDS.get(first.dtype)
    if bound is None:
        a, b = np.asarray(first), np.asarray(second)
        return _at(a, b, a != b)
    a, b = _numbers(first), _numbers(second)
    finite = np.isfinite(a) & np.isfinite(b)
    largest = max(np.abs(a[finite]).max(initial=0), np.abs(b[finite]).max(initial=0))
    # One order may overflow where another does not; that is rounding, too.
    apart = np.zeros(a.shape, np.bool_)
    apart[finite] = np.abs(a[finite] - b[finite]) > bound * largest
    return _at(a, b, apart)


def _numbers(array: mx.array) -> NDArray[np.generic]:
    if array.dtype == mx.complex64:
        return np.asarray(array).astype(np.complex128)
    # Outputs may hold any bits, signaling NaNs among them.
    with np.errstate(invalid="ignore"):
        return np.asarray(array.astype(mx.float32)).astype(np.float64)


def _at(a: NDArray[np.generic], b: NDArray[np.generic], apart: NDArray[np.bool_]) -> str | None:
    if not apart.any():
        return None
    place = tuple(int(i) for i in np.argwhere(apart)[0])
    index = f"[{', '.join(map(str, place))}]"
    return f"{index} is {a[place]:g} in one order of threads and {b[place]:g} in another"
