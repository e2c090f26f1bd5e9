"""The inputs of a kernel: values from a seed, laid out in memory as the case says, with traps around them.

Before, behind and between the elements of every input lies what no right kernel reads: NaN, or bits that stand out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.dtypes import numpy_dtype
from harness.subjects.protocol import KernelView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.kernel.schema import InputGiven, KernelGiven

# Elements on either side of an input and behind an output; a multiple keeps vectors of any element type aligned.
GUARD = 64
_TRAP = 0xAA


@dataclass(frozen=True)
class Input:
    """What is handed over, and the values that it stands for: an array of `shape`, or a Python scalar."""

    shown: KernelView | float
    values: Any


def make_inputs(given: KernelGiven) -> dict[str, Input]:
    """Make all inputs of a case; the same seed makes the same values."""
    made = {}
    for number, (name, one) in enumerate(given.inputs.items()):
        if one.scalar is not None:
            made[name] = Input(one.scalar, one.scalar)
            continue
        made[name] = _placed(_values(np.random.default_rng([given.seed, number]), one), one.view)
    return made


def _values(rng: np.random.Generator, one: InputGiven) -> NDArray[Any]:
    dtype = numpy_dtype(one.dtype)
    shape = tuple(one.shape or ())
    count = math.prod(shape)
    if isinstance(one.values, list):
        flat = np.resize(np.array(one.values), count)
    elif one.values == "normal":
        flat = rng.standard_normal(count)
    elif one.values == "uniform":
        flat = rng.uniform(one.low, one.high, count)
    elif one.values == "integers":
        flat = rng.integers(int(one.low), int(one.high), count, endpoint=True)
    elif one.values == "bits":
        flat = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    elif one.values == "special":
        flat = np.resize(special(dtype), count)
    elif one.values in ("index", "permutation"):
        flat = np.arange(count) if one.values == "index" else rng.permutation(count)
    else:
        flat = np.full(count, one.values == "ones")
    with np.errstate(over="ignore", invalid="ignore"):
        return flat.astype(dtype).reshape(shape)


def special(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values at the borders of a dtype."""
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1, info.max // 2, info.min // 2 + 1], dtype)
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    borders = [limits.max, limits.min, limits.smallest_normal, limits.eps]
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, -2.5, *map(float, borders)]
    return np.array(numbers).astype(dtype)


def _placed(values: NDArray[Any], view: str) -> Input:
    """Lay `values` out in memory with traps around; what the view makes of them is what the kernel means by them."""
    shape = values.shape
    if view == "stride-0" and shape:
        values = np.broadcast_to(values[:1], shape)
        kept, steps = values[:1], [0, *_strides(shape[1:])]
        if len(shape) == 1:
            kept, steps = values[:1], [0]
    elif view == "transposed" and len(shape) > 1:
        kept = values.swapaxes(-1, -2)
        steps = _strides(kept.shape)
        steps[-1], steps[-2] = steps[-2], steps[-1]
    elif view == "sliced" and shape:
        kept = trapped((*shape[:-1], 2 * shape[-1]), values.dtype)
        kept[..., ::2] = values
        steps = [*_strides(kept.shape)[:-1], 2]
    else:
        kept, steps = values, _strides(shape)
    memory = trapped((kept.size + 2 * GUARD,), values.dtype)
    memory[GUARD : GUARD + kept.size] = kept.reshape(-1)
    return Input(KernelView(memory, shape, tuple(steps), GUARD), values)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def trapped(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array that holds NaN, true, or bytes of 0xAA."""
    if dtype.kind in "biu":
        byte = 1 if dtype.kind == "b" else _TRAP
        return np.full(math.prod(shape) * dtype.itemsize, byte, np.uint8).view(dtype).reshape(shape)
    return np.full(shape, np.nan).astype(dtype)
