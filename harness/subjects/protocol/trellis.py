"""Kind `trellis`: trellis-quantized matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class TrellisSpec:
    """A trellis-coded matrix [rows, columns], and how its `codes` (uint32 words) are read.

    Each row has columns / block blocks, each a bit string of block * bits bits: bit p is bit p mod 32 of word
    p div 32. Column t of a block has the state made of the `state_bits` bits from (block - 1 - t) * bits on, lowest
    first; after the last bit of a block comes its first. The weight is the state's value in `codebook` (`1mad`,
    `2mad`, `mul1`, `3inst`, `mcg`; formulas in `harness.baseline.trellis`), float32, times the scale of its row.
    Codes are words [rows][blocks][words of a block], or, with `interleave`, [blocks / 2][rows][2][words of a block].
    """

    rows: int
    columns: int
    bits: int
    state_bits: int
    block: int
    codebook: str
    interleave: bool


class Trellis:
    """Trellis-quantized matrices under test (kind `trellis`). Arrays that it is given can't be written to."""

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the state of every weight, [rows, columns]; `codes` is the flat word array in the layout of `spec`."""
        raise Unsupported("trellis states")

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the matrix [rows, columns]: values rounded to float32, then times the scale [rows] of their row."""
        raise Unsupported("trellis decoding")

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        """Return x @ matrix, float32 [batch, columns], for `x` [batch, rows], summed in `splits` parts of rows.

        A part has ceil(rows / splits) rows, the last ones fewer or none; their float32 sums are added in order.
        """
        raise Unsupported("trellis products")

    def timed(
        self,
        operation: str,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> Callable[[int], None]:
        """Return a function of a call number that does `operation` once, evaluated, for the clock."""
        raise Unsupported(f"timing of {operation}")
