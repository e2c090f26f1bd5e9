"""x @ matrix for a trellis-coded matrix, by any of the variants of `impl.trellis.variants`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx

from impl.metal import metal_kernel
from impl.metal.backend import METAL
from impl.metal.backend import choose as choose_backend
from impl.trellis.choices import choose
from impl.trellis.codebooks import codeword_table
from impl.trellis.errors import TrellisFormatError, TrellisShapeError, TrellisVariantError
from impl.trellis.gemv import partial_sums, split_rows
from impl.trellis.kernels import kernel_text
from impl.trellis.variants import COMPUTED_CODEBOOKS, ProductShape, Variant, find_variant

if TYPE_CHECKING:
    from impl.metal.backend import Backend
    from impl.trellis.layout import TrellisFormat

_INPUTS: Final = ("codes", "scales", "x", "shape")
_DTYPES: Final = (mx.float32, mx.float16, mx.bfloat16)


@dataclass(frozen=True, slots=True)
class CodedMatrix:
    """A matrix [rows, columns]: `codes` uint32 in the order of `layout`, `scales` float32 [rows].

    Raises TrellisShapeError when they do not belong together.
    """

    codes: mx.array
    scales: mx.array
    layout: TrellisFormat

    def __post_init__(self) -> None:
        """Refuse what a kernel would read beyond."""
        words, rows = self.layout.words, self.layout.rows
        if self.codes.shape != (words,) or self.codes.dtype != mx.uint32:
            raise TrellisShapeError(
                f"codes are {self.codes.dtype} {list(self.codes.shape)}; uint32 [{words}] is needed"
            )
        if self.scales.shape != (rows,) or self.scales.dtype != mx.float32:
            kind = f"{self.scales.dtype} {list(self.scales.shape)}"
            raise TrellisShapeError(f"scales are {kind}; {mx.float32} [{rows}] is needed")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel and the arguments of one call of it."""

    kernel: Any
    arguments: dict[str, Any]

    def __call__(self) -> mx.array:
        """Return its only output."""
        output: mx.array = self.kernel(**self.arguments)[0]
        return output


def product(
    matrix: CodedMatrix,
    x: mx.array,
    variant: str | None = None,
    splits: int | None = None,
    backend: str | Backend | None = None,
) -> mx.array:
    """Return x @ matrix, float32 [batch, columns], for `x` [batch, rows] of float32, float16 or bfloat16.

    `variant` and `splits` are what `choose` finds for this shape, unless given. Raises TrellisVariantError for a
    variant that does not exist or apply, TrellisShapeError for an x that does not belong to the matrix,
    TrellisFormatError for splits less than 1.
    """
    check_vectors(matrix.layout, x)
    name = backend_name(backend)
    if variant is None or splits is None:
        choice = choose(matrix.layout, x.shape[0], name, variant)
        variant, splits = choice.variant, splits or choice.splits
    sums = partials(matrix, x, variant, splits, backend)
    if splits == 1:
        return sums[:, 0]
    return reduction_call(sums, backend)()


def partials(
    matrix: CodedMatrix, x: mx.array, variant: str, splits: int = 1, backend: str | Backend | None = None
) -> mx.array:
    """Return float32 sums [batch, splits, columns] by the variant; raises as `product` does."""
    check_vectors(matrix.layout, x)
    chosen = find_variant(variant)
    check_applies(chosen, ProductShape(matrix.layout, x.shape[0], splits))
    if chosen.file is None:
        return partial_sums(matrix.codes, matrix.scales, x, matrix.layout, splits)
    call = kernel_call(chosen, matrix, x, splits, backend)
    if chosen.rounding != "matmul":
        return call()
    weights, numbers = call(), x.astype(mx.float32)
    parts = [slice(rows.start, rows.stop) for rows in split_rows(matrix.layout.rows, splits)]
    # Without rows MLX's product is zero.
    return mx.stack([numbers[:, part] @ weights[part] for part in parts], axis=1)


