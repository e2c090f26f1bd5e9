"""A kernel that only takes long under checks is told apart from one that never ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

import impl.metal.checks
from harness.checking import CheckSettings
from harness.subjects.reference.kernel_watch import WatchingBackend
from impl.metal import CpuBackend, metal_kernel
from impl.metal.checks.finding import Checked, Fault, Finding, Place
from impl.metal.signature import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from impl.metal.backend import Call, Runner
    from impl.metal.native import Report

PLACE = Place("source", 1, 1, "while (true);")
LATE = Finding("k", Fault.TIME_LIMIT, "no end", (PLACE,))
RACE = Finding("k", Fault.RACE, "both", (PLACE, PLACE))
UNWRITTEN = Finding("k", Fault.UNWRITTEN_OUTPUT, "all of it")
ORDERS = ("forward", "reverse")
ZEROS = Text("zeros", ("x",), ("y",), "y[thread_position_in_grid.x] = 0;", "", True, False)


class CutShort:
    """Checks that find what they are told to, and whose outputs are those of a launch that was ended."""

    name = "cut short"
    findings: tuple[Finding, ...] = ()

    def __init__(self, found: Callable[[Checked], object], *, seeds: tuple[int, ...], time_limit_s: float) -> None:
        assert (seeds, time_limit_s) == ((7,), 1.0)
        self._found = found

    def runner(self, text: Text) -> Runner:
        del text
        return self

    def compile(self, call: Call) -> None:
        del call

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        self._found(Checked("k", self.findings, ORDERS))
        return CpuBackend().runner(ZEROS).run(call)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl.metal.checks, "CheckingBackend", CutShort)


def launch(source: str, *findings: Finding) -> tuple[list[float], Checked]:
    heard: list[Checked] = []
    CutShort.findings = findings
    kernel = metal_kernel(
        "k", ["x"], ["y"], source, backend=WatchingBackend(heard.append, CheckSettings((7,), time_limit_s=1.0))
    )
    (y,) = kernel(
        inputs=[mx.ones(8)], grid=(8, 1, 1), threadgroup=(8, 1, 1), output_shapes=[(8,)], output_dtypes=[mx.float32]
    )
    (checked,) = heard
    return y.tolist(), checked


COPY = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x];"


def test_outputs_are_those_of_the_checks() -> None:
    outputs, checked = launch(COPY, RACE, UNWRITTEN)
    assert outputs == [0.0] * 8
    assert checked == Checked("k", (RACE, UNWRITTEN), ORDERS)


# Long enough that the limit of the checks is not hundreds of times as much.
WORK = "float a = x[0]; for (int k = 0; k < 3000000; k++) a = fma(a, 0.999f, x[k % 8]); if (a < 0) return; "


def test_a_kernel_that_ends_without_checks_has_no_fault_and_whole_outputs() -> None:
    outputs, checked = launch(WORK + COPY, LATE, UNWRITTEN, RACE)
    assert outputs == [1.0] * 8
    assert checked.findings == (RACE,), "of outputs that were cut short nothing is known"
    assert checked.orders == ("forward",)
    assert checked.skipped == ("k as a whole: with checks it takes longer than 1 s; give a higher limit",)


@pytest.mark.parametrize("loop", ["while (y[0] >= 0) { y[0] += x[1]; }", "while (x[0] > 0) { y[0] += 1; }"])
def test_a_kernel_that_never_ends_has_one_also_where_the_optimizer_ends_it(loop: str) -> None:
    _, checked = launch(f"{COPY} {loop}", LATE, UNWRITTEN)
    assert checked == Checked("k", (LATE,), ORDERS)
