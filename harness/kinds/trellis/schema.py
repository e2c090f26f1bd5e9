"""What a case of kind `trellis` may say: the coded matrix, what multiplies it, what is compared, values to hold to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict, Whole
from harness.subjects.protocol import TrellisSpec

Check = Literal["states", "decode", "tail", "gemv", "partials", "encode", "optimum", "qtip", "exl3", "refused"]
Timed = Literal["decode", "gemv"]
Codebook = Literal["1mad", "2mad", "mul1", "3inst", "mcg", "random"]

Sha256Start = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class TrellisGiven(Strict):
    """The coded matrix [rows, columns], rows being what a product sums over, and the vectors that multiply it."""

    bits: Positive = Field(description="bits a weight (K)")
    state_bits: Positive = Field(description="bits of the window that selects a codeword (L)")
    block: Positive = Field(default=256, description="weights in one circular bit string")
    rows: Positive = Field(description="inputs: what a product sums over; each row has one scale")
    columns: Positive = Field(description="outputs: a multiple of block")
    codebook: Codebook = "1mad"
    interleave: bool = Field(default=False, description="pairs of blocks lie next to each other, row after row")
    symbols: Literal["random", "golden"] = Field(
        default="random", description="golden: symbol t of each block is ((5t + 1) mod 2^bits + t div 7) mod 2^bits"
    )
    scales: Literal["ones", "random", "signed"] = Field(
        default="random", description="one a row: all 1, from 0.5 to 2, or the same with either sign"
    )
    batch: Positive = Field(default=1, description="vectors that multiply the matrix")
    splits: Positive = Field(default=1, description="parts of ceil(rows / splits) rows that are summed on their own")
    dtype: Dtype = Field(default="float32", description="dtype of the vectors")
    variant: str | None = Field(
        default=None, description="the kernel of a product, by name; all: each that applies; none: what a caller gets"
    )
    x: Literal["normal", "one-hot"] = Field(
        default="normal", description="one-hot: vector m is 1 at row m (mod rows), and 0 elsewhere"
    )
    weights: Literal["normal", "decoded"] = Field(
        default="normal",
        description="what is encoded: normal numbers times the scale of their row, or the matrix that the symbols give",
    )
    gain_percent: Positive = Field(
        default=100, description="width of the codebook that normal weights are encoded with; 100: as wide as they are"
    )
    seed: Count = 0

    def spec(self) -> TrellisSpec:
        """Return what a subject is told of the matrix."""
        return TrellisSpec(
            rows=self.rows,
            columns=self.columns,
            bits=self.bits,
            state_bits=self.state_bits,
            block=self.block,
            codebook=self.codebook,
            interleave=self.interleave,
        )


class Expected(Strict):
    """Values, known from elsewhere, that the baseline and the subject must both show, for a matrix of one block.

    An entry holds for the instances that have its `bits`, `state_bits` and `codebook`, where it names them.
    """

    bits: Positive | None = None
    state_bits: Positive | None = None
    codebook: Codebook | None = None
    words: list[Count] = Field(default_factory=list, description="the first words of the block")
    states: dict[int, Count] = Field(default_factory=dict, description="by column: the state")
    levels: dict[int, Whole] = Field(default_factory=dict, description="by column: the whole number before scaling")
    levels_sum: Whole | None = Field(default=None, description="sum of the levels of all columns")
    levels_sha256: Sha256Start | None = Field(
        default=None, description="first 16 hex digits of the SHA-256 of all levels as little-endian int32"
    )
    values: dict[int, float] = Field(default_factory=dict, description="by column: the weight, a float32")

    def applies(self, given: TrellisGiven) -> bool:
        """Whether this entry speaks of an instance with `given`."""
        chosen = {"bits": given.bits, "state_bits": given.state_bits, "codebook": given.codebook}
        return all(getattr(self, key) in (None, value) for key, value in chosen.items())

    def needs_levels(self) -> bool:
        """Whether this entry names levels, which only a byte-sum codebook has."""
        return bool(self.levels) or self.levels_sum is not None or self.levels_sha256 is not None

    def columns(self) -> set[int]:
        """Return the columns that this entry names."""
        return {*self.states, *self.levels, *self.values}


class Gate(Strict):
    """What the mean squared error of encoded normal weights may be, in units of their variance.

    An entry holds for the instances that have its `bits`, `state_bits` and `codebook`, where it names them.
    """

    bits: Positive | None = None
    state_bits: Positive | None = None
    codebook: Codebook | None = None
    mean: float | None = Field(default=None, description="the error as it was measured elsewhere")
    within: float = Field(default=0.02, description="how far off `mean` an error may be, as a share of it")
    at_most: float | None = Field(default=None, description="what an error may not exceed")

    def applies(self, given: TrellisGiven) -> bool:
        """Whether this entry speaks of an instance with `given`."""
        chosen = {"bits": given.bits, "state_bits": given.state_bits, "codebook": given.codebook}
        return all(getattr(self, key) in (None, value) for key, value in chosen.items())


class TrellisCase(CaseModel):
    """A case of kind `trellis`.

    `states` and `decode` compare all weights bit for bit, `tail` only the columns whose window wraps around the end
    of the block. `gemv` compares a product within its rounding bound, and bit for bit where x is one-hot; `partials`
    the sums of each split of a `variant`. `encode`
    decodes what the subject encoded and holds its error to `gates`, or to nothing at all where the weights were decoded
    ones; `optimum` compares the error with the least that is possible. `qtip` and `exl3` convert to another format's
    order and back. `refused`: the format can't be, and the subject must say so.
    """

    kind: Literal["trellis"]
    given: TrellisGiven
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Timed] = Field(default_factory=list)
    expect: list[Expected] = Field(default_factory=list, description="values known from elsewhere")
    same_bits_as: str | None = Field(
        default=None, description="another variant whose sums of every split the variant's must equal, bit for bit"
    )
    gates: list[Gate] = Field(
        default_factory=list, description="errors of encoded normal weights, known from elsewhere"
    )
