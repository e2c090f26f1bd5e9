"""The report on MLX's own operations: what it counts, what it finds on this backend, and that its cases run."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner

from harness.case.load import load_cases, load_file
from harness.execute import execute
from harness.outcome import Outcome
from harness.subjects.mlx_ops import MlxAffine, MlxOperations
from tests.bench import mlx_operations
from tests.bench.mlx_operations_measure import (
    FAILED,
    UNSUPPORTED,
    Cell,
    Tally,
    as_yaml,
    measure,
    run_case,
    shrink,
    with_given,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.subjects.protocol import Affine, AffineArrays

CASES = Path(__file__).parents[2] / "cases"
ON_CPU = mx.default_device() == mx.Device(mx.cpu)
# What fails on MLX 0.32 on a CPU whose backend is not vectorized, by instances.
FAULTS = {
    "affine/range-wider-than-the-largest-number": 3,
    "affine/microscaling-sums-before-the-scale": 1,
    "affine/microscaling-small-weights": 1,
    "affine/nvfp4-encodes-any-number-of-groups": 4,
    "affine/nvfp4-decodes-any-number-of-groups": 4,
    "affine/nvfp4-saturates": 2,
}


def load(case: str) -> list[Instance]:
    return load_file(CASES / f"{case}.yaml")


class TenthOff(MlxAffine):
    """Every product is too large by a tenth, from the second output on."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose).copy()
        result[..., 1:] = (result[..., 1:].astype(np.float64) * 1.1).astype(result.dtype)
        return result


class Wrong(MlxOperations):
    def affine(self) -> Affine:
        return TenthOff()


@pytest.mark.skipif(not ON_CPU, reason="these are faults of the CPU backend")
def test_on_the_cpu_these_cases_fail_and_each_is_judged() -> None:
    instances = [one for case in sorted(FAULTS) for one in load(case)]
    failing: dict[str, int] = {}
    for instance, _ in measure(instances, MlxOperations(), "mlx", {}):
        failing[instance.case_name] = failing.get(instance.case_name, 0) + 1
    assert failing == FAULTS
    assert failing.keys() <= mlx_operations.VERDICTS.keys()


def test_nothing_else_fails_on_mlx_itself() -> None:
    subject = MlxOperations()
    # The report runs them all.
    for instance in load_cases([CASES / "affine", CASES / "attention"], wanted=lambda ids: set(ids[::40])):
        if instance.case_name not in FAULTS:
            ran = run_case(mlx_operations.as_ours(instance), subject)
            assert not ran.bad, (instance.id, ran.reason)
            assert ran.outcome in ("passed", UNSUPPORTED), (instance.id, ran.reason)


def test_the_table_has_the_largest_error_and_counts_what_fails() -> None:
    table: dict[Cell, Tally] = {}
    cell = Cell("mx.quantized_matmul", "affine", "float16")
    instances = [one for one in load("affine/transposed-product-every-format") if "=float16" in one.id]
    assert list(measure(instances, MlxOperations(), "mlx", table)) == []
    right = table[cell]
    assert (right.passed, right.failed, right.bounded) == (21, 0, True)
    assert 0.001 < right.ratio < 1
    failing = list(measure(instances, Wrong(), "mlx", table))
    assert len(failing) == 21
    assert (right.passed, right.failed) == (21, 21)
    assert all(ran.bad == {"matmul"} and ran.outcome == FAILED for _, ran in failing)
    shown = mlx_operations.line(cell, right)
    assert (shown["instances"], shown["fail"]) == ("42", "21")


def test_exact_operations_have_equal_bits_and_what_is_not_offered_is_no_failure() -> None:
    table: dict[Cell, Tally] = {}
    plain = load("affine/picked-plain-matrices")
    assert list(measure(plain, MlxOperations(), "mlx", table)) == []
    assert mlx_operations.line(
        Cell("mx.gather_mm", "plain", "float32"), table[Cell("mx.gather_mm", "plain", "float32")]
    )["error / bound"] == ("equal bits")
    if ON_CPU:
        assert table[Cell("mx.gather_mm", "plain", "float16")].unsupported == 18


def test_a_failing_case_becomes_small_and_is_one_that_runs(tmp_path: Path) -> None:
    (large,) = (
        one
        for one in load("affine/transposed-product-every-format")
        if one.id.endswith("[bits=4,group=64,dtype=float16]")
    )
    small = shrink(mlx_operations.as_ours(large), Wrong(), FAILED)
    # One output alone is right, and a group has 64 values.
    assert (small.given.outputs, small.given.inputs, small.given.batch) == (2, 64, 1)  # type: ignore[union-attr]
    path = tmp_path / "small.yaml"
    path.write_text(as_yaml(small, "why not: 'because'"))
    (again,) = load_file(path)
    assert again.case.given == small.given  # type: ignore[attr-defined]
    assert execute(again, Wrong()).outcome is Outcome.FAILED
    assert execute(again, MlxOperations()).outcome is Outcome.PASSED


def test_sizes_that_make_no_sense_are_not_tried() -> None:
    case = mlx_operations.as_ours(load("affine/transposed-product-every-format")[0])
    assert with_given(case, "inputs", 33) is None
    assert with_given(case, "outputs", 0) is None
    assert with_given(case, "outputs", 3) is not None


def test_the_page_says_what_it_ran_on(tmp_path: Path) -> None:
    file = tmp_path / "operations.md"
    result = CliRunner().invoke(mlx_operations.main, ["--select", "range-wider", "--markdown", str(file)])
    assert result.exit_code == 0, result.output
    text = file.read_text(encoding="utf-8")
    assert f"MLX {version('mlx')}" in text
    assert "--select range-wider" in text
    assert ("Nothing here was seen on Metal" in text) == ON_CPU
    if ON_CPU:
        assert "3 comparisons of an operation with its baseline, of which 3 fail." in text
        assert "data: full-range, seed: 18}" in text
        assert "expected -32752, got -inf" in text
