"""The run on an NVIDIA GPU judges right: its answers, its bounds, and what it says of a kernel that did not run."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CpuBackend
from impl.metal.backend import default_backend
from tests.bench import metal_cuda_parts as parts
from tests.bench.metal_cuda import RIGHT, Row, quartiles, rows


def test_the_answers_for_grids_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GRIDS", [one for one in parts.GRIDS if math.prod(one[0]) < 3000])
    with default_backend(CpuBackend()):
        found = list(parts.grids(CpuBackend()))
    assert {row.verdict for row in found} == {RIGHT}
    assert len(found) == 5


def test_a_wrong_output_is_found_wherever_it_is() -> None:
    expected = np.array([1, np.nan, 3], np.float32)
    assert parts.compared(mx.array(expected), expected) == RIGHT
    assert parts.compared(mx.array([1.0, 2.0, 3.0]), expected).startswith("WRONG at (np.int64(1),): 2.0, not nan")
    assert parts.compared(mx.array([1.0, math.nan, 4.0]), expected).startswith("WRONG")
    assert parts.compared(mx.array([1.0]), expected) == "shape (1,), not (3,)"


@pytest.mark.parametrize(
    ("got", "wanted", "error"),
    [
        (1.0, 1.0, 0.0),
        (1.0 + 2.0**-23, 1.0, 1.0),
        (1.0, 1.0 + 2.0**-24, 0.0),
        (0.0, 2.0**-130, 0.0),
        (math.inf, 1e39, 0.0),
        (math.inf, 1e38, math.inf),
        (math.nan, 1.0, math.inf),
        (math.nan, math.nan, 0.0),
        (1.0, math.nan, math.inf),
        (-math.inf, math.inf, math.inf),
    ],
)
def test_errors_are_counted_in_last_places(got: float, wanted: float, error: float) -> None:
    assert parts.last_places(np.array([got], np.float32), np.array([wanted])).tolist() == [error]


def test_a_kernel_that_the_package_did_not_launch_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("tests.bench.metal_kernels")

    def call(through: str) -> list[mx.array]:
        if through == "operations":
            return [mx.full((4,), 2.0)]
        kernel: Any = mx.fast.metal_kernel("twice", ["x"], ["y"], "y[thread_position_in_grid.x] = 2;")
        made: list[mx.array] = kernel(
            inputs=[mx.zeros((8,))],
            grid=(4, 1, 1),
            threadgroup=(4, 1, 1),
            output_shapes=[(4,)],
            output_dtypes=[mx.float32],
        )
        return made

    def arm(through: str) -> Any:
        answers = {"expected": [np.full(4, 2.0)], "limits": [np.full(4, 1e-6)]}
        return SimpleNamespace(kernel="twice", size="4", call=lambda: call(through), **answers)

    monkeypatch.setattr(kernels, "all_arms", lambda: [arm("operations"), arm("kernel")])
    found = list(parts.mlx_lm(CpuBackend()))
    assert [row.verdict for row in found] == ["the package did not launch it", RIGHT]


def test_a_part_that_breaks_is_a_row_and_the_rest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> Any:
        yield Row("lanes", "first", RIGHT)
        raise ValueError("out of order")

    monkeypatch.setattr(parts, "lanes", breaks)
    monkeypatch.setattr(parts, "grids", lambda _: iter([Row("grids", "next", RIGHT)]))
    found = list(rows(CpuBackend(), ("lanes", "grids")))
    assert [row.verdict for row in found] == [RIGHT, "ValueError: out of order", RIGHT]


def test_quartiles_are_in_order() -> None:
    assert quartiles([5.0, 1.0, 3.0, 2.0, 4.0]) == "3.0 [2.0, 4.0]"
