"""What a case of kind `affine` may say: a matrix W, how it is quantized, and what it is multiplied with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict

Check = Literal["encode", "decode", "round-trip", "matmul", "untouched"]
Timed = Literal["quantize", "dequantize", "matmul"]
Bits = Literal[1, 2, 3, 4, 5, 6, 8]
Group = Literal[32, 64, 128]
Data = Literal[
    "normal",
    "integers",
    "constant",
    "zeros",
    "tiny",
    "symmetric",
    "min-dominates",
    "max-dominates",
    "negative",
    "between-codes",
    "large",
    "full-range",
]
Vectors = Literal["normal", "sparse", "signs", "one-hot"]


class AffineGiven(Strict):
    """The matrix W, its quantization, and the vectors x.

    `inputs` is the axis that a product sums over and `outputs` the one it leaves, so x is [batch, inputs]. W is stored
    as [outputs, inputs] for `orientation: transposed` and as [inputs, outputs] for `plain`; groups run along its last
    axis. With `stack` or `repeats` above 1, x is [stack, repeats, batch, inputs] and W [stack, 1, ...], as attention
    over grouped heads multiplies them.
    """

    bits: Bits = Field(description="bits of a code")
    group: Group = Field(description="neighboring values of a row of W that share a scale and a bias")
    dtype: Dtype = Field(description="dtype of W, x, scales, biases and results")
    outputs: Positive = 8
    inputs: Positive = Field(default=128, description="terms of each sum")
    batch: Positive = Field(default=1, description="rows of x")
    stack: Positive = Field(default=1, description="independent matrices on a leading axis")
    repeats: Positive = Field(default=1, description="blocks of x that share each matrix of the stack")
    orientation: Literal["transposed", "plain"] = Field(default="transposed", description="x @ W.T or x @ W")
    data: Data = Field(default="normal", description="values of W")
    x: Vectors = Field(default="normal", description="values of x; all but normal keep sums short or exact")
    seed: Count = 0

    @property
    def transposed(self) -> bool:
        """Whether the product is x @ W.T."""
        return self.orientation == "transposed"

    @property
    def stacked(self) -> bool:
        """Whether x and W have leading axes."""
        return self.stack > 1 or self.repeats > 1

    def weight_shape(self) -> tuple[int, ...]:
        """Return the shape of W as it is stored."""
        matrix = (self.outputs, self.inputs) if self.transposed else (self.inputs, self.outputs)
        return (self.stack, 1, *matrix) if self.stacked else matrix

    def x_shape(self) -> tuple[int, ...]:
        """Return the shape of x."""
        rows = (self.batch, self.inputs)
        return (self.stack, self.repeats, *rows) if self.stacked else rows

    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of the product."""
        return (*self.x_shape()[:-1], self.outputs)


class AffineCase(CaseModel):
    """One behavior of affine quantization or of a product with a quantized matrix."""

    kind: Literal["affine"]
    given: AffineGiven
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Timed] = Field(default_factory=list)
