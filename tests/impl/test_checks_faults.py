"""Each planted fault is found at its line, by name, in words that the author can use; and nothing else is."""

from __future__ import annotations

import pytest

from impl.metal.checks import Fault
from tests.impl.checked_kernels import FAULTY, Faulty, Kernel, checked

QUICK = {
    *("write_past", "threadgroup_past", "private_past", "gap", "read_then_overwritten", "groups", "unwritten"),
    *("uninitialized", "division_by_zero"),
}


def _cases() -> list[object]:
    return [
        pytest.param(one, id=one.kernel.name, marks=() if one.kernel.name in QUICK else pytest.mark.slow)
        for one in FAULTY
    ]


@pytest.mark.parametrize("faulty", _cases())
def test_a_planted_fault_is_found_at_its_line(faulty: Faulty) -> None:
    _, told = checked(faulty.kernel)
    assert [f.fault for f in told.findings] == [faulty.fault], told.findings
    (finding,) = told.findings
    lines = tuple(place.line for place in finding.places)
    # Of two accesses either may come later, by the order of threads in which the fault was seen first.
    assert sorted(lines) == sorted(faulty.lines), finding
    assert faulty.words in finding.message
    texts = {"source": faulty.kernel.source.split("\n"), "header": faulty.kernel.header.split("\n")}
    assert all(place.text == texts[place.file][place.line - 1] for place in finding.places)
    assert told.skipped == ()


def test_an_endless_loop_is_named_and_ended() -> None:
    kernel = Kernel(
        "endless", "uint i = thread_position_in_grid.x;\nuint k = 0;\nwhile (k < 9) {\n  k &= 7;\n}\ny[i] = k;"
    )
    _, told = checked(kernel, time_limit_s=0.3)
    (finding,) = told.findings
    assert (finding.fault, finding.places[0].line) == (Fault.TIME_LIMIT, 3)
    assert told.orders == ("forward",)


@pytest.mark.slow
def test_a_full_stack_is_a_crash_with_its_place() -> None:
    kernel = Kernel(
        "deep",
        "uint i = thread_position_in_grid.x;\nfloat much[100000];\nfor (uint k = 0; k < 100000; ++k)\n"
        "  much[k] = x[i];\ny[i] = much[i];",
    )
    _, told = checked(kernel)
    assert [f.fault for f in told.findings] == [Fault.CRASHED]


@pytest.mark.slow
def test_a_fault_is_told_once_with_its_count() -> None:
    kernel = Kernel(
        "often", "uint i = thread_position_in_grid.x;\nfor (uint k = 0; k < 3; ++k)\n  y[i + 32] = x[i + 32];"
    )
    _, told = checked(kernel, seeds=(1, 2, 3))
    seen = {(f.fault, f.count) for f in told.findings}
    assert (Fault.OUT_OF_BOUNDS_WRITE, 96) in seen
    assert (Fault.OUT_OF_BOUNDS_READ, 96) in seen
    assert told.orders == ("forward", "reverse", "random 1", "random 2", "random 3")
