"""The kernels of a product with a trellis-coded matrix, all with one contract, and what each of them promises.

From codes, scales and `x` [batch, rows] each makes float32 sums [batch, splits, columns], of ceil(rows / splits) rows a
split, the last ones fewer or none; `impl.trellis.products` adds them. A new kernel is a file in `kernels/` and a row in
`VARIANTS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from impl.trellis import geometry
from impl.trellis.errors import TrellisVariantError
from impl.trellis.layout import BLOCK, TrellisFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from impl.trellis.geometry import Launch

# How the sums of a variant are rounded, and so how far they may be from the exact ones: `direct` as the format says (a
# codeword, times scale, times x, added); `folded`: scale and x are multiplied first; `offset`: folded, and what is
# summed are bytes, of which 510 times the sum of all factors is subtracted in the end; `matmul`: a matrix product of
# MLX, whose inputs some devices round to fewer bits.
Rounding = Literal["direct", "folded", "offset", "matmul"]

COMPUTED_CODEBOOKS: Final = ("1mad", "2mad", "mul1", "3inst", "mcg")
BYTE_SUM_CODEBOOKS: Final = ("1mad", "2mad", "mul1")
FALLBACK: Final = "balanced"
ANYTHING: Final = "operations"
_THREADGROUP_BYTES: Final = 32768
_MOST_ALIGNED_BITS: Final = 4
_FEWEST_MATRIX_VECTORS: Final = 16


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A product of `batch` vectors with a matrix, summed in `splits` parts of rows."""

    layout: TrellisFormat
    batch: int
    splits: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to make the sums.

    `file` is its text in `kernels/`; None for one that is no kernel of its own. `reason(shape)` says why it does not
    apply, or None; `launch(shape, backend)` how it is started. `inputs` beside codes, scales, x and shape: `book`, all
    codewords. It promises the same bits as `same_bits_as`, for the same splits, and the `rounding`; `why` says what
    the idea is.
    """

    name: str
    title: str
    why: str
    file: str | None
    reason: Callable[[ProductShape], str | None]
    launch: Callable[[ProductShape, str], Launch] | None
    rounding: Rounding = "direct"
    same_bits_as: str | None = None
    inputs: tuple[str, ...] = ()


def _aligned(shape: ProductShape) -> str | None:
    layout = shape.layout
    if layout.block != BLOCK:
        return f"a simdgroup has blocks of {BLOCK} columns, not of {layout.block}"
    if layout.bits > _MOST_ALIGNED_BITS:
        needed = 24 + 7 * layout.bits + layout.state_bits if layout.bits % 4 else 7 * layout.bits + layout.state_bits
        return f"eight windows of {layout.bits} bits a weight can take {needed} bits, and a lane reads two words of 32"
    return None


def _computed(shape: ProductShape) -> str | None:
    if shape.layout.codebook not in COMPUTED_CODEBOOKS:
        return f"codebook {shape.layout.codebook!r} is a table; this kernel computes {', '.join(COMPUTED_CODEBOOKS)}"
    return _aligned(shape)


def _pairs(shape: ProductShape) -> str | None:
    if shape.layout.blocks % 2:
        return f"a simdgroup has two blocks, and {shape.layout.columns} columns are an odd number of them"
    return _computed(shape)


def _word_per_lane(shape: ProductShape) -> str | None:
    layout = shape.layout
    if layout.block == BLOCK and layout.bits > _MOST_ALIGNED_BITS:
        return f"a block has {layout.block_words} words, and a simdgroup 32 lanes"
    return _computed(shape)


def _byte_sums(shape: ProductShape) -> str | None:
    if shape.layout.codebook not in BYTE_SUM_CODEBOOKS:
        return f"codebook {shape.layout.codebook!r} is no sum of bytes, as {', '.join(BYTE_SUM_CODEBOOKS)} are"
    return _aligned(shape)


def _fits_threadgroup(shape: ProductShape) -> str | None:
    if (table_bytes := 4 << shape.layout.state_bits) > _THREADGROUP_BYTES:
        size = f"2^{shape.layout.state_bits} codewords take {table_bytes} bytes"
        return f"{size}, and threadgroup memory has {_THREADGROUP_BYTES}"
    return _aligned(shape)


def _many_vectors(shape: ProductShape) -> str | None:
    if shape.batch < _FEWEST_MATRIX_VECTORS:
        return f"batch={shape.batch}; it multiplies {_FEWEST_MATRIX_VECTORS} vectors at a time, and needs as many"
    return _computed(shape)


def _always(_: ProductShape) -> str | None:
    return None


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(
        name="balanced",
        title="balanced scatter: eight columns a lane",
        why="every lane has work with any number of bits, and aligns its words once for eight windows",
        file="balanced",
        reason=_computed,
        launch=geometry.blocks,
    ),
    Variant(
        name="word-per-lane",
        title="word per lane: the columns whose windows start in it",
        why="no alignment, but 3 bits a weight use 24 of 32 lanes, and 2 bits 16",
        file="word_per_lane",
        reason=_word_per_lane,
        launch=geometry.blocks,
        same_bits_as="balanced",
    ),
    Variant(
        name="balanced-rows",
        title="balanced scatter, words of several rows loaded ahead",
        why="loads are under way while earlier rows are decoded",
        file="balanced_rows",
        reason=_computed,
        launch=geometry.hoisted_blocks,
        same_bits_as="balanced",
    ),
    Variant(
        name="folded",
        title="scale and factor folded into x, bits of 2^23 for a conversion, rows loaded ahead",
        why="two multiplications and a conversion less for each weight",
        file="folded",
        reason=_computed,
        launch=geometry.hoisted_blocks,
        rounding="folded",
    ),
    Variant(
        name="folded-pairs",
        title="folded, two blocks a simdgroup",
        why="what a row costs beside its weights is shared by 16 of them",
        file="folded_pairs",
        reason=_pairs,
        launch=geometry.pairs,
        rounding="folded",
    ),
    Variant(
        name="folded-staged",
        title="folded, factors of rows made once a threadgroup",
        why="the simdgroups of a threadgroup share what folding costs",
        file="folded_staged",
        reason=_computed,
        launch=geometry.staged_blocks,
        rounding="folded",
    ),
    Variant(
        name="folded-offset",
        title="folded, bytes summed as they are, their mean subtracted once",
        why="one subtraction less for each weight, paid for with precision",
        file="folded_offset",
        reason=_byte_sums,
        launch=geometry.blocks,
        rounding="offset",
    ),
    Variant(
        name="lookup",
        title="all codewords in threadgroup memory",
        why="one read instead of arithmetic, so any codebook; 2^state_bits floats must fit",
        file="lookup",
        reason=_fits_threadgroup,
        launch=geometry.wide_blocks,
        same_bits_as="balanced",
        inputs=("book",),
    ),
    Variant(
        name="tiled",
        title="several vectors at a time",
        why="a weight is decoded once for all vectors of a tile",
        file="tiled",
        reason=_computed,
        launch=geometry.tiles,
        same_bits_as="balanced",
    ),
    Variant(
        name="gather",
        title="lanes along the rows, added by simd_sum",
        why="few columns need few splits, since each column has 32 sums",
        file="gather",
        reason=_computed,
        launch=geometry.runs,
    ),
    Variant(
        name="matrix",
        title="simdgroup matrices, for many vectors",
        why="weights are decoded once for 16 vectors and multiplied by the matrix unit",
        file="matrix",
        reason=_many_vectors,
        launch=geometry.strips,
    ),
    Variant(
        name="dequantize",
        title="the matrix decoded by a kernel, then MLX's matrix product",
        why="for many vectors the product costs more than writing the matrix",
        file="dequantize",
        reason=_computed,
        launch=geometry.matrix_runs,
        rounding="matmul",
    ),
    Variant(
        name=ANYTHING,
        title="plain MLX operations",
        why="applies to everything and needs no kernel: what the others are compared with",
        file=None,
        reason=_always,
        launch=None,
    ),
)
VARIANTS_BY_NAME: Final = {variant.name: variant for variant in VARIANTS}


def find_variant(name: str) -> Variant:
    """Return the variant called `name`; raises TrellisVariantError when there is none."""
    if name not in VARIANTS_BY_NAME:
        raise TrellisVariantError(f"there is no variant {name!r}; there are {', '.join(VARIANTS_BY_NAME)}")
    return VARIANTS_BY_NAME[name]
