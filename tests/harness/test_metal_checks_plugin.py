"""`pytest --metal-checks` in projects of their own: with a stand-in for the checks, and on mlx-lm's own kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(mx.metal.is_available(), reason="there is Metal"),
]

# Runs every kernel as the CPU backend does, and finds a race in those whose text says so.
STAND_IN = """
import impl.metal.checks
from impl.metal import CpuBackend
from impl.metal.checks.finding import Checked, Fault, Finding, Place

PLACES = (Place("source", 3, 1, "y[0] = 1;"), Place("source", 2, 1, "y[0] = 2;"))


class Checking:
    name = "stand-in"

    def __init__(self, found, *, seeds, time_limit_s):
        self.found = found

    def runner(self, text):
        return Runner(self.found, text, CpuBackend().runner(text))


class Runner:
    def __init__(self, found, text, plain):
        self.found, self.text, self.plain = found, text, plain

    def compile(self, call):
        self.plain.compile(call)

    def run(self, call):
        faults = (Finding(self.text.name, Fault.RACE, "both write", PLACES),) if "RACE" in self.text.source else ()
        self.found(Checked(self.text.name, faults, ("forward",), ("the moon",)))
        return self.plain.run(call)


impl.metal.checks.CheckingBackend = Checking
"""
KERNELS = """
import mlx.core as mx
import pytest


def make(name, source):
    kernel = mx.fast.metal_kernel(name, ["x"], ["y"], source)

    def call():
        (y,) = kernel(inputs=[mx.arange(64.0)], grid=(64, 1, 1), threadgroup=(32, 1, 1), output_shapes=[(64,)],
                      output_dtypes=[mx.float32])
        return y

    return call


right = make("right", "uint i = thread_position_in_grid.x; y[i] = x[i];")
wrong = make("wrong", "uint i = thread_position_in_grid.x; y[i] = x[i]; // RACE")
"""
TESTS = (
    KERNELS
    + """

@pytest.fixture
def made():
    return wrong()


def test_none():
    pass

def test_right():
    assert right()[3] == 3

def test_wrong():
    assert wrong()[3] == 3

def test_wrong_in_a_fixture(made, capsys):
    print("it ran")
    assert made[3] == 3

def test_fails_anyhow():
    assert wrong()[3] == 4, "of its own"

def test_skipped():
    wrong()
    pytest.skip("not here")

@pytest.mark.xfail(reason="known")
def test_known():
    assert wrong()[3] == 4

def test_right_after_all_that():
    right()
"""
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done


def outcomes(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for word, name in re.findall(r"^(PASSED|FAILED|SKIPPED|XFAIL|ERROR) .*?(test_\w+)(?: - .*)?$", text, re.MULTILINE):
        found.setdefault(word, set()).add(name)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(STAND_IN)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_test_fails_with_the_faults_of_its_kernels(project: Path, processes: str) -> None:
    done = run(project, "--metal-checks", "-n", processes)
    assert done.returncode == 1, done.stdout + done.stderr
    seen = outcomes(done.stdout)
    assert seen["PASSED"] == {"test_none", "test_right", "test_right_after_all_that"}
    assert seen["FAILED"] == {"test_wrong", "test_wrong_in_a_fixture", "test_fails_anyhow"}
    assert seen["XFAIL"] == {"test_known"}
    assert "2 xfailed" not in done.stdout
    assert re.search(r"3 failed, 3 passed, 1 skipped, 1 xfailed", done.stdout)
    assert "wrong, source:3:1: race: both write\n    3 | y[0] = 1;\n      | ^\n" in done.stdout
    assert "source:2:1: the other access" in done.stdout
    assert "of its own" in done.stdout
    summary = done.stdout.partition(" Metal kernels ===")[2] or done.stdout
    assert "wrong, source:3:1, source:2:1: race (in 5 tests)" in summary
    assert "not checked: the moon" in summary
    assert "checked: 2 kernels, 7 launches, 1 finding" in summary


def test_without_checks_the_kernels_run_and_nothing_fails(project: Path) -> None:
    done = run(project, "--metal-text", "-n", "0")
    assert outcomes(done.stdout)["FAILED"] == {"test_fails_anyhow"}
    assert "race" not in done.stdout
    plain = run(project, "-n", "0")
    assert "No Metal back-end" in plain.stdout
    assert outcomes(plain.stdout)["PASSED"] == {"test_none"}


def test_a_fault_before_all_tests_is_no_success(project: Path) -> None:
    (project / "test_kernels.py").write_text(KERNELS + "\nwrong()\n\n\ndef test_none():\n    pass\n")
    done = run(project, "--metal-checks", "-n", "0")
    assert "1 passed" in done.stdout
    assert "wrong, source:3:1, source:2:1: race" in done.stdout
    assert done.returncode == 1


def test_times_and_checks_do_not_go_together(project: Path) -> None:
    done = run(project, "--metal-checks", "--benchmark", "-n", "0")
    assert done.returncode == 4
    assert "--metal-checks makes kernels slow" in done.stderr


MLX_LM = """
import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm import kernels
from mlx_lm.models.gated_delta import gated_delta_kernel_unpacked
from mlx_lm.tuner import losses


