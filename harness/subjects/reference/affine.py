"""The reference implementation's affine quantization as a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from harness.subjects.arrays import to_numpy
from harness.subjects.protocol import Affine, AffineArrays, Unsupported
from harness.subjects.views import to_mlx_view
from impl.affine import AffinePlanes, affine_matmul, dequantize, quantize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import TimedCall


class ReferenceAffine(Affine):
    """`impl.affine`, which leaves the arithmetic to MLX."""

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Return the planes of `x` [..., n]."""
        planes = quantize(to_mlx_view(x), group_size, bits)
        packed, scales, biases = (to_numpy(part) for part in planes.parts)
        return AffineArrays(packed, scales, biases, group_size, bits)

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        return to_numpy(dequantize(_on_device(planes)))

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W."""
        return to_numpy(affine_matmul(to_mlx_view(x), _on_device(planes), transpose=transpose))

    def timed(self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> TimedCall:
        """Return what does `operation` once a call, on arrays that are on the device beforehand."""
        device_x, device_planes = to_mlx_view(x), _on_device(planes)
        mx.eval(device_x, *device_planes.parts)

        group, bits = planes.group_size, planes.bits
        calls: dict[str, TimedCall] = {
            "quantize": lambda _call: AffineArrays(*quantize(device_x, group, bits).parts, group, bits),  # type: ignore[arg-type]  # MLX arrays, as `TimedCall` says
            "dequantize": lambda _call: dequantize(device_planes),
            "matmul": lambda _call: affine_matmul(device_x, device_planes, transpose=transpose),
        }
        if operation not in calls:
            raise Unsupported(f"timing of {operation}")
        return calls[operation]


def _on_device(planes: AffineArrays) -> AffinePlanes:
    parts = (to_mlx_view(planes.packed), to_mlx_view(planes.scales), to_mlx_view(planes.biases))
    return AffinePlanes(*parts, group_size=planes.group_size, bits=planes.bits)
