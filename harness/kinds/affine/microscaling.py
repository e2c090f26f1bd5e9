"""What a right encoder and decoder of the microscaling formats may do: derived bounds, and the choice it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import microscaling as baseline
from harness.baseline.affine import unpack
from harness.compare import UNIT_ROUNDOFF
from harness.kinds.affine.steps import SMALLEST_NORMAL, TINY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol.affine import MicroscalingArrays

    Array = NDArray[np.float64]


def scale_slack(weights: NDArray[Any], planes: MicroscalingArrays) -> tuple[Array, Array]:
    """Return how far the scale of each group [..., groups] is from what is wanted, and how far it may be.

    Wanted is m = largest magnitude / largest element. "mx": the next power of two, so log2 scale - log2 m lies between
    0 and 1, and the distance is that from 1/2. m and its logarithm may be rounded to the dtype: 2u more for m
    (u (1 + u) / ln 2 < 2u), u times itself for the logarithm. "nv": half a step of E4M3, and u m more. A group of zeros
    may have any scale.
    """
    form = baseline.FORMATS[planes.mode]
    unit = UNIT_ROUNDOFF[weights.dtype.name]
    wanted = np.abs(_groups(weights, planes)).max(axis=-1) / form.top
    scales = form.scales[planes.scales]
    some = wanted > 0
    if planes.mode == "nvfp4":
        best = np.abs(form.scales[baseline.nearest(wanted, form.scales[:127])] - wanted)
        return np.where(some, np.abs(scales - wanted), 0.0), best + unit * wanted
    wish = np.log2(wanted, where=some, out=np.zeros_like(wanted))
    with np.errstate(invalid="ignore"):
        distance = np.abs(np.log2(scales) - np.clip(wish, -127, 127) - 0.5)
    return np.where(some, distance, 0.0), 0.5 + 2 * unit + unit * np.abs(wish)


def round_trip_limit(weights: NDArray[Any], planes: MicroscalingArrays) -> Array:
    """Bound the distance [..., n] of `weights` from what the elements under the scales of `planes` stand for.

    An element is one of the nearest to weight / scale, which may be rounded to the dtype first, by u: that moves it
    over a halfway point by no more. Ties may go either way: MLX's CPU backend takes the element nearer to 0, its
    kernels for GPUs the even one. A scale of 0 leaves nothing but zeros.
    """
    form = baseline.FORMATS[planes.mode]
    groups = _groups(weights, planes)
    steps = form.scales[planes.scales][..., np.newaxis]
    scaled = np.abs(np.divide(groups, steps, out=np.zeros_like(groups), where=steps > 0))
    best = np.abs(groups) - form.magnitudes[baseline.nearest(scaled, form.magnitudes)] * steps
    dtype = weights.dtype.name
    # Beyond the largest element no rounding makes another one nearest.
    rounded = UNIT_ROUNDOFF[dtype] * np.minimum(np.abs(groups), form.top * steps)
    limit: Array = np.abs(best) + rounded + TINY[dtype] * (steps + 1)
    return limit.reshape(weights.shape)


def decode_limit(planes: MicroscalingArrays, dtype: np.dtype[Any]) -> Array:
    """Bound |error| of a decoded number [..., n] in `dtype`: nothing, unless it underflows.

    scale * element has at most 6 significant bits, and bfloat16 holds 8; what is below the smallest normal number is
    off by half a step of the dtype.
    """
    exact = baseline.dequantize(planes.packed, planes.scales, planes.mode)
    underflows = (exact != 0) & (np.abs(exact) < SMALLEST_NORMAL[dtype.name])
    return np.where(underflows, TINY[dtype.name], 0.0)


def underflow_limit(x: NDArray[Any], planes: MicroscalingArrays, *, transpose: bool) -> Array:
    """Bound what a product loses [..., batch, outputs] where a kernel forms x * scale first, and that underflows.

    Each such term is off by half a step of the dtype, times its element. The sum of a group may underflow, too, when
    it is scaled last.
    """
    form, dtype = baseline.FORMATS[planes.mode], x.dtype.name
    elements = np.abs(form.elements[unpack(planes.packed, form.bits)])
    scales = np.repeat(form.scales[planes.scales], form.group_size, axis=-1)
    if not transpose:
        elements, scales = np.swapaxes(elements, -1, -2), np.swapaxes(scales, -1, -2)
    sizes = np.abs(x.astype(np.float64))[..., :, np.newaxis, :]
    low = (sizes > 0) & (sizes * scales[..., np.newaxis, :, :] < SMALLEST_NORMAL[dtype])
    lost: Array = np.where(low, elements[..., np.newaxis, :, :], 0.0).sum(axis=-1) + x.shape[-1]
    return TINY[dtype] * lost


def _groups(weights: NDArray[Any], planes: MicroscalingArrays) -> Array:
    return weights.astype(np.float64).reshape(*weights.shape[:-1], -1, planes.group_size)
