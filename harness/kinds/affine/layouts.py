"""How a lent array lies in memory: the same numbers, contiguous or as a view that has to be read by its strides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Around a sliced array lies what no answer survives: NaN, or all bits set.
_MARGIN_BEFORE, _MARGIN_AFTER = 2, 1


def laid_out(array: NDArray[Any], view: str) -> NDArray[Any]:
    """Return a writable copy of `array` [..., rows, columns] that lies as `view` says.

    transposed: columns are the slower axis. heads-last: of four axes the second lies behind the third, as attention
    layers make it. sliced: every second row, and not the first nor the last columns, of a larger array. stride-0: the
    entries along one axis, which must be equal, share one place; the first axis along which there are several.
    """
    if view == "transposed":
        return np.swapaxes(np.swapaxes(array, -1, -2).copy(), -1, -2)
    if view == "heads-last":
        return np.swapaxes(np.swapaxes(array, 1, 2).copy(), 1, 2)
    if view == "sliced":
        *lead, rows, columns = array.shape
        larger = np.empty((*lead, 2 * rows + 1, _MARGIN_BEFORE + columns + _MARGIN_AFTER), array.dtype)
        larger[...] = np.nan if array.dtype.kind not in "iu" else np.iinfo(array.dtype).max
        inner = larger[..., 1::2, _MARGIN_BEFORE:-_MARGIN_AFTER]
        inner[...] = array
        return inner
    if view == "stride-0":
        axis = shared_axis(array.shape)
        one = np.take(array, [0], axis=axis)
        strides = [0 if index == axis else stride for index, stride in enumerate(one.strides)]
        return np.lib.stride_tricks.as_strided(one, array.shape, strides)
    return array.copy()


def shared_axis(shape: tuple[int, ...]) -> int:
    """Return the axis along which an array with stride 0 repeats itself: the first with several entries."""
    return next((axis for axis, length in enumerate(shape) if length > 1), 0)


def repeated(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` with the first entry along its shared axis in the place of all others."""
    axis = shared_axis(array.shape)
    return np.broadcast_to(np.take(array, [0], axis=axis), array.shape).copy()
