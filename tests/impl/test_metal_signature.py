"""The generated source is MLX's own, and every thread attribute has the value that dispatchThreads gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.metal import CpuBackend, MetalKernel, metal_kernel
from impl.metal.signature import ATTRIBUTES, Text, input_types, metal_source

if TYPE_CHECKING:
    from pathlib import Path

EVERY_ATTRIBUTE = " ".join(f"(void){name};" for name in ATTRIBUTES)
CASES: dict[str, dict[str, Any]] = {
    "plain": {"inputs": [mx.zeros((64,))], "source": "y[thread_position_in_grid.x] = x0[0];"},
    "every attribute": {"inputs": [mx.zeros((64,))], "source": f"y[0] = x0[0]; {EVERY_ATTRIBUTE}"},
    "small inputs are constant": {
        "inputs": [mx.zeros((7,)), mx.zeros((8,), mx.int8), mx.array(2), mx.array(1.5), mx.array(True)],
        "source": "y[0] = x0[0] + x1[0] + x2 + x3 + x4 + thread_index_in_threadgroup;",
    },
    "shape, strides and ndim": {
        "inputs": [mx.zeros((8, 2), mx.bfloat16), mx.array(2.0)],
        "source": "y[thread_position_in_grid.x] = x0_shape[0] + x0_strides[1] + x0_ndim + x1_shape;",
    },
    "templates": {
        "inputs": [mx.zeros((64,), mx.uint8)],
        "source": "y[thread_position_in_grid.x] = T(x0[0]) + N + B;",
        "template": [("T", mx.bfloat16), ("N", -3), ("B", True), ("C", False)],
        "header": "inline int twice(int n) { return 2 * n; }\n",
    },
    "atomic outputs": {
        "inputs": [mx.zeros((64,), mx.int64)],
        "source": "atomic_fetch_add_explicit(&y[0], 1, memory_order_relaxed); (void)thread_position_in_grid;",
        "atomic_outputs": True,
        "output_dtypes": [mx.uint32],
    },
    "two outputs": {
        "inputs": [mx.zeros((64,), mx.float16)],
        "source": "y[thread_position_in_grid.x] = x0[0]; z[0] = 1;",
        "output_names": ["y", "z"],
        "output_dtypes": [mx.float16, mx.bool_],
    },
}


@pytest.mark.skipif(mx.metal.is_available(), reason="MLX then runs the kernel instead of recording it")
@pytest.mark.parametrize("name", CASES)
def test_source_is_what_mlx_generates(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    inputs: list[mx.array] = case["inputs"]
    names = [f"x{i}" for i in range(len(inputs))]
    outputs, dtypes = case.get("output_names", ["y"]), case.get("output_dtypes", [mx.float32])
    header, template, atomic = case.get("header", ""), case.get("template", []), case.get("atomic_outputs", False)
    kernel: Any = mx.fast.metal_kernel("probe", names, outputs, case["source"], header, atomic_outputs=atomic)

    def call(*arrays: mx.array) -> Any:
        return kernel(
            inputs=list(arrays),
            template=template,
            grid=(64, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(64,)] * len(outputs),
            output_dtypes=dtypes,
            verbose=True,
        )

    # While a function is exported MLX prints what it would compile, also without Metal.
    mx.export_function(str(tmp_path / "probe.mlxfn"), call, *inputs)
    text = Text("probe", tuple(names), tuple(outputs), case["source"], header, True, atomic)
    ours = metal_source(text, input_types(inputs), dtypes, template)
    assert capfd.readouterr().out == f"Generated source code for `probe`:\n```\n{ours}\n```\n"


@pytest.mark.skipif(mx.metal.is_available(), reason="the same")
def test_export_records_the_kernel_and_runs_nothing(tmp_path: Path) -> None:
    kernel = metal_kernel("probe", ["x"], ["y"], "this is no Metal", backend="cpu")

    def call(x: mx.array) -> Any:
        return kernel(
            inputs=[x], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=[mx.float32]
        )

    mx.export_function(str(tmp_path / "probe.mlxfn"), call, mx.zeros((4,)))
    assert (tmp_path / "probe.mlxfn").stat().st_size > 0


def test_verbose_prints_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = metal_kernel("shown", ["x"], ["y"], "y[thread_position_in_grid.x] = x;", backend="cpu")
    kernel(
        inputs=[3.0],
        grid=(4, 1, 1),
        threadgroup=(4, 1, 1),
        output_shapes=[(4,)],
        output_dtypes=[mx.float32],
        verbose=True,
    )
    out = capsys.readouterr().out
    assert out.startswith("Generated source code for `shown`:\n```\n[[kernel]] void custom_kernel_shown_floats_float(")
    assert "const constant float& x [[buffer(0)]]" in out


SCALARS = [name for name, kind in ATTRIBUTES.items() if kind == "uint"]
VECTORS = [name for name, kind in ATTRIBUTES.items() if kind == "uint3"]
COUNT = len(SCALARS) + 3 * len(VECTORS)
RECORD = f"""
    uint3 at = thread_position_in_grid, all = threads_per_grid;
    device uint* out = y + ((at.z * all.y + at.y) * all.x + at.x) * {COUNT}u;
    {" ".join(f"*out++ = {name};" for name in SCALARS)}
    {" ".join(f"*out++ = {name}.x; *out++ = {name}.y; *out++ = {name}.z;" for name in VECTORS)}
