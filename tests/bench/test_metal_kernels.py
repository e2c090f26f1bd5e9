"""The report on mlx-lm's kernels measures what it says: right ones pass, a missing barrier shows, and is the fault."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.outcome import KernelFault, KernelPlace
from impl.metal import metal_kernel, metal_text
from tests.bench.metal_columns import cell, check, key, read_column, write_column
from tests.bench.metal_kernels import FAULTS, ORDERS, Seen, _ratio, all_arms, explained, features, kernels_made, run

pytestmark = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")


def test_the_ratio_is_that_of_the_worst_element() -> None:
    expected, limit = np.array([1.0, 2.0, 0.0]), np.array([0.5, 0.25, 0.0])
    assert _ratio(expected, expected, limit) == 0
    assert _ratio(np.array([1.25, 2.5, 0.0]), expected, limit) == 2
    assert _ratio(np.array([1.0, 2.0, 1e-9]), expected, limit) == np.inf
    assert _ratio(np.array([np.nan, 2.0, 0.0]), expected, limit) == np.inf
    assert _ratio(expected[:2], expected, limit) == np.inf


def test_features_are_those_of_the_text() -> None:
    assert features("threadgroup float a[2]; a[0] = simd_sum(x_shape[0]);") == "reductions, threadgroup memory, shapes"


def test_a_cell_names_faults_and_lines(tmp_path: Path) -> None:
    write, read = (KernelPlace("source", line, 3, "") for line in (47, 41))
    race = KernelFault("k", "race", "words", (write, read))
    assert cell([]) == "clean"
    assert cell([race, KernelFault("k", "unwritten output", "words")]) == "race source:47 / source:41; unwritten output"
    write_column(tmp_path / "column.json", "cuda", "one H200", {"k, 2 x 3": "0.5"})
    assert read_column(tmp_path / "column.json") == ("cuda", "one H200", {"k, 2 x 3": "0.5"})


@pytest.mark.slow
def test_checks_find_the_race_and_nothing_else() -> None:
    model_arms, norm_arms = (import_module(f"tests.bench.metal_{name}_arms") for name in ("model", "norm"))
    arms = [model_arms.loss_arms(200)[2], norm_arms._gate_arm()]
    assert [key(arm) for arm in arms] == ["js_forward, 2 x 200", "rms_norm_sigmoid_gate, 2 x 3 x 40"]
    assert [cell(faults) for faults in check(arms)] == [
        "race source:95 / source:84; race source:96 / source:85",
        "clean",
    ]


@pytest.mark.slow
def test_a_missing_barrier_is_the_kernels_fault() -> None:
    model_arms, norm_arms = (import_module(f"tests.bench.metal_{name}_arms") for name in ("model", "norm"))
    losses: Any = import_module("mlx_lm.tuner.losses")
    loss, norm = model_arms.loss_arms(200)[0], norm_arms._gate_arm()
    with metal_text():
        assert not run(norm, ("forward", "reverse", "1")).wrong
        assert run(replace(norm, expected=[norm.expected[0] * (1 + 1e-5)]), ("forward",)).wrong == ["forward"]
        wrong = run(loss)
        assert "forward" not in wrong.wrong
        assert wrong.wrong
        assert set(wrong.ratios) == set(ORDERS)
        lines = explained([wrong, Seen(norm, {"1": 2.0})], [loss])
        assert lines[0].startswith(f"- `kl_forward`: {FAULTS['kl_forward']}. Smallest: 2 x 200 logits, order ")
        assert lines[1] == "- `rms_norm_sigmoid_gate`: not explained."
        kernel = losses._kl_forward_kernel.here
        text, read = kernel._text, "max_p = shared[simd_lane_id * 2 + 1];"
        assert text.source.count(read) == 1
        mended = text.source.replace(read, read + "\nthreadgroup_barrier(mem_flags::mem_threadgroup);")
        losses._kl_forward_kernel = metal_kernel(text.name, text.input_names, text.output_names, mended)
        assert not run(loss).wrong


@pytest.mark.slow
def test_every_kernel_of_the_package_is_called() -> None:
    arms = all_arms()
    with metal_text():
        made = kernels_made()
    assert {arm.kernel for arm in arms} == set(made)
    sites = re.findall(r"metal_kernel\(", "\n".join(text.read_text() for text in _sources()))
    assert len(sites) <= len(made)


def _sources() -> list[Path]:
    root = Path(str(import_module("mlx_lm").__path__[0]))
    return sorted(root.rglob("*.py"))
