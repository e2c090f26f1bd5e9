"""A linear layer with trellis-coded weights: rotate, multiply by the kernel that is fastest, rotate back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.metal.errors import ToolchainError, TracedError
from impl.trellis.decode import decode
from impl.trellis.encoder import MatrixEncoder
from impl.trellis.errors import TrellisMatrixError, TrellisShapeError
from impl.trellis.layout import BLOCK, TrellisFormat, join_blocks, split_blocks
from impl.trellis.products import CodedMatrix, product
from impl.trellis.rotation import random_signs, rotate, rotate_back, rotation_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.trellis.encoder import Progress


# With more vectors decoding the matrix once is cheaper than in each of them.
KERNEL_VECTORS = 16


@dataclass(frozen=True, slots=True)
class Rotation:
    """The signs int8 [rows] and [columns] of a matrix that was rotated on both sides before it was coded."""

    row_signs: mx.array
    column_signs: mx.array


@dataclass(frozen=True, slots=True)
class TrellisLinear:
    """x @ matrix, for a trellis-coded matrix [inputs, outputs]: rows are what is summed over, unlike in `nn.Linear`.

    `codes` uint32 in the order of `layout`, `scales` float32 [inputs]. A row has whole blocks, so there may be more
    columns than `outputs`: padding, at the end, or spread evenly where a rotation shall find all blocks alike. With a
    `rotation` it is the rotated matrix that is coded, and the vectors are rotated as well.
    Raises TrellisShapeError for parts that do not belong together.
    """

    layout: TrellisFormat
    codes: mx.array
    scales: mx.array
    outputs: int
    rotation: Rotation | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        rows, columns = self.layout.rows, self.layout.columns
        if self.codes.shape != (self.layout.words,) or self.codes.dtype != mx.uint32:
            raise TrellisShapeError(f"codes are {self.codes.dtype} {list(self.codes.shape)}; {self.layout} has others")
        if self.scales.shape != (rows,) or self.scales.dtype != mx.float32:
            raise TrellisShapeError(
                f"scales are {self.scales.dtype} {list(self.scales.shape)}; float32 [{rows}] needed"
            )
        if not 1 <= self.outputs <= columns:
            raise TrellisShapeError(f"outputs={self.outputs} are not 1 to {columns}, the columns")
        if self.rotation is not None:
            signs = self.rotation.row_signs, self.rotation.column_signs
            if [(part.shape, part.dtype) for part in signs] != [((rows,), mx.int8), ((columns,), mx.int8)]:
                raise TrellisShapeError(f"signs of a rotation are int8 [{rows}] and [{columns}]")

    @property
    def inputs(self) -> int:
        """Numbers that go in."""
        return self.layout.rows

    def bits_per_weight(self) -> float:
        """Return all that is stored, scales and signs (a bit each) included, in bits a weight of the matrix."""
        stored = self.codes.nbytes * 8 + self.scales.nbytes * 8
        if self.rotation is not None:
            stored += self.rotation.row_signs.size + self.rotation.column_signs.size
        return stored / (self.inputs * self.outputs)

    def matrix(self) -> mx.array:
        """Return the decoded matrix, float32 [inputs, outputs], not rotated any more."""
        coded = decode(self.codes, self.scales, self.layout)
        if self.rotation is not None:
            coded = rotate_back(coded, self.rotation.column_signs)
            coded = rotate_back(coded.T, self.rotation.row_signs).T
        return self._without_padding(coded)

    def __call__(self, x: mx.array) -> mx.array:
        """Return x @ matrix in the dtype of `x`, [..., outputs] for [..., inputs]; raises TrellisShapeError.

        It is computed in float32, with `x` rotated before and the result after: for a few vectors by the kernel that
        `choose` names for this machine; for many, without a compiler, and while MLX traces a function on a CPU by plain
        operations, codewords times scales first. Gradients for `x` are those of the decoded matrix.
        """
        if not x.shape or x.shape[-1] != self.inputs or not mx.issubdtype(x.dtype, mx.floating):
            raise TrellisShapeError(f"x is {x.dtype} {list(x.shape)}; a float type and [..., {self.inputs}] are needed")
        if not x.size:
            # MLX turns no empty arrays.
            return mx.zeros((*x.shape[:-1], self.outputs), x.dtype)
        numbers = x.astype(mx.float32)
        if self.rotation is not None:
            numbers = rotate(numbers, self.rotation.row_signs)
        found = self._multiplied(numbers)
        if self.rotation is not None:
            found = rotate_back(found, self.rotation.column_signs)
        return self._without_padding(found).astype(x.dtype)

    def _multiplied(self, numbers: mx.array) -> mx.array:
        if numbers.size <= KERNEL_VECTORS * self.inputs:
            # Elsewhere the same is computed by plain operations.
            with contextlib.suppress(ToolchainError, TracedError):
                vectors: mx.array = _by_kernel(self)(numbers.reshape(-1, self.inputs))
                return vectors.reshape(*numbers.shape[:-1], self.layout.columns)
        return numbers @ decode(self.codes, self.scales, self.layout)

    def _without_padding(self, numbers: mx.array) -> mx.array:
        if self.outputs == self.layout.columns:
            return numbers
        return numbers[..., output_columns(self.outputs, self.layout.columns, rotated=self.rotation is not None)]


def _by_kernel(linear: TrellisLinear) -> Any:
    """Return the product of [vectors, inputs] by a kernel, which has no gradient of its own, with the right one."""
    matrix = CodedMatrix(linear.codes, linear.scales, linear.layout)
    multiplied = mx.custom_function(lambda vectors: product(matrix, vectors))

    @multiplied.vjp
    def gradient(_vectors: mx.array, cotangent: mx.array, _output: mx.array) -> mx.array:
        return cotangent @ decode(linear.codes, linear.scales, linear.layout).T

    return multiplied


def output_columns(outputs: int, columns: int, *, rotated: bool) -> mx.array:
    """Return the column of every output, int32 [outputs], among `columns` with padding."""
    first = mx.arange(outputs, dtype=mx.int32)
    # In 64 bits: outputs times columns is more than 32 of them hold.
    return (first.astype(mx.int64) * columns // outputs).astype(mx.int32) if rotated else first


@dataclass(frozen=True, slots=True)
class LinearEncoder:
    """A layer in the making: `rows` encodes its matrix, rotated and padded, row by row; see `MatrixEncoder`."""

    rows: MatrixEncoder
    outputs: int
    rotation: Rotation | None

    def linear(self) -> TrellisLinear:
        """Return the layer; raises TrellisMatrixError before all rows are done."""
        codes, scales = self.rows.result()
        return TrellisLinear(self.rows.layout, codes, scales, self.outputs, self.rotation)


def linear_encoder(
    weight: mx.array,
    bits: int,
    state_bits: int = 12,
    *,
    codebook: str = "1mad",
    interleave: bool = False,
    rotate_both_sides: bool = True,
    seed: int = 0,
    gains: Sequence[float] = (1.0,),
    **options: Any,
) -> LinearEncoder:
    """Return what encodes `weight` [inputs, outputs] (of a `nn.Linear`, its weight transposed), of any float type.

    Zeros fill the outputs up to whole blocks, or pairs of blocks with `interleave`. `seed` draws the signs of the
    rotation; `gains` and further options are those of `MatrixEncoder`. Raises TrellisMatrixError for a weight that is
    no finite matrix, TrellisFormatError for what does not exist, or inputs that can't be rotated in blocks.
    """
    if weight.ndim != 2 or not mx.issubdtype(weight.dtype, mx.floating) or not weight.size:
        raise TrellisMatrixError(f"a weight is a float matrix [inputs, outputs], not {weight.dtype} {weight.shape}")
    inputs, outputs = weight.shape
    unit = BLOCK * (1 + interleave)
    columns = -(-outputs // unit) * unit
    layout = TrellisFormat(inputs, columns, bits, state_bits, BLOCK, codebook, interleave)
    places = output_columns(outputs, columns, rotated=rotate_both_sides)
    matrix = mx.zeros((inputs, columns), mx.float32)
    matrix[:, places] = weight.astype(mx.float32)
    rotation = None
    if rotate_both_sides:
        rotation_block(inputs)
        rotation = Rotation(random_signs(inputs, 2 * seed), random_signs(columns, 2 * seed + 1))
        matrix = rotate(matrix.T, rotation.row_signs).T
        matrix = rotate(matrix, rotation.column_signs)
    else:
        # Zeros at the end make a row look narrower than what counts of it.
        gains = [gain * (columns / outputs) ** 0.5 for gain in gains]
    mx.eval(matrix)
    return LinearEncoder(MatrixEncoder(matrix, layout, gains, **options), outputs, rotation)


def quantize_linear(weight: mx.array, bits: int, state_bits: int = 12, **options: Any) -> TrellisLinear:
    """Return `weight` [inputs, outputs] as a layer; `options` are those of `linear_encoder`, and `progress`."""
    progress: Progress | None = options.pop("progress", None)
    encoder = linear_encoder(weight, bits, state_bits, **options)
    encoder.rows.run(progress)
    return encoder.linear()


def with_layout(linear: TrellisLinear, *, interleave: bool) -> TrellisLinear:
    """Return the same layer in the other layout; raises OddBlocksError when its blocks can't be paired."""
    layout = replace(linear.layout, interleave=interleave)
    codes = join_blocks(split_blocks(linear.codes, linear.layout), layout)
    return replace(linear, layout=layout, codes=codes)
