"""The values of a case: W, its planes by the baseline encoder, and x. The same seed makes the same values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.baseline.microscaling import FORMATS
from harness.dtypes import numpy_dtype
from harness.kinds.affine.layouts import repeated
from harness.kinds.affine.matrices import decoded, encoded, mapped
from harness.subjects.protocol import AffineArrays, PlainArrays
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.affine.matrices import Matrix
    from harness.kinds.affine.schema import AffineGiven

# Up to 256 every whole number is exact in bfloat16, the narrowest dtype.
EXACT_LIMIT = 256
SPARSE_TERMS = 6
_TENS = 50.0

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
    # Steps of float16 are 6e-8 here, and a 448th of these is nothing in it.
    "small": (-1e-5, 1e-5),
    # The largest number of nvfp4, 6 * 448, is far away.
    "beyond-range": (-1e12, 1e12),
}
# Of `integers` in the microscaling formats and in plain matrices: numbers from -this to this, times 1 or 2.
_LARGEST_WHOLE = {"mxfp4": 4, "nvfp4": 4, "mxfp8": 8, "plain": 8}
# Exponents of E8M0 scales of `codes`: with any element the product is a number of float16.
_EXPONENTS = (-6, 3)


@dataclass(frozen=True)
class Values:
    """`weights` W in the dtype of the case, its `planes` by the baseline, the `matrix` they stand for, and `x`.

    `blocks` and `picks` say of which block of x and which matrix each product of `gather` is.
    """

    weights: NDArray[Any]
    planes: Matrix
    matrix: NDArray[np.float64]
    x: NDArray[Any]
    blocks: NDArray[np.uint32]
    picks: NDArray[np.uint32]


def make_values(given: AffineGiven) -> Values:
    """Make W, planes and x."""
    rng = np.random.default_rng(given.seed)
    dtype = numpy_dtype(given.dtype)
    shared = given.views == "stride-0"
    planes: Matrix
    if given.data in ("integers", "codes"):
        planes = _made_of_codes(rng, given, dtype)
        planes = mapped(planes, lambda _, array: repeated(array)) if shared else planes
        weights = decoded(planes).astype(dtype)
    else:
        weights = _weights(rng, given, dtype)
        weights = repeated(weights) if shared else weights
        planes = encoded(weights, given.mode, given.group, given.bits)
    x = _vectors(rng, given).astype(dtype)
    return Values(weights, planes, decoded(planes), repeated(x) if shared else x, *_indices(rng, given))


def terms(given: AffineGiven) -> int:
    """Return how many entries of a row of x are not 0, at most."""
    if given.x == "signs":
        # So many codes can be added in any order without passing EXACT_LIMIT.
        largest = (1 << given.bits) - 1 if given.mode == "affine" else 2 * _LARGEST_WHOLE[given.mode]
        return min(given.inputs, EXACT_LIMIT // largest)
    return min(given.inputs, {"sparse": SPARSE_TERMS, "one-hot": 1}.get(given.x, given.inputs))


def _made_of_codes(rng: np.random.Generator, given: AffineGiven, dtype: np.dtype[Any]) -> Matrix:
    if given.mode == "affine":
        return _integer_planes(rng, given, dtype)
    shape = given.weight_shape()
    groups = (*shape[:-1], shape[-1] // given.group)
    if given.mode == "plain":
        largest = 2 * _LARGEST_WHOLE["plain"]
        return PlainArrays(rng.integers(-largest, largest + 1, shape).astype(dtype))
    form = FORMATS[given.mode]
    any_element = np.flatnonzero(~np.isnan(form.elements))
    if given.data == "codes":
        elements, (low, high) = any_element, (1, 127)
        if given.mode != "nvfp4":
            low, high = (127 + exponent for exponent in _EXPONENTS)
        scales = rng.integers(low, high, groups)
    else:
        whole = np.isin(np.abs(form.elements), np.arange(_LARGEST_WHOLE[given.mode] + 1))
        elements = np.flatnonzero(whole)
        scales = rng.choice([int(np.argmax(form.scales == step)) for step in (1.0, 2.0)], groups)
    packed = baseline.pack(rng.choice(elements, shape).astype(np.uint32), given.bits)
    return MicroscalingArrays(packed, scales.astype(np.uint8), given.group, given.bits, given.mode)


def _indices(rng: np.random.Generator, given: AffineGiven) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return block and matrix of each product, both in the leading shape of the result."""
    shape = given.result_shape()[:-2] if given.picks is not None else (0,)
    blocks = np.arange(given.repeats).reshape(-1, *([1] * (len(shape) - 1)))
    if given.indices == "any":
        blocks = rng.integers(0, given.repeats, shape)
    picks = rng.integers(0, given.stack, shape)
    if given.indices == "any" and shape[0] > 1:
        # Twice in a row the same matrix.
        picks[1] = picks[0]
    if given.indices == "sorted":
        picks = np.sort(picks)
    return np.broadcast_to(blocks, shape).astype(np.uint32), picks.astype(np.uint32)


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
    if given.x in ("normal", "tens"):
        return rng.standard_normal(shape) * (_TENS if given.x == "tens" else 1.0)
    if given.x == "one-hot":
        hot = np.arange(given.batch) % given.inputs
        return np.broadcast_to(np.eye(given.inputs)[hot], shape)
    values = rng.standard_normal(shape) if given.x == "sparse" else rng.choice([-1.0, 1.0], shape)
    # Every row has its terms at places of its own, spread over the whole axis.
    order = rng.permuted(np.broadcast_to(np.arange(given.inputs), shape), axis=-1)
    return np.where(order < terms(given), values, 0.0)
