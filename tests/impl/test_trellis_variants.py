"""Kernels of products: their promises hold in any order of threads, and what does not apply is refused with a reason.

The cases under cases/trellis/ compare every kernel with the baseline in every format; here is what they can't say.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from harness.baseline import trellis as baseline
from harness.kinds.trellis.variants import KNOWN_VARIANTS
from harness.subjects.reference.trellis import ReferenceTrellis
from impl.metal import CpuBackend
from impl.trellis.errors import TrellisFormatError, TrellisShapeError, TrellisVariantError
from impl.trellis.kernels import kernel_text
from impl.trellis.layout import TrellisFormat
from impl.trellis.products import CodedMatrix, kernel_call, partials, product
from impl.trellis.variants import VARIANTS, VARIANTS_BY_NAME, ProductShape, find_variant

ROWS, COLUMNS = 21, 512
WAITING = ("folded-staged", "lookup", "gather", "matrix")


def coded(bits: int = 3, state_bits: int = 12, **format_options: Any) -> tuple[CodedMatrix, np.ndarray[Any, Any]]:
    """Return a random matrix and its float32 weights, by the baseline."""
    layout = TrellisFormat(ROWS, COLUMNS, bits, state_bits, **format_options)
    rng = np.random.default_rng(bits)
    words = rng.integers(0, 2**32, (ROWS, layout.blocks, layout.block_words), dtype=np.uint32)
    scales = rng.uniform(-2, 2, ROWS).astype(np.float32)
    codes = mx.array(baseline.lay_out(words, interleave=layout.interleave))
    weights = baseline.decode(words, scales, bits, state_bits, layout.codebook)
    return CodedMatrix(codes, mx.array(scales), layout), weights


def vectors(batch: int) -> mx.array:
    return mx.array(np.random.default_rng(5).standard_normal((batch, ROWS)).astype(np.float32))


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_kernels_whose_threads_wait_are_right_in_any_order(name: str, seed: int | None) -> None:
    matrix, weights = coded()
    x = vectors(16 if name == "matrix" else 2)
    order = CpuBackend(lane_order="reverse") if seed is None else CpuBackend(lane_order="random", lane_seed=seed)
    made = np.array(product(matrix, x, name, 2, order), np.float64)
    bound = (ROWS + 6) * 2.0**-24 * baseline.absolute_product(np.array(x), weights) * 1.001
    assert (np.abs(made - baseline.product(np.array(x), weights)) <= bound).all()


def test_the_rows_of_a_staged_kernel_may_be_more_than_it_has_room_for() -> None:
    rows = 1100
    layout = TrellisFormat(rows, 256, 2, 8)
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**32, (rows, 1, layout.block_words), dtype=np.uint32)
    weights = baseline.decode(words, np.ones(rows, np.float32), 2, 8, "1mad")
    matrix = CodedMatrix(mx.array(words.reshape(-1)), mx.ones(rows), layout)
    x = rng.standard_normal((1, rows)).astype(np.float32)
    backend = CpuBackend(lane_order="random", lane_seed=7)
    made = np.array(product(matrix, mx.array(x), "folded-staged", 1, backend), np.float64)
    bound = (rows + 5) * 2.0**-24 * baseline.absolute_product(x, weights) * 1.001
    assert (np.abs(made - baseline.product(x, weights)) <= bound).all()


@pytest.mark.parametrize("name", [variant.name for variant in VARIANTS if variant.same_bits_as])
def test_what_is_promised_to_be_the_same_is_the_same(name: str) -> None:
    matrix, _ = coded(2, interleave=True)
    x, other = vectors(3), VARIANTS_BY_NAME[name].same_bits_as
    assert other is not None
    assert VARIANTS_BY_NAME[other].same_bits_as is None
    mine, theirs = (np.array(partials(matrix, x, each, 5)) for each in (name, other))
    assert mine.tobytes() == theirs.tobytes()


def test_folding_is_not_promised_to_be_the_same_for_a_reason() -> None:
    matrix, _ = coded(2, interleave=True)
    x = vectors(3)
    assert not mx.array_equal(partials(matrix, x, "folded", 5), partials(matrix, x, "balanced", 5)).item()


def test_every_row_of_the_registry_is_whole() -> None:
    assert len(VARIANTS_BY_NAME) == len(VARIANTS)
    assert set(VARIANTS_BY_NAME) == set(KNOWN_VARIANTS)
    for variant in VARIANTS:
        assert (variant.file is None) == (variant.launch is None)
        assert variant.file is None or kernel_text(variant.file).startswith("//")
        assert variant.title
        assert variant.why


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("balanced", ProductShape(TrellisFormat(8, 512, 5, 12), 1, 1), "71 bits"),
        ("balanced", ProductShape(TrellisFormat(8, 512, 3, 12, block=128), 1, 1), "blocks of 256 columns, not of 128"),
        ("balanced", ProductShape(TrellisFormat(8, 512, 3, 12, codebook="random"), 1, 1), "is a table"),
        ("word-per-lane", ProductShape(TrellisFormat(8, 512, 5, 12), 1, 1), "40 words, and a simdgroup 32"),
        ("folded-offset", ProductShape(TrellisFormat(8, 512, 3, 12, codebook="mcg"), 1, 1), "no sum of bytes"),
        ("folded-pairs", ProductShape(TrellisFormat(8, 768, 3, 12), 1, 1), "an odd number"),
        ("lookup", ProductShape(TrellisFormat(8, 512, 3, 14), 1, 1), "65536 bytes, and threadgroup memory has 32768"),
        ("matrix", ProductShape(TrellisFormat(8, 512, 3, 12), 15, 1), "batch=15"),
    ],
)
def test_a_kernel_that_does_not_apply_says_why(name: str, shape: ProductShape, reason: str) -> None:
    found = find_variant(name).reason(shape)
    assert found is not None
    assert reason in found
    matrix = CodedMatrix(mx.zeros(shape.layout.words, mx.uint32), mx.zeros(8), shape.layout)
    with pytest.raises(TrellisVariantError, match=f"variant '{name}' does not apply: "):
        product(matrix, mx.zeros((shape.batch, 8)), name, 1)


def test_a_table_of_32_kib_fits() -> None:
    matrix, weights = coded(3, 13)
    x = vectors(1)
    made = np.array(product(matrix, x, "lookup", 1), np.float64)
    bound = (ROWS + 3) * 2.0**-24 * baseline.absolute_product(np.array(x), weights) * 1.001
    assert (np.abs(made - baseline.product(np.array(x), weights)) <= bound).all()


def test_what_does_not_belong_together_is_refused_before_a_kernel_reads_it() -> None:
    matrix, _ = coded()
    with pytest.raises(TrellisShapeError, match=r"uint32 \[1008\] is needed"):
        CodedMatrix(matrix.codes[:-1], matrix.scales, matrix.layout)
    with pytest.raises(TrellisShapeError, match="scales are"):
        CodedMatrix(matrix.codes, matrix.scales.astype(mx.float16), matrix.layout)
    for x in (mx.zeros((1, ROWS + 1)), mx.zeros(ROWS), mx.zeros((1, ROWS), mx.int32), mx.zeros((0, ROWS))):
        with pytest.raises(TrellisShapeError, match=r"\[batch, 21\] is needed"):
            product(matrix, x)
    with pytest.raises(TrellisFormatError, match="splits=0"):
        partials(matrix, vectors(1), "balanced", 0)
    with pytest.raises(TrellisVariantError, match="there is no variant 'balansed'; there are balanced"):
        product(matrix, vectors(1), "balansed", 1)
    with pytest.raises(TrellisVariantError, match="no kernel of its own"):
        kernel_call(find_variant("operations"), matrix, vectors(1), 1)


def test_a_vector_that_lies_in_any_order_is_read_as_it_should_be() -> None:
    matrix, weights = coded()
    x = mx.array(np.random.default_rng(6).standard_normal((ROWS, 2)).astype(np.float32)).T
    made = np.array(product(matrix, x, "balanced", 1), np.float64)
    bound = (ROWS + 3) * 2.0**-24 * baseline.absolute_product(np.array(x), weights) * 1.001
    assert (np.abs(made - baseline.product(np.array(x), weights)) <= bound).all()


def test_the_reference_offers_every_variant_with_its_reason() -> None:
    matrix, _ = coded()
    spec: Any = matrix.layout
    offers = ReferenceTrellis().variants(_spec(spec), batch=2, splits=1)
    assert set(offers) == set(VARIANTS_BY_NAME)
    assert offers["balanced"].reason is None
    assert "batch=2" in str(offers["matrix"].reason)
    assert offers["folded-offset"].rounding == "offset"


def _spec(layout: TrellisFormat) -> Any:
    from harness.subjects.protocol import TrellisSpec

    names = ("rows", "columns", "bits", "state_bits", "block", "codebook", "interleave")
    return TrellisSpec(**{name: getattr(layout, name) for name in names})