def check_vectors(layout: TrellisFormat, x: mx.array) -> None:
    """Raise TrellisShapeError unless `x` is [batch, rows] of a type that kernels take."""
    if x.ndim != 2 or not x.shape[0] or x.shape[1] != layout.rows or x.dtype not in _DTYPES:
        needed = f"float32, float16 or bfloat16 [batch, {layout.rows}]"
        raise TrellisShapeError(f"x is {x.dtype} {list(x.shape)}; {needed} is needed")


def check_applies(variant: Variant, shape: ProductShape) -> None:
    """Raise TrellisVariantError when the variant does not apply, TrellisFormatError for splits less than 1."""
    if shape.splits < 1:
        raise TrellisFormatError(f"splits={shape.splits}; use 1 for a sum in one part")
    if (reason := variant.reason(shape)) is not None:
        raise TrellisVariantError(f"variant {variant.name!r} does not apply: {reason}")


def backend_name(backend: str | Backend | None) -> str:
    """Return the name of the backend that will be used: `metal`, `cpu`, ..."""
    chosen = choose_backend(backend)
    return METAL if chosen is None else chosen.name


def kernel_call(
    variant: Variant, matrix: CodedMatrix, x: mx.array, splits: int, backend: str | Backend | None = None
) -> KernelCall:
    """Return the call of a variant that has a kernel; it can be compiled for (`impl.metal.compile_all`) or made."""
    layout = matrix.layout
    if variant.file is None or variant.launch is None:
        raise TrellisVariantError(f"variant {variant.name!r} has no kernel of its own")
    shape = ProductShape(layout, x.shape[0], splits)
    launch = variant.launch(shape, backend_name(backend))
    inputs = [matrix.codes, matrix.scales, x, _numbers(layout, shape.batch, splits)]
    if "book" in variant.inputs:
        inputs.append(codeword_table(layout.codebook, layout.state_bits))
    # A kernel that reads codewords is the same for every codebook.
    codebook = -1 if "book" in variant.inputs else COMPUTED_CODEBOOKS.index(layout.codebook)
    template = [("T", x.dtype), ("K", layout.bits), ("CODEBOOK", codebook)]
    decodes = variant.rounding == "matmul"
    return KernelCall(
        _kernel(variant, _resolved(backend)),
        {
            "inputs": inputs,
            "template": [*template, *launch.template],
            "grid": launch.grid,
            "threadgroup": launch.threadgroup,
            "output_shapes": [(layout.rows, layout.columns) if decodes else (shape.batch, splits, layout.columns)],
            "output_dtypes": [mx.float32],
        },
    )


def reduction_call(sums: mx.array, backend: str | Backend | None = None) -> KernelCall:
    """Return the call that adds sums [batch, splits, columns] over the splits, in ascending order."""
    batch, splits, columns = sums.shape
    arguments = {
        "inputs": [sums, mx.array([0, columns, splits], mx.int32)],
        "grid": (columns, batch, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [(batch, columns)],
        "output_dtypes": [mx.float32],
    }
    return KernelCall(_reduction(_resolved(backend)), arguments)


def _resolved(backend: str | Backend | None) -> Any:
    # What None stands for can change from call to call, so kernels are kept by what it was found to be.
    return choose_backend(backend) or METAL


@lru_cache(maxsize=64)
def _kernel(variant: Variant, backend: Any) -> Any:
    assert variant.file is not None  # noqa: S101 - the caller has looked
    output = "matrix" if variant.rounding == "matmul" else "partial"
    name = f"trellis_{variant.file}"
    inputs = [*_INPUTS, *variant.inputs]
    return metal_kernel(name, inputs, [output], kernel_text(variant.file), kernel_text("product"), backend=backend)


@lru_cache(maxsize=8)
def _reduction(backend: Any) -> Any:
    text = kernel_text("add_partials")
    return metal_kernel("trellis_add_partials", ["partial", "shape"], ["y"], text, backend=backend)


@lru_cache(maxsize=64)
def _numbers(layout: TrellisFormat, batch: int, splits: int) -> mx.array:
    numbers = [layout.rows, layout.columns, splits, int(layout.interleave), batch, layout.state_bits]
    return mx.array(numbers, mx.int32)
