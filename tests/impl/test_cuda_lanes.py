"""Which lanes come to a simd operation together, in the text that goes to an NVIDIA GPU."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CpuBackend, metal_kernel
from impl.metal.cuda import CudaBackend
from impl.metal.cuda.flow import ENTRY, Flow, leaving_at_once, one_way_back
from impl.metal.cuda.masks import place
from tests.impl.lane_bodies import BODIES, LaneBody, numbers

# The only ways of meeting that rest on what the hardware shows as active (masks.py).
BY_HARDWARE = {"break inside an if", "break inside an if, and a sum after", "a case that falls into the next"}
QUICK = {"an if in an if", "continue in a while loop", "switch"}
THOROUGH = [pytest.mark.slow, pytest.mark.exhaustive]
EACH = [pytest.param(body, id=body.name, marks=[] if body.name in QUICK else THOROUGH) for body in BODIES]


def ptx_of(tmp_path: Path, source: str, header: str = "", **call: Any) -> str:
    """Return the PTX of a kernel from `x` to `y`."""
    given = {
        "inputs": [mx.zeros((128,), mx.uint32)],
        "grid": (128, 1, 1),
        "threadgroup": (32, 1, 1),
        "output_shapes": [(128,)],
        "output_dtypes": [mx.uint32],
        **call,
    }
    kernel = metal_kernel("probe", ["x"], ["y"], source, header, backend=CudaBackend(target="sm_90", cache=tmp_path))
    kernel.compile(**given)
    (path,) = tmp_path.glob("*.ptx")
    return path.read_bytes()[:-32].decode()


def ptxas() -> str | None:
    """Return NVIDIA's assembler, from the PATH or from a wheel."""
    spec = find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = (path for folder in folders for path in Path(folder).glob("*/bin/ptxas"))
    return shutil.which("ptxas") or next((str(path) for path in found), None)


def assemble(text: str, tmp_path: Path) -> None:
    """Let ptxas, where there is one, read the PTX."""
    program = ptxas()
    if program is not None:
        (tmp_path / "a.ptx").write_text(text)
        ran = subprocess.run(
            [program, "-arch=sm_90", str(tmp_path / "a.ptx"), "-o", str(tmp_path / "a.cubin")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("body", EACH)
def test_hardware_is_asked_only_where_no_count_can_tell(body: LaneBody, tmp_path: Path) -> None:
    text = ptx_of(tmp_path, body.source, body.header)
    assert ("activemask" in text) == (body.name in BY_HARDWARE)
    assert "msl_rt_lanes" not in text
    assert "vote.sync" in text
    assemble(text, tmp_path)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_answers_are_those_of_the_cpu(body: LaneBody) -> None:
    values = numbers(150, 1)
    kernel = metal_kernel("probe", ["x"], ["y"], body.source, body.header, backend=CpuBackend())
    (got,) = kernel(
        inputs=[mx.array(values)],
        grid=(150, 1, 1),
        threadgroup=(100, 1, 1),
        output_shapes=[(150,)],
        output_dtypes=[mx.uint32],
        init_value=0,
    )
    assert (np.array(got) == body.expected(values, 100)).all()


def test_no_store_is_lost_before_the_end_of_a_thread(tmp_path: Path) -> None:
    source = """
        uint sums[4];
        for (uint i = 0; i < 4; ++i) sums[i] = simd_sum(x[thread_index_in_simdgroup + i * 32]);
        if (thread_index_in_simdgroup == 0)
            for (uint i = 0; i < 4; ++i) y[i] = sums[i];
    """
    assert ptx_of(tmp_path, source).count("st.global") == 4


def kernel_text(*blocks: str) -> str:
    """Return LLVM text of a kernel that asks, out of blocks separated by labels."""
    body = "\n".join(blocks)
    return (
        f"define internal void @msl_kernel(i1 %c, i32 %v) {{\n{body}\n}}\n"
        "declare i32 @msl_rt_lanes()\ndeclare i32 @msl_entry_lanes()\n"
    )


def test_all_lanes_come_behind_an_if() -> None:
    text = place(
        kernel_text(
            "  br i1 %c, label %a, label %b",
            "a:\n  br label %b",
            "b:\n  %x = call i32 @msl_rt_lanes()\n  ret void",
        )
    )
    assert text.count("@msl_entry_lanes()") == 2
    assert "vote" not in text.partition("declare")[0]


def test_a_side_has_the_vote_on_its_condition() -> None:
    text = place(
        kernel_text(
            "  br i1 %c, label %a, label %b",
            "a:\n  br label %b2",
            "b:\n  %x = call i32 @msl_rt_lanes()\n  br label %b2",
            "b2:\n  %y = call i32 @msl_rt_lanes()\n  ret void",
        )
    )
    assert "= xor i1 %c, true" in text
    assert text.count("call i32 @llvm.nvvm.vote.ballot.sync") == 1


def test_a_lane_that_returns_before_is_waited_for_by_nobody() -> None:
    # Block b's lanes end on a way of their own, so those of d may count them as arrived.
    text = place(
        kernel_text(
            "  br i1 %c, label %b, label %d",
            "b:\n  br label %end",
            "d:\n  %y = call i32 @msl_rt_lanes()\n  br label %end",
            "end:\n  ret void",
        )
    )
    assert text.count('"exit;"') == 3
    assert "vote" not in text.partition("declare")[0]


def test_a_switch_votes_on_its_cases() -> None:
    text = place(
        kernel_text(
            "  switch i32 %v, label %d [\n    i32 3, label %a\n    i32 5, label %a\n    i32 7, label %b\n  ]",
            "a:\n  %x = call i32 @msl_rt_lanes()\n  br label %e",
            "b:\n  br label %e",
            "d:\n  %y = call i32 @msl_rt_lanes()\n  br label %e",
            "e:\n  %z = call i32 @msl_rt_lanes()\n  ret void",
        )
    )
    assert [text.count(f"icmp eq i32 %v, {n}") for n in (3, 5, 7)] == [2, 2, 1]
    assert "call i32 @llvm.nvvm.activemask" not in text


def test_two_ways_back_become_one() -> None:
    lines = [
        "define void @f() {",
        "  br label %h",
        "h:",
        "  br i1 %c, label %a, label %e",
        "a:",
        "  br i1 %d, label %h, label %b",
        "b:",
        "  br label %h, !llvm.loop !1",
        "e:",
        "  ret void",
        "}",
    ]
    flow = Flow(one_way_back(lines))
    assert flow.predecessors["h"] == [ENTRY, "msl.round.0"]
    assert sorted(flow.predecessors["msl.round.0"]) == ["a", "b"]
    assert flow.loops["h"] == {"h", "a", "b", "msl.round.0"}


def test_each_return_ends_its_thread() -> None:
    lines = [
        "define void @f() {",
        "  br i1 %c, label %a, label %r",
        "a:",
        "  store i32 1, ptr %p",
        "  br label %r",
        "r:",
        "  ret void",
        "}",
    ]
    made = leaving_at_once(lines)
    assert sum("exit;" in line for line in made) == 2
    assert made[made.index("  store i32 1, ptr %p") + 1].startswith("  call void asm")
