"""Kind `affine`: quantization by groups, and products with quantized matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.arrays import AffineArrays


class Affine:
    """Affine quantization under test (kind `affine`)."""

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Quantize `x` [..., n] by groups along the last axis."""
        raise Unsupported("quantize")

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        raise Unsupported("dequantize")

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W, W the dequantized planes."""
        raise Unsupported("quantized matmul")

    def timed(
        self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool
    ) -> Callable[[int], None]:
        """Return a function of a call number that does `operation` once, evaluated, for the clock."""
        raise Unsupported(f"timing of {operation}")
