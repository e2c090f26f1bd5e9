"""The values of a case: W, its planes by the baseline encoder, and x. The same seed makes the same values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.dtypes import numpy_dtype
from harness.subjects.protocol import AffineArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.affine.schema import AffineGiven

# Up to 256 every whole number is exact in bfloat16, the narrowest dtype.
EXACT_LIMIT = 256
SPARSE_TERMS = 6

_LARGEST = {"float32": (2 - 2.0**-23) * 2.0**127, "float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}
# Least and greatest value of every group; those of the last two are in units of the dtype's largest number.
_SPANS = {
    "zeros": (0.0, 0.0),
    # Less than the smallest step that MLX allows, 1e-7.
    "tiny": (-0.45e-7, 0.4e-7),
    "symmetric": (-1.0, 1.0),
    "min-dominates": (-3.0, 1.0),
    "max-dominates": (-1.0, 3.0),
    "negative": (-2.0, -1.0),
    # Half of the dtype's range, of either sign: scale * code and its sum with the bias still fit.
    "large": (0.0, 0.5),
    "full-range": (-1.0, 1.0),
}


@dataclass(frozen=True)
class Values:
    """`weights` W in the dtype of the case, its `planes` by the baseline, the `matrix` they stand for, and `x`."""

    weights: NDArray[Any]
    planes: AffineArrays
    matrix: NDArray[np.float64]
    x: NDArray[Any]


def make_values(given: AffineGiven) -> Values:
    """Make W, planes and x."""
    rng = np.random.default_rng(given.seed)
    dtype = numpy_dtype(given.dtype)
    if given.data == "integers":
        planes = _integer_planes(rng, given, dtype)
        matrix = _dequantized(planes)
        weights = matrix.astype(dtype)
    else:
        weights = _weights(rng, given, dtype)
        packed, scales, biases = baseline.encode(weights, given.group, given.bits)
        planes = AffineArrays(packed, scales, biases, given.group, given.bits)
        matrix = _dequantized(planes)
    return Values(weights, planes, matrix, _vectors(rng, given).astype(dtype))


def terms(given: AffineGiven) -> int:
    """Return how many entries of a row of x are not 0, at most."""
    if given.x == "signs":
        # So many codes can be added in any order without passing EXACT_LIMIT.
        return min(given.inputs, EXACT_LIMIT // ((1 << given.bits) - 1))
    return min(given.inputs, {"normal": given.inputs, "sparse": SPARSE_TERMS, "one-hot": 1}[given.x])


def _dequantized(planes: AffineArrays) -> NDArray[np.float64]:
    return baseline.dequantize(planes.packed, planes.scales, planes.biases, planes.group_size, planes.bits)


def _integer_planes(rng: np.random.Generator, given: AffineGiven, dtype: np.dtype[Any]) -> AffineArrays:
    """Make planes of whole numbers: scale 1 or -1, and a bias that keeps |W| within the largest code.

    Then x of at most `terms` entries 1 or -1 makes every partial sum exact in every dtype, whether a kernel adds
    x * (scale * code + bias) or x * code and x * bias apart.
    """
    largest = 2**given.bits - 1
    shape = given.weight_shape()
    groups = (*shape[:-1], shape[-1] // given.group)
    codes = rng.integers(0, largest + 1, shape).astype(np.uint32)
    scales = rng.choice([-1.0, 1.0], groups)
    biases = -scales * rng.integers(0, largest + 1, groups)
    packed = baseline.pack(codes, given.bits)
    return AffineArrays(packed, scales.astype(dtype), biases.astype(dtype), given.group, given.bits)


def _weights(rng: np.random.Generator, given: AffineGiven, dtype: np.dtype[Any]) -> NDArray[Any]:
    shape = given.weight_shape()
    groups = (*shape[:-1], shape[-1] // given.group, given.group)
    return _group_values(rng, given, groups).reshape(shape).astype(dtype)


def _group_values(rng: np.random.Generator, given: AffineGiven, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return values [..., groups, group] of the distribution `given.data`."""
    if given.data in ("normal", "integers"):
        return rng.standard_normal(shape)
    if given.data == "constant":
        one = (*shape[:-1], 1)
        each: NDArray[np.float64] = rng.standard_normal(one) * 10.0 ** rng.integers(-2, 3, one)
        return np.broadcast_to(each, shape)
    if given.data == "between-codes":
        return _between_codes(rng, shape, 2**given.bits - 1)
    low, high = _SPANS[given.data]
    values = _with_extremes(low + (high - low) * rng.random(shape), low, high)
    if given.data == "large":
        values *= rng.choice([-1.0, 1.0], (*shape[:-1], 1))
    if given.data in ("large", "full-range"):
        values *= _LARGEST[given.dtype]
    return values


def _with_extremes(values: NDArray[Any], low: float, high: float) -> NDArray[np.float64]:
    """Put `low` and `high` into every group, at places that differ from group to group."""
    places = np.arange(values[..., 0].size).reshape(values.shape[:-1])[..., np.newaxis] % (values.shape[-1] - 1)
    np.put_along_axis(values, places, low, axis=-1)
    np.put_along_axis(values, places + 1, high, axis=-1)
    return values


def _between_codes(rng: np.random.Generator, shape: tuple[int, ...], largest: int) -> NDArray[np.float64]:
    """Return values a quarter or a half away from a code; two others, 0 and -largest, make the scale 1."""
    return _with_extremes(-rng.integers(0, largest, shape) - rng.choice([0.25, 0.5, 0.75], shape), -largest, 0)


def _vectors(rng: np.random.Generator, given: AffineGiven) -> NDArray[np.float64]:
    shape = given.x_shape()
    if given.x == "normal":
        return rng.standard_normal(shape)
    if given.x == "one-hot":
        hot = np.arange(given.batch) % given.inputs
        return np.broadcast_to(np.eye(given.inputs)[hot], shape)
    values = rng.standard_normal(shape) if given.x == "sparse" else rng.choice([-1.0, 1.0], shape)
    # Every row has its terms at places of its own, spread over the whole axis.
    order = rng.permuted(np.broadcast_to(np.arange(given.inputs), shape), axis=-1)
    return np.where(order < terms(given), values, 0.0)
