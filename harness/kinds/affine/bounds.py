"""How far a right answer may be from the float64 one, derived from the roundings that a subject can't avoid.

u is the unit roundoff of the dtype, tiny its smallest positive number: a product that underflows is off by at most
tiny / 2, a sum never underflows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.baseline import affine as baseline
from harness.compare import UNIT_ROUNDOFF, dot_bound
from harness.kinds.affine.matrices import magnitudes
from harness.kinds.affine.microscaling import decode_limit as microscaling_decode_limit
from harness.kinds.affine.microscaling import underflow_limit
from harness.kinds.affine.steps import TINY
from harness.subjects.protocol import AffineArrays
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from harness.kinds.affine.matrices import Matrix

# Beside one rounding a term: scale * code, the sum with bias, and the result.
_EXTRA_ROUNDINGS = 3


def decode_limit(planes: AffineArrays) -> NDArray[np.float64]:
    """Bound |error| of a decoded value [..., n] by u (1 + u) |scale code| + u |scale code + bias| + tiny.

    Two roundings in the dtype: p = scale code (1 + d1), r = (p + bias) (1 + d2), |d| <= u. So |r - exact| <=
    |d1| |scale code| + |d2| |p + bias|, and |p + bias| <= |exact| + u |scale code|. Wider or fused arithmetic errs
    less.
    """
    unit, tiny = UNIT_ROUNDOFF[planes.scales.dtype.name], TINY[planes.scales.dtype.name]
    steps, biases = _steps(planes)
    return unit * (1 + unit) * np.abs(steps) + unit * np.abs(steps + biases) + tiny


def round_trip_limit(weights: NDArray[Any], planes: AffineArrays) -> NDArray[np.float64]:
    """Bound the distance [..., n] of `weights` from what `planes`, made of them by any right encoder, decode to.

    A value is rounded to the nearest code, half a step away at most. Only the last code can be further from its value:
    adjusting the step to edge / q0 moves q0 by at most 1/2, and |edge| is at least half the range of n = 2^bits - 1
    steps, so the other extreme lies at most one step beyond code n. (With one bit the step is not adjusted.) Storing
    the scale s as S moves code c by c |S - s| <= c (u / (1 - u) |S| + tiny); the bias is a value of the group, hence
    stored exactly. Float32 arithmetic, with division to a few units in the last place, moves it by n 2^-21 |S|.
    Decoding adds `decode_limit`.

    The edge itself (the extreme of larger magnitude; the minimum for one bit) is code 0 and must come back exactly,
    unless its magnitude is no more than MLX's smallest scale.
    """
    unit, tiny = UNIT_ROUNDOFF[planes.scales.dtype.name], TINY[planes.scales.dtype.name]
    scales = np.repeat(np.abs(planes.scales.astype(np.float64)), planes.group_size, axis=-1)
    codes = baseline.unpack(planes.packed, planes.bits)
    last = (1 << planes.bits) - 1
    reach = np.where((codes == last) & (planes.bits > 1), 1.0, 0.5)
    storing = unit / (1 - unit) * scales + tiny
    limit = reach * scales + (codes + reach) * storing + last * 2.0**-21 * scales + decode_limit(planes)
    return np.where(_edges(weights, planes.group_size, planes.bits), 0.0, limit)


def _edges(weights: NDArray[Any], group_size: int, bits: int) -> NDArray[np.bool_]:
    """Say which values are the edge of their group."""
    groups = weights.astype(np.float64).reshape(*weights.shape[:-1], -1, group_size)
    low, high = groups.min(axis=-1, keepdims=True), groups.max(axis=-1, keepdims=True)
    edge = low if bits == 1 else np.where(np.abs(low) > np.abs(high), low, high)
    edges: NDArray[np.bool_] = (groups == edge) & (np.abs(edge) > baseline.SMALLEST_SCALE)
    return edges.reshape(weights.shape)


def product_limit(x: NDArray[Any], matrix: Matrix, *, transpose: bool) -> NDArray[np.float64]:
    """Bound |error| of x @ W.T or x @ W, summed in any order in the dtype.

    The bound is gamma_(n + 3) sum |x| (|scale code| + |bias|), with gamma of `dot_bound`, plus what underflows. n is
    the largest number of terms with x not 0 in a row of x: the others add exactly 0. A term meets at most the rounding
    of its product, n - 1 of sums, 2 of decoding and 1 of the result. Kernels that sum x code and x bias apart round no
    more often, on the same magnitudes. For n = 1 with x = 1 or -1 only decoding rounds.
    A microscaling or plain matrix has no biases; of the former, x scale may underflow before it meets a large element
    (`underflow_limit`).
    """
    unit, tiny = UNIT_ROUNDOFF[x.dtype.name], TINY[x.dtype.name]
    terms = int(np.count_nonzero(x, axis=-1).max())
    x_sizes = np.abs(x.astype(np.float64))
    if terms == 1 and bool((x_sizes[x_sizes > 0] == 1).all()):
        return baseline.product(x_sizes, number_limit(matrix, x.dtype), transpose=transpose)
    sums = baseline.product(x_sizes, magnitudes(matrix), transpose=transpose)
    underflow: NDArray[np.float64] = tiny * (terms + x_sizes.sum(axis=-1, keepdims=True))
    if isinstance(matrix, MicroscalingArrays):
        underflow = underflow + underflow_limit(x, matrix, transpose=transpose)
    return dot_bound(terms, sums, unit, _EXTRA_ROUNDINGS) + underflow


def number_limit(matrix: Matrix, dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Bound |error| of a number [..., n] of W, read in `dtype`."""
    if isinstance(matrix, AffineArrays):
        return decode_limit(matrix)
    if isinstance(matrix, MicroscalingArrays):
        return microscaling_decode_limit(matrix, dtype)
    return np.zeros(matrix.data.shape)


def product_roundings(terms: int, dtype: str) -> float:
    """Return gamma_(n + 3), the factor of `product_limit`; from 1 on the bound allows any answer."""
    return float(dot_bound(terms, np.ones(1), UNIT_ROUNDOFF[dtype], _EXTRA_ROUNDINGS)[0])


def _steps(planes: AffineArrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return scale * code and bias, both [..., n]."""
    nothing = np.zeros_like(planes.biases)
    steps = baseline.dequantize(planes.packed, planes.scales, nothing, planes.group_size, planes.bits)
    return steps, np.repeat(planes.biases.astype(np.float64), planes.group_size, axis=-1)