"""
WAITING = RECORD + "    simdgroup_barrier(mem_flags::mem_none);\n"


def expected(grid: tuple[int, ...], threadgroup: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return all attributes of all threads, [z, y, x, COUNT], from Metal's description of dispatchThreads."""
    full = np.minimum(threadgroup, grid)
    groups = -(-np.array(grid) // full)
    out = np.zeros((*grid[::-1], COUNT), np.uint32)
    for z, y, x in np.ndindex(grid[2], grid[1], grid[0]):
        at = np.array([x, y, z])
        group, inside = at // full, at % full
        size = np.minimum(full, grid - group * full)
        index = (inside[2] * size[1] + inside[1]) * size[0] + inside[0]
        values: dict[str, Any] = {
            "dispatch_quadgroups_per_threadgroup": -(-full.prod() // 4),
            "dispatch_simdgroups_per_threadgroup": -(-full.prod() // 32),
            "dispatch_threads_per_threadgroup": full,
            "grid_origin": [0, 0, 0],
            "grid_size": grid,
            "quadgroup_index_in_threadgroup": index // 4,
            "quadgroups_per_threadgroup": -(-size.prod() // 4),
            "simdgroup_index_in_threadgroup": index // 32,
            "simdgroups_per_threadgroup": -(-size.prod() // 32),
            "thread_execution_width": 32,
            "thread_index_in_quadgroup": index % 4,
            "thread_index_in_simdgroup": index % 32,
            "thread_index_in_threadgroup": index,
            "thread_position_in_grid": at,
            "thread_position_in_threadgroup": inside,
            "threadgroup_position_in_grid": group,
            "threadgroups_per_grid": groups,
            "threads_per_grid": grid,
            "threads_per_simdgroup": 32,
            "threads_per_threadgroup": size,
        }
        row = [values[name] for name in SCALARS]
        out[z, y, x] = row + [c for name in VECTORS for c in values[name]]
    return out


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4)),
    st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4)),
    st.booleans(),
    st.sampled_from(["forward", "reverse", "random"]),
)
def test_attributes_at_the_ragged_edge(
    grid: tuple[int, int, int], threadgroup: tuple[int, int, int], waits: bool, order: str
) -> None:
    backend = CpuBackend(lane_order=order, lane_seed=1)
    kernel = metal_kernel("record", [], ["y"], WAITING if waits else RECORD, backend=backend)
    assert isinstance(kernel, MetalKernel)
    (y,) = kernel(
        inputs=[],
        grid=grid,
        threadgroup=threadgroup,
        output_shapes=[(*grid[::-1], COUNT)],
        output_dtypes=[mx.uint32],
    )
    np.testing.assert_array_equal(np.array(y), expected(grid, threadgroup))
