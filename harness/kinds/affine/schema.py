"""What a case of kind `affine` may say: a matrix W, how it is quantized, and what it is multiplied with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict

Check = Literal["encode", "decode", "round-trip", "matmul", "gather", "untouched"]
Timed = Literal["quantize", "dequantize", "matmul"]
Bits = Literal[1, 2, 3, 4, 5, 6, 8]
Group = Literal[16, 32, 64, 128]
Mode = Literal["affine", "mxfp4", "mxfp8", "nvfp4", "plain"]
Views = Literal["contiguous", "transposed", "sliced", "stride-0"]
Indices = Literal["any", "sorted", "experts"]
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
    "codes",
    "small",
    "beyond-range",
]
Vectors = Literal["normal", "tens", "sparse", "signs", "one-hot"]

# What a mode leaves no choice of. Plain matrices have neither; theirs are of no account.
_FIXED = {
    "mxfp4": {"bits": 4, "group": 32},
    "mxfp8": {"bits": 8, "group": 32},
    "nvfp4": {"bits": 4, "group": 16},
    "plain": {"bits": 4, "group": 32},
}


class AffineGiven(Strict):
    """The matrix W, its quantization, and the vectors x.

    `inputs` is the axis that a product sums over and `outputs` the one it leaves, so x is [batch, inputs]. W is stored
    as [outputs, inputs] for `orientation: transposed` and as [inputs, outputs] for `plain`; groups run along its last
    axis. With `stack` or `repeats` above 1, x is [stack, repeats, batch, inputs] and W [stack, 1, ...], as attention
    over grouped heads multiplies them. With `picks` x is [repeats, batch, inputs] and W [stack, *, *]: `picks` products
    are each of one block of x and one matrix.
    """

    mode: Mode = Field(
        default="affine", description="the formats of mx.quantize, whose bits and group go without saying; plain: none"
    )
    bits: Bits = Field(description="bits of a code")
    group: Group = Field(description="neighboring values of a row of W that share a scale and a bias")
    dtype: Dtype = Field(description="dtype of W, x, scales and biases of mode affine, and results")
    outputs: Positive = 8
    inputs: Positive = Field(default=128, description="terms of each sum")
    batch: Positive = Field(default=1, description="rows of x")
    stack: Positive = Field(default=1, description="independent matrices on a leading axis")
    repeats: Positive = Field(default=1, description="blocks of x that share each matrix of the stack")
    orientation: Literal["transposed", "plain"] = Field(default="transposed", description="x @ W.T or x @ W")
    data: Data = Field(default="normal", description="values of W")
    x: Vectors = Field(default="normal", description="values of x; all but normal keep sums short or exact")
    views: Views = Field(
        default="contiguous",
        description="how x, W and its planes lie in memory. transposed: columns before rows; sliced: out of a larger "
        "array; stride-0: entries along the first axis with several share one place, and so are equal",
    )
    picks: Positive | None = Field(default=None, description="products of `gather`; with experts, of a block of x")
    indices: Indices = Field(
        default="any",
        description="any: block and matrix of each product, some repeated; sorted: each block once, the matrices "
        "ascending, which the subject is told; experts: every block with `picks` matrices of its own",
    )
    seed: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _format_of_the_mode(cls, data: Any) -> Any:
        mode = data.get("mode", "affine") if isinstance(data, dict) else "affine"
        # Of a mode that there is not, one complaint is enough.
        return data if mode == "affine" else {**_FIXED.get(str(mode), _FIXED["plain"]), **data}

    def unfit_format(self) -> str:
        """Return the first of bits and group that the mode doesn't have, or ''."""
        fixed = _FIXED.get(self.mode, {})
        wrong = [key for key, value in fixed.items() if getattr(self, key) != value]
        if self.mode == "affine" and self.group == _FIXED["nvfp4"]["group"]:
            wrong.append("group")
        return wrong[0] if wrong else ""

    @property
    def microscaling(self) -> bool:
        """Whether W is stored in one of the microscaling formats."""
        return self.mode not in ("affine", "plain")

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
        if self.picks is not None:
            return (self.stack, *matrix)
        return (self.stack, 1, *matrix) if self.stacked else matrix

    def x_shape(self) -> tuple[int, ...]:
        """Return the shape of x."""
        rows = (self.batch, self.inputs)
        if self.picks is not None:
            return (self.repeats, 1, *rows) if self.indices == "experts" else (self.repeats, *rows)
        return (self.stack, self.repeats, *rows) if self.stacked else rows

    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of the product, or of all products of `gather`."""
        if self.picks is not None:
            lead = {"any": (self.picks,), "sorted": (self.repeats,), "experts": (self.repeats, self.picks)}
            return (*lead[self.indices], self.batch, self.outputs)
        return (*self.x_shape()[:-1], self.outputs)


class AffineCase(CaseModel):
    """One behavior of affine quantization or of a product with a quantized matrix."""

    kind: Literal["affine"]
    given: AffineGiven
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Timed] = Field(default_factory=list)