def logits(seed):
    return mx.random.normal((2, 200), key=mx.random.key(seed))


@pytest.mark.parametrize("loss", ["kl_div_loss", "js_div_loss"])
def test_loss(loss):
    assert mx.isfinite(getattr(losses, loss)(logits(1), logits(2))).all()


@pytest.mark.parametrize("kind", ["kl", "js"])
def test_slope(kind):
    q, p = logits(1), logits(2)
    extra = [losses._js_div_loss(q, p)[1]] if kind == "js" else []
    (slope,) = getattr(losses, f"_{kind}_backward_kernel")(
        inputs=[q, p, mx.ones(2), *extra], output_shapes=[q.shape], output_dtypes=[mx.float32],
        template=[("T", mx.float32), ("V", 200)], grid=(1024, 2, 1), threadgroup=(1024, 1, 1),
    )
    assert mx.isfinite(slope).all()


def test_gated_delta():
    q = mx.random.normal((1, 3, 1, 64)) / 8
    v = mx.random.normal((1, 3, 2, 8))
    gate = mx.random.uniform(shape=(1, 3, 2))
    out, state = gated_delta_kernel_unpacked(q, q, v, gate, gate, mx.zeros((1, 2, 8, 64)))
    assert out.shape == v.shape


def test_norm():
    x = mx.random.normal((1, 5, 2 * 3 * 40))
    q, k = kernels.qk_norm(x, n_heads=2, n_kv_heads=1, head_dim=40, eps=1e-5, query_scale=0.25)
    assert mx.isfinite(q).all()
"""


@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
def test_of_mlx_lms_kernels_the_losses_alone_are_reported(tmp_path: Path) -> None:
    from importlib.metadata import version

    if version("mlx-lm") != "0.32.2":
        pytest.skip("what is right in another release is not known here")
    (tmp_path / "test_kernels.py").write_text(MLX_LM)
    done = run(tmp_path, "--metal-checks", "-n", "0")
    assert re.search(r"4 failed, 2 passed", done.stdout), done.stdout
    assert outcomes(done.stdout)["PASSED"] == {"test_gated_delta", "test_norm"}
    summary = done.stdout.partition(" Metal kernels ===")[2]
    texts = mlx_lm_texts()
    seen: dict[str, set[tuple[str, str, str]]] = {}
    for name, places, fault in re.findall(r"^(\w+), (.*): ([\w -]+) \(in \d tests?\)$", summary, re.MULTILINE):
        later, earlier = (texts[name][int(place.split(":")[1]) - 1].strip() for place in places.split(", "))
        seen.setdefault(name, set()).add((fault, later, earlier))
    # A simdgroup that is ahead overwrites the maxima before others have read them.
    maxima = {
        ("race", f"shared[simd_group_id * 2 + {n}] = sum_exp_{of};", f"max_{of} = shared[simd_lane_id * 2 + {n}];")
        for n, of in enumerate("qp")
    }
    # Its last barrier is mem_flags::mem_none, which waits and orders no memory.
    last = {("race", "kl = shared[simd_lane_id];", "shared[simd_group_id] = kl;")}
    assert seen == {
        "kl_forward": maxima | last,
        "kl_backward": maxima,
        "js_forward": maxima,
        "js_backward": maxima,
    }


def mlx_lm_texts() -> dict[str, list[str]]:
    from importlib import import_module

    from impl.metal import metal_text

    losses = import_module("mlx_lm.tuner.losses")
    with metal_text():
        kernels = [
            getattr(losses, f"_{name}_kernel") for name in ("kl_forward", "kl_backward", "js_forward", "js_backward")
        ]
        texts = [kernel.here._text for kernel in kernels]
    return {text.name: text.source.splitlines() for text in texts}
