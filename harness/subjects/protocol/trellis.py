"""Kind `trellis`: trellis-quantized matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True)
class TrellisSpec:
    """A trellis-coded matrix [rows, columns], and how its `codes` (uint32 words) are read.

    Each row has columns / block blocks, each a bit string of block * bits bits: bit p is bit p mod 32 of word
    p div 32. Column t of a block has the state made of the `state_bits` bits from (block - 1 - t) * bits on, lowest
    first; after the last bit of a block comes its first. The weight is the state's value in `codebook` (`1mad`,
    `2mad`, `mul1`, `3inst`, `mcg`, `random`; formulas in `harness.baseline.trellis`), float32, times the scale of its
    row.
    Codes are words [rows][blocks][words of a block], or, with `interleave`, [blocks / 2][rows][2][words of a block].
    """

    rows: int
    columns: int
    bits: int
    state_bits: int
    block: int
    codebook: str
    interleave: bool


@dataclass(frozen=True)
class TrellisOffer:
    """What a subject says of one variant of a product, for one shape.

    reason: why it does not apply; None: it does. rounding: how its sums are rounded, and so how far off they may be:
    `direct` (codeword, times scale, times x), `folded` (scale and x are multiplied first), `offset` (folded, and the
    mean of a byte sum is subtracted from the sum), `matmul` (a matrix product). input_roundoff: what the device rounds
    the inputs of that product to.
    """

    reason: str | None = None
    rounding: Literal["direct", "folded", "offset", "matmul"] = "direct"
    input_roundoff: float = 2.0**-24


class Trellis:
    """Trellis-quantized matrices under test (kind `trellis`). Arrays that it is given can't be written to.

    Any method raises Refused (or ValueError) for a spec that can't be: columns that do not fill blocks, say.
    """

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

    def variants(self, spec: TrellisSpec, *, batch: int, splits: int) -> Mapping[str, TrellisOffer]:
        """Return what it offers for products of this shape, by name: kernels with the contract of `partials`."""
        raise Unsupported("variants of a product")

    def variant(self, name: str) -> Trellis:
        """Return a subject whose `partials`, `gemv` and timed `gemv` are those of one variant."""
        raise Unsupported("variants of a product")

    def partials(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        """Return the float32 sums [batch, splits, columns] of each part of rows; those of no rows are zero."""
        raise Unsupported("sums of splits")

    def encode(self, spec: TrellisSpec, matrix: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint32]:
        """Return flat codes, in the layout of `spec`, whose decoded matrix is as near to `matrix` as can be found.

        The scales [rows] are given: what is sought is the tail-biting path of codewords nearest to matrix / scale.
        """
        raise Unsupported("trellis encoding")

    def to_qtip(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Return the bit streams of QTIP, [rows, blocks, bytes of a block], the highest bit of a byte first."""
        raise Unsupported("conversion to QTIP")

    def from_qtip(self, spec: TrellisSpec, stream: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Return flat codes, in the layout of `spec`: the inverse of `to_qtip`."""
        raise Unsupported("conversion from QTIP")

    def to_exl3(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the words of EXL3, [rows, blocks, words of a block], for states of 16 bits."""
        raise Unsupported("conversion to EXL3")

    def from_exl3(self, spec: TrellisSpec, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return flat codes, in the layout of `spec`: the inverse of `to_exl3`."""
        raise Unsupported("conversion from EXL3")

    def timed(
        self,
        operation: str,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> TimedCall:
        """Return what does `operation` once a call, for the clock (`protocol.timed`)."""
        raise Unsupported(f"timing of {operation}")
