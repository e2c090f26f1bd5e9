"""Every kernel of the cases and every body of the tests becomes PTX that NVIDIA's assembler takes, where it is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from harness.case.load import load_cases
from harness.kinds.kernel.launches import distinct_launches
from harness.subjects.arrays import to_mlx
from harness.subjects.mlx_kernel import arguments
from harness.subjects.protocol import KernelView
from impl.metal import metal_kernel
from impl.metal.cuda import CudaBackend
from tests.impl.test_cuda_lanes import assemble

if TYPE_CHECKING:
    from harness.subjects.protocol import KernelLaunch, KernelText

CASES = Path(__file__).parents[2] / "cases" / "kernel"
QUICK = ("simdgroup-matrix-product", "histogram-with-atomics")


def compiles(text: KernelText, launch: KernelLaunch, folder: Path, target: str) -> None:
    """Compile for a GPU that is not here, and let the assembler read it."""
    made = metal_kernel(
        text.name,
        text.input_names,
        text.output_names,
        text.source,
        text.header,
        text.ensure_row_contiguous,
        text.atomic_outputs,
        backend=CudaBackend(target=target, cache=folder),
    )
    made.compile(**arguments(launch, [to_mlx(x.memory) if isinstance(x, KernelView) else None for x in launch.inputs]))
    (path,) = folder.glob("*.ptx")
    assemble(path.read_bytes()[:-32].decode(), folder)


@pytest.mark.parametrize("name", QUICK)
def test_a_case_becomes_ptx(name: str, tmp_path: Path) -> None:
    compiles(*distinct_launches(load_cases([CASES / f"{name}.yaml"]))[0], tmp_path, "sm_90")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_kernel_of_the_cases_becomes_ptx(path: Path, tmp_path: Path) -> None:
    for number, (text, launch) in enumerate(distinct_launches(load_cases([path]))):
        (tmp_path / str(number)).mkdir()
        compiles(text, launch, tmp_path / str(number), "sm_90")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_100", "sm_120"])
def test_other_targets(target: str, tmp_path: Path) -> None:
    made = metal_kernel(
        "mixed",
        ["x", "b"],
        ["y"],
        "y[0] = half(simd_sum(float(x[0]) + float(b[0] * b[1]))) + half4(x[1]).zw.x;",
        backend=CudaBackend(target=target, cache=tmp_path),
    )
    made.compile(
        inputs=[mx.zeros((64,), mx.float16), mx.zeros((64,), mx.bfloat16)],
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[mx.float16],
    )
    assert f".target {target}" in next(tmp_path.glob("*.ptx")).read_text("utf-8", "replace")
