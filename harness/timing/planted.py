"""A subject of known slowness, for the selftest: it reads planes back, and counts as far as it is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from harness.baseline import affine as baseline
from harness.subjects.protocol import Affine, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol import AffineArrays, TimedCall

# How far to count, in the environment of an arm.
LOOPS_VARIABLE = "METAL_ASSAY_PLANTED_LOOPS"


class Planted(Subject, Affine):
    """Dequantizes rightly; each timed call counts on top."""

    name = "planted"

    def affine(self) -> Affine:
        """Return this."""
        return self

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        """Return [..., n] in the dtype of the scales."""
        found = baseline.dequantize(planes.packed, planes.scales, planes.biases, planes.group_size, planes.bits)
        return found.astype(planes.scales.dtype)

    def timed(self, operation: str, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> TimedCall:
        """Return a call of `dequantize` that also counts."""
        del operation, x, transpose
        loops = int(os.environ.get(LOOPS_VARIABLE, "0"))

        def call(_number: int) -> NDArray[Any]:
            count(loops)
            return self.dequantize(planes)

        return call


def count(loops: int) -> None:
    """Keep the processor busy."""
    for _ in range(loops):
        pass
