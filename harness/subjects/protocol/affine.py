"""Kind `affine`: quantization by groups, and products with quantized matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.arrays import AffineArrays, PlainArrays
    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True)
class MicroscalingArrays:
    """Planes of the modes "mxfp4", "mxfp8" and "nvfp4", which have no biases.

    `packed` uint32 [..., n * bits / 32]: codes of E2M1 (4 bits) or E4M3 (8 bits), the first in the lowest bits.
    `scales` uint8 [..., n / group_size]: E8M0 for the "mx" modes, E4M3 for "nvfp4".
    """

    packed: NDArray[np.uint32]
    scales: NDArray[np.uint8]
    group_size: int
    bits: int
    mode: str


class Affine:
    """Affine quantization under test (kind `affine`), and what MLX offers beside it under the same names.

    Arrays may be views with strides of their own (transposed, sliced, or with stride 0): `views` of a case says so.
    """

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Quantize `x` [..., n] by groups along the last axis."""
        raise Unsupported("quantize")

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        raise Unsupported("dequantize")

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W, W the dequantized planes."""
        raise Unsupported("quantized matmul")

    def quantize_microscaling(self, x: NDArray[np.generic], mode: str) -> MicroscalingArrays:
        """Quantize `x` [..., n] by groups along the last axis."""
        raise Unsupported(f"mode {mode}")

    def dequantize_microscaling(self, planes: MicroscalingArrays, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
        """Return [..., n] in `dtype`."""
        raise Unsupported(f"mode {planes.mode}")

    def matmul_microscaling(
        self, x: NDArray[np.generic], planes: MicroscalingArrays, *, transpose: bool
    ) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W, W the dequantized planes, in the dtype of x."""
        raise Unsupported(f"mode {planes.mode}")

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
        """Return product i of block `blocks[i]` of x with matrix `picks[i]`, transposed or not: [..., batch, outputs].

        `x` [..., batch, inputs] and `matrices` [matrices, *, *]; `picks` number the matrices, and `blocks` the blocks
        of x in row order, all leading axes taken together. Without `blocks` each block takes its turn; both broadcast.
        `in_order` promises that `picks` ascend.
        """
        raise Unsupported("products with picked matrices")

    def timed(self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> TimedCall:
        """Return what does `operation` once a call, for the clock (`protocol.timed`)."""
        raise Unsupported(f"timing of {operation}")
