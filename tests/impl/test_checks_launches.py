"""The backend of the checks as any other one: calls, packages, orders, what it keeps of inputs, its time limit."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CompileError, LaunchError, metal_text
from impl.metal.backend import Call
from impl.metal.checks import Checked, CheckingBackend, Fault, check_call
from impl.metal.checks.checking import _Check
from impl.metal.checks.finding import Finding, Place
from impl.metal.checks.report import merged
from impl.metal.signature import Text
from tests.impl.checked_kernels import Kernel, checked

SOURCE = "uint i = thread_position_in_grid.x;\ny[i] = x[i] + z[i % 4];"


def _call(**changes: object) -> Call:
    given: dict[str, object] = {
        "inputs": (mx.arange(64.0), mx.arange(4.0)),
        "template": (),
        "grid": (64, 1, 1),
        "threadgroup": (32, 1, 1),
        "output_shapes": [(8, 8)],
        "output_dtypes": [mx.float32],
        "init_value": None,
    }
    return Call(**{**given, **changes})  # type: ignore[arg-type]


def _text(source: str) -> Text:
    return Text("plain", ("x", "z"), ("y",), source, "", ensure_row_contiguous=True, atomic_outputs=False)


def test_one_call_gives_outputs_and_what_the_checks_say() -> None:
    outputs, told = check_call(_text(SOURCE), _call(), seeds=(5,))
    np.testing.assert_array_equal(np.asarray(outputs[0]).ravel(), np.arange(64.0) + np.arange(64) % 4)
    assert told == Checked("plain", (), ("forward", "reverse", "random 5"))


def test_every_kernel_of_a_package_is_checked_at_every_launch() -> None:
    told: list[Checked] = []
    with metal_text(backend=CheckingBackend(told.append, seeds=())):
        kernel: Any = mx.fast.metal_kernel("packaged", ["x", "z"], ["y"], SOURCE)
        for size in (64, 63):
            kernel(
                inputs=[mx.arange(float(size)), mx.arange(4.0)],
                grid=(64, 1, 1),
                threadgroup=(32, 1, 1),
                output_shapes=[(64,)],
                output_dtypes=[mx.float32],
            )
    assert [[f.fault for f in one.findings] for one in told] == [[], [Fault.OUT_OF_BOUNDS_READ]]
    (place,) = told[1].findings[0].places
    assert (place.file, place.line, place.text) == ("source", 2, "y[i] = x[i] + z[i % 4];")
    assert SOURCE.split("\n")[1][place.column - 1 :].startswith("x[i]")


def test_inputs_stay_as_they_are() -> None:
    x = mx.arange(64.0)
    mx.eval(x)
    kernel = Kernel(
        "wild", "uint i = thread_position_in_grid.x; ((device float*)x)[i] = 7; y[i] = x[i];", inputs=lambda: [x]
    )
    output, told = checked(kernel, seeds=())
    assert [f.fault for f in told.findings] == [Fault.OUT_OF_BOUNDS_WRITE]
    np.testing.assert_array_equal(np.asarray(x), np.arange(64.0))
    np.testing.assert_array_equal(np.asarray(output), np.arange(64.0))


def test_arrays_without_elements_and_of_one() -> None:
    told = check_call(
        _text("if (thread_position_in_grid.x < x_shape[0]) y[0] = x[0] + z;"),
        _call(inputs=(mx.zeros((0,)), mx.array(1.0)), output_shapes=[(0,)]),
        seeds=(),
    )[1]
    assert told.findings == ()


def test_a_text_that_does_not_compile_and_a_grid_that_no_gpu_takes() -> None:
    with pytest.raises(CompileError, match="source:1:1: error: use of undeclared identifier"):
        check_call(_text("missing(x);"), _call())
    with pytest.raises(LaunchError, match="must be positive"):
        check_call(_text(SOURCE), _call(grid=(0, 1, 1)))


@pytest.mark.slow
def test_orders_that_the_time_limit_leaves_no_room_for_are_skipped_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = "for (uint k = 0; k < 3000000u; ++k) v = fma(v, 0.5f, z[k & 3]);"
    source = f"uint i = thread_position_in_grid.x; float v = x[i];\n{loop}\ny[i] = v;"
    call = _call(grid=(1, 1, 1), output_shapes=[(1,)])
    _, whole = check_call(_text(source), call)
    assert (whole.findings, len(whole.orders)) == ((), 4)
    launched: list[object] = []
    launch = _Check._launch

    def noted(self: _Check, *given: Any) -> Any:
        one = launch(self, *given)
        launched.append(one)
        return one

    monkeypatch.setattr(_Check, "_launch", noted)
    monkeypatch.setattr(_Check, "_left_s", lambda _: 0.002 if launched else 60.0)
    _, told = check_call(_text(source), call)
    assert told.findings == ()
    assert told.orders == ("forward",)
    assert [one.partition(":")[0] for one in told.skipped] == ["order reverse", "order random 1", "order random 2"]


@pytest.mark.slow
def test_many_launches_leave_no_memory_behind() -> None:
    # Each reserves 32 MiB of addresses and more for every buffer; a leak would soon end in LaunchError.
    kernel = Kernel("again", "uint i = thread_position_in_grid.x; y[i] = x[i];")
    for _ in range(100):
        _, told = checked(kernel, seeds=())
        assert told.findings == ()


def _race(lines: tuple[int, int], count: int = 1) -> Finding:
    return Finding("k", Fault.RACE, "m", tuple(Place("source", line, 1, "") for line in lines), count)


def test_orders_that_see_one_fault_tell_of_it_once() -> None:
    assert merged([_race((3, 5)), _race((5, 3), 9), _race((3, 6))]) == (_race((3, 5), 9), _race((3, 6)))


def test_a_read_before_the_write_that_it_races_with_is_one_fault() -> None:
    early = Finding("k", Fault.UNINITIALIZED_READ, "m", (Place("source", 5, 1, ""),))
    other = Finding("k", Fault.UNINITIALIZED_READ, "m", (Place("source", 7, 1, ""),))
    assert merged([early, _race((3, 5)), other]) == (_race((3, 5)), other)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["mem_device", "mem_none"])
def test_what_a_barrier_without_the_flag_still_does(flag: str) -> None:
    # It ends reads: what is written after it, none of them can see.
    reads = (
        "threadgroup float s[64];\nuint i = thread_position_in_grid.x;\ns[i] = x[i];\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\nfloat v = s[63 - i];\n"
        f"threadgroup_barrier(mem_flags::{flag});\ns[i] = v + 1;\n"
    )
    assert checked(Kernel("own", f"{reads}y[i] = s[i];"))[1].findings == ()
    (finding,) = checked(Kernel("others", f"{reads}y[i] = s[63 - i];"))[1].findings
    assert finding.fault is Fault.RACE
    assert sorted(p.line for p in finding.places) == [7, 8]
