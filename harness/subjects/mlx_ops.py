"""Subject `mlx`: MLX's own operations, as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import Affine, AffineArrays, Subject, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import Attention


class MlxOperations(Subject):
    """`mx.quantize`, `mx.dequantize`, `mx.quantized_matmul`."""

    name: ClassVar[str] = "mlx"
    package: ClassVar[str | None] = "mlx"

    def affine(self) -> Affine:
        """Return affine quantization."""
        return MlxAffine()

    def attention(self) -> Attention:
        """Return attention over plain arrays."""
        from harness.subjects.mlx_attention import MlxAttention

        return MlxAttention()


class MlxAffine(Affine):
    """Affine quantization by MLX."""

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Return the planes of `x` [..., n]."""
        packed, scales, biases = mx.quantize(to_mlx(x), group_size=group_size, bits=bits)
        return AffineArrays(to_numpy(packed), to_numpy(scales), to_numpy(biases), group_size, bits)

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        return to_numpy(mx.dequantize(*_device(planes), group_size=planes.group_size, bits=planes.bits))

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W."""
        group, bits = planes.group_size, planes.bits
        return to_numpy(
            mx.quantized_matmul(to_mlx(x), *_device(planes), transpose=transpose, group_size=group, bits=bits)
        )

    def timed(
        self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool
    ) -> Callable[[int], None]:
        """Return a function that does `operation` once, on arrays that are on the device beforehand."""
        there, parts, group, bits = to_mlx(x), _device(planes), planes.group_size, planes.bits
        mx.eval(there, *parts)
        calls: dict[str, Callable[[], object]] = {
            "quantize": lambda: mx.quantize(there, group_size=group, bits=bits),
            "dequantize": lambda: mx.dequantize(*parts, group_size=group, bits=bits),
            "matmul": lambda: mx.quantized_matmul(there, *parts, transpose=transpose, group_size=group, bits=bits),
        }
        if operation not in calls:
            raise Unsupported(f"timing of {operation}")
        make = calls[operation]

        def call(_number: int) -> None:
            mx.eval(make())
            mx.synchronize()

        return call


def _device(planes: AffineArrays) -> tuple[mx.array, mx.array, mx.array]:
    return to_mlx(planes.packed), to_mlx(planes.scales), to_mlx(planes.biases)
