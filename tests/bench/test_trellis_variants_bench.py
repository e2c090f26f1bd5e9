"""The comparison of trellis kernels notices a wrong one, writes every one into its table, and judges by its bars."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner

from impl.trellis.layout import TrellisFormat
from impl.trellis.products import product
from impl.trellis.variants import VARIANTS, find_variant
from tests.bench.trellis_variants import main, matrices
from tests.bench.trellis_variants_report import Row, median_interval, page, right

LAYOUT = TrellisFormat(64, 768, 3, 12)


def test_a_wrong_product_is_told_from_a_right_one() -> None:
    coded = matrices(LAYOUT, 1)[0]
    x = mx.array(np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32))
    for name in ("balanced", "folded-offset", "dequantize"):
        answer = product(coded, x, name, 2)
        assert right(coded, x, find_variant(name), answer, 2)
        # The last block is looked at, too.
        wrong = np.array(answer)
        wrong[1, 767] += 0.2
        assert not right(coded, x, find_variant(name), mx.array(wrong), 2)
    assert not right(coded, x, find_variant("balanced"), mx.full((2, 768), float("nan")), 2)


def test_the_interval_of_a_median_holds_what_the_level_says() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        low, high = median_interval(list(rng.exponential(size=24)))
        inside += low <= np.log(2) <= high
    assert inside >= 985


def test_the_table_is_sorted_and_says_what_does_not_apply() -> None:
    rows = [
        Row("balanced", None, right=True, times=[2e-4] * 3, moved_bytes=10**6),
        Row("folded", None, right=False, times=[1e-4] * 3, moved_bytes=10**6),
        Row("mx.quantized_matmul, 4 bits", None, None, [4e-4] * 3, 2 * 10**6),
        Row("matrix", "batch=1"),
    ]
    text = page(LAYOUT, 1, 4, "cpu", rows, 20e9)
    lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| ")]
    assert [line[1] for line in lines[1:]] == ["folded", "balanced", "mx.quantized_matmul, 4 bits", "matrix"]
    assert lines[1][2:] == ["yes", "NO", "100.0", "100.0 to 100.0", "0.50", "10.0", "0.49", "50%", ""]
    assert lines[4][2] == "no: batch=1"
    assert "`balanced` takes 0.50 of the time of mx.quantized_matmul, 4 bits; asked is 0.5 at most: met" in text


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_command_measures_every_kernel() -> None:
    done = CliRunner().invoke(main, ["--size", "512", "--bits", "3", "--rounds", "2"])
    assert done.exit_code == 0, done.output
    for variant in VARIANTS:
        assert f"| {variant.name} " in done.output
    assert "NO " not in done.output


def test_kernels_can_be_compiled_without_being_run() -> None:
    done = CliRunner().invoke(main, ["--size", "512", "--bits", "3", "--compile-only"])
    assert done.exit_code == 0, done.output
    assert done.output.count(": compiled\n") == len([v for v in VARIANTS if v.file not in (None, "matrix")]) + 1
