"""Subject `mlx`: MLX's own operations, as they are, on views of the strides that the case asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import Affine, AffineArrays, PlainArrays, Subject, Unsupported
from harness.subjects.protocol.affine import MicroscalingArrays
from harness.subjects.views import to_mlx_view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import Attention, Kernels, TimedCall


_WORD_BITS = 32


class MlxOperations(Subject):
    """`mx.quantize`, `mx.dequantize`, `mx.quantized_matmul`, `mx.gather_qmm`, `mx.gather_mm`, and attention."""

    name: ClassVar[str] = "mlx"
    package: ClassVar[str | None] = "mlx"

    def affine(self) -> Affine:
        """Return quantization in all of its modes."""
        return MlxAffine()

    def attention(self) -> Attention:
        """Return attention over plain arrays."""
        from harness.subjects.mlx_attention import MlxAttention

        return MlxAttention()

    def kernel(self) -> Kernels:
        """Return `mx.fast.metal_kernel`, where MLX has Metal."""
        if not mx.metal.is_available():
            raise Unsupported("no Metal on this machine")
        from harness.subjects.mlx_kernel import MlxKernels

        return MlxKernels()


class MlxAffine(Affine):
    """Quantization by MLX."""

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Return the planes of `x` [..., n]."""
        packed, scales, biases = mx.quantize(to_mlx_view(x), group_size=group_size, bits=bits)
        return AffineArrays(to_numpy(packed), to_numpy(scales), to_numpy(biases), group_size, bits)

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        return to_numpy(mx.dequantize(*_device(planes), group_size=planes.group_size, bits=planes.bits))

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W."""
        group, bits = planes.group_size, planes.bits
        return to_numpy(
            mx.quantized_matmul(to_mlx_view(x), *_device(planes), transpose=transpose, group_size=group, bits=bits)
        )

    def quantize_microscaling(self, x: NDArray[np.generic], mode: str) -> MicroscalingArrays:
        """Return the planes of `x` [..., n], with MLX's own group size and bits of the mode."""
        packed, scales = (to_numpy(plane) for plane in mx.quantize(to_mlx_view(x), mode=mode))
        group, bits = x.shape[-1] // scales.shape[-1], packed.shape[-1] * _WORD_BITS // x.shape[-1]
        return MicroscalingArrays(packed, scales, group, bits, mode)

    def dequantize_microscaling(self, planes: MicroscalingArrays, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
        """Return [..., n] in `dtype`."""
        return to_numpy(mx.dequantize(*_pair(planes), mode=planes.mode, dtype=getattr(mx, dtype.name)))

    def matmul_microscaling(
        self, x: NDArray[np.generic], planes: MicroscalingArrays, *, transpose: bool
    ) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W."""
        return to_numpy(mx.quantized_matmul(to_mlx_view(x), *_pair(planes), transpose=transpose, mode=planes.mode))

    def gather(
        self,
        x: NDArray[np.generic],
        matrices: AffineArrays | MicroscalingArrays | PlainArrays,
        blocks: NDArray[np.uint32] | None,
        picks: NDArray[np.uint32],
        *,
        transpose: bool,
        in_order: bool,
    ) -> NDArray[np.generic]:
        """Return the products by `mx.gather_qmm`, or of plain matrices by `mx.gather_mm`, transposed as a view."""
        there, lhs, rhs = to_mlx_view(x), None if blocks is None else to_mlx(blocks), to_mlx(picks)
        if isinstance(matrices, PlainArrays):
            plain = to_mlx_view(matrices.data)
            second = plain.swapaxes(-1, -2) if transpose else plain
            try:
                return to_numpy(mx.gather_mm(there, second, lhs, rhs, sorted_indices=in_order))
            except RuntimeError as error:
                # MLX 0.32 says so itself, on the CPU, for every dtype but float32.
                if "only supports" not in str(error):
                    raise
                raise Unsupported(f"mx.gather_mm in {x.dtype.name}: {error}") from None
        if isinstance(matrices, AffineArrays):
            (packed, scales, biases), mode = _device(matrices), "affine"
        else:
            (packed, scales), biases, mode = _pair(matrices), None, matrices.mode
        group, bits = matrices.group_size, matrices.bits
        return to_numpy(
            mx.gather_qmm(
                there, packed, scales, biases, lhs, rhs, transpose, group, bits, mode, sorted_indices=in_order
            )
        )

    def timed(self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> TimedCall:
        """Return what does `operation` once a call, on arrays that are on the device beforehand."""
        there, parts, group, bits = to_mlx(x), _device(planes), planes.group_size, planes.bits
        mx.eval(there, *parts)
        calls: dict[str, TimedCall] = {
            "quantize": lambda _call: AffineArrays(*mx.quantize(there, group_size=group, bits=bits), group, bits),  # type: ignore[arg-type]  # MLX arrays, as `TimedCall` says
            "dequantize": lambda _call: mx.dequantize(*parts, group_size=group, bits=bits),
            "matmul": lambda _call: mx.quantized_matmul(
                there, *parts, transpose=transpose, group_size=group, bits=bits
            ),
        }
        if operation not in calls:
            raise Unsupported(f"timing of {operation}")
        return calls[operation]


def _device(planes: AffineArrays) -> tuple[mx.array, mx.array, mx.array]:
    return to_mlx_view(planes.packed), to_mlx_view(planes.scales), to_mlx_view(planes.biases)


def _pair(planes: MicroscalingArrays) -> tuple[mx.array, mx.array]:
    return to_mlx_view(planes.packed), to_mlx_view(planes.scales)
