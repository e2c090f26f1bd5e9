"""The backend for NVIDIA GPUs without one: what it hands to MLX, what it keeps, and what it says when it cannot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CompileError, LaunchError, MetalTextError, NotCoveredError, ToolchainError, metal_kernel
from impl.metal.backend import CUDA, choose
from impl.metal.cuda import CudaBackend, ptx
from impl.metal.cuda.backend import blocks
from impl.metal.cuda.lowering import lower, threadgroup_bytes

if TYPE_CHECKING:
    from pathlib import Path

TWICE = "uint i = thread_position_in_grid.x; y[i] = 2 * x[i];"
CALL: dict[str, Any] = {
    "inputs": [mx.zeros((64,))],
    "grid": (64, 1, 1),
    "threadgroup": (32, 1, 1),
    "output_shapes": [(64,)],
    "output_dtypes": [mx.float32],
}


@pytest.fixture
def backend(tmp_path: Path) -> CudaBackend:
    """Compile for an H200 into a folder of its own."""
    return CudaBackend(target="sm_90", cache=tmp_path)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put a GPU in place that notes what it is given."""
    seen: list[dict[str, Any]] = []

    def precompiled_cuda_kernel(**given: Any) -> list[mx.array]:
        seen.append(given)
        return [
            mx.zeros(shape, dtype) for shape, dtype in zip(given["output_shapes"], given["output_dtypes"], strict=True)
        ]

    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    monkeypatch.setattr(mx.fast, "precompiled_cuda_kernel", precompiled_cuda_kernel)
    return seen


def kernel(backend: CudaBackend, source: str = TWICE, **more: Any) -> Any:
    return metal_kernel("probe", ["x"], ["y"], source, backend=backend, **more)


def compiled(folder: Path) -> str:
    (path,) = folder.glob("*.ptx")
    return path.read_bytes()[:-32].decode()


def test_mlx_is_given_the_buffers_in_order_and_the_sizes(backend: CudaBackend, launched: list[dict[str, Any]]) -> None:
    source = "y[0] = x[0] + x_shape[1] + x_strides[0] + x_ndim + c;"
    made = metal_kernel("a-b", ["x", "c"], ["y", "z"], source, backend=backend)
    x = mx.arange(24.0).reshape(4, 6)
    made(
        inputs=[x, 3.0],
        grid=(70, 3, 2),
        threadgroup=(32, 2, 1),
        output_shapes=[(5,), (2, 2)],
        output_dtypes=[mx.float32, mx.float16],
        stream=mx.gpu,
    )
    (given,) = launched
    assert [np.array(one).tolist() for one in given["inputs"]] == [np.array(x).tolist(), [4, 6], [6, 1], [2], 3.0]
    assert [one.dtype for one in given["inputs"]] == [mx.float32, mx.int32, mx.int64, mx.int32, mx.float32]
    assert given["scalars"] == [70, 3, 2, 32, 2, 1]
    assert given["grid"] == (3 * 2 * 2 * 64, 1, 1)
    assert given["threadgroup"] == (64, 1, 1)
    assert (given["output_shapes"], given["output_dtypes"]) == ([(5,), (2, 2)], [mx.float32, mx.float16])
    assert given["ensure_row_contiguous"]
    assert given["stream"] == mx.gpu
    text = given["compiled_source"].decode()
    assert f".visible .entry {given['name']}(" in text
    assert ".maxntid 64, 1, 1" in text
    assert "msl_entry(" not in text


def test_a_name_belongs_to_one_text_and_one_size(backend: CudaBackend, launched: list[dict[str, Any]]) -> None:
    for source in (TWICE, TWICE.replace("2", "3")):
        for threads in (32, 64):
            kernel(backend, source)(**{**CALL, "threadgroup": (threads, 1, 1)})
    kernel(backend)(**CALL)
    names = [given["name"] for given in launched]
    assert len(set(names[:4])) == 4
    assert names[4] == names[0]


@pytest.mark.parametrize(
    ("dtype", "given", "poison", "wanted"),
    [
        (mx.float16, None, True, "nan"),
        (mx.float16, None, False, "None"),
        (mx.float16, 0.5, True, "0.5"),
        (mx.int32, None, True, "None"),
    ],
)
def test_outputs_begin_with_nan_where_they_can(
    tmp_path: Path, launched: list[dict[str, Any]], dtype: mx.Dtype, given: float | None, poison: bool, wanted: str
) -> None:
    made = kernel(CudaBackend(target="sm_90", cache=tmp_path, poison=poison))
    made(**{**CALL, "output_dtypes": [dtype], "init_value": given})
    assert str(launched[0]["init_value"]) == wanted


def test_strides_of_a_view_are_its_own(backend: CudaBackend, launched: list[dict[str, Any]]) -> None:
    made = kernel(backend, "y[0] = x[x_strides[0] + x_strides[1]];", ensure_row_contiguous=False)
    view = mx.zeros((4, 6), mx.bfloat16).T
    made(**{**CALL, "inputs": [view]})
    assert not launched[0]["ensure_row_contiguous"]
    assert np.array(launched[0]["inputs"][1]).tolist() == [1, 6]
    with pytest.raises(MetalTextError, match=r"inside mx\.compile"):
        mx.compile(lambda x: made(**{**CALL, "inputs": [x.T]})[0])(mx.zeros((4, 6)))


def test_a_kernel_can_be_traced(backend: CudaBackend, launched: list[dict[str, Any]]) -> None:
    made = kernel(backend, TWICE + "// x_shape, x_strides")
    assert mx.compile(lambda x: made(**{**CALL, "inputs": [x]})[0] + 1)(mx.zeros((64,))).tolist() == [1.0] * 64
    assert len(launched) == 1


@pytest.mark.parametrize(
    ("grid", "threadgroup"),
    [((1, 1, 1), (1, 1, 1)), ((100, 1, 1), (64, 1, 1)), ((5, 7, 3), (4, 3, 2)), ((2, 70000, 1), (2, 8, 1))],
)
def test_blocks_hold_every_group_once(grid: tuple[int, int, int], threadgroup: tuple[int, int, int]) -> None:
    threads, rows, planes = blocks(grid, threadgroup)
    size = math.prod(threadgroup)
    groups = math.prod(-(-g // t) for g, t in zip(grid, threadgroup, strict=True))
    assert (threads % size, planes) == (0, 1)
    assert threads // size * rows == groups


def test_more_threads_than_an_int_go_into_several_rows() -> None:
    threads, rows, _ = blocks((2**20, 2**12, 4), (1024, 1, 1))
    assert rows > 1
    assert threads < 2**31
    assert threads // 1024 * rows >= 2**24
    with pytest.raises(LaunchError, match="makes 2147483648 groups"):
        blocks((2**16, 2**15, 1), (1, 1, 1))


def test_what_metal_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Thread group size \(1025\) is greater than  the maximum"):
        blocks((1, 1, 1), (1025, 1, 1))
    with pytest.raises(LaunchError, match="must be positive"):
        blocks((0, 1, 1), (32, 1, 1))


def test_without_a_compiler_the_cache_serves(
    backend: CudaBackend, launched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel(backend).compile(**CALL)
    monkeypatch.setattr(ptx, "find_toolchain", _none)
    kernel(backend)(**CALL)
    assert b".target sm_90" in launched[0]["compiled_source"]
    # Later GPUs run what was made for earlier ones; earlier ones cannot.
    kernel(CudaBackend(target="sm_120", cache=backend.cache))(**CALL)
    assert launched[1]["compiled_source"] == launched[0]["compiled_source"]
    for other in (CudaBackend(target="sm_80", cache=backend.cache), backend):
        source = TWICE if other is not backend else TWICE.replace("2", "5")
        with pytest.raises(ToolchainError, match="kernel 'probe' is not among those compiled for sm_") as error:
            kernel(other, source)(**CALL)
        assert str(backend.cache) in str(error.value)
        assert "METAL_ASSAY_TARGET" in str(error.value)


def _none(_: str | None = None) -> None:
    raise ToolchainError("no clang")


def test_another_clang_compiles_again(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.cache is not None
    kernel(backend).compile(**CALL)
    (path,) = backend.cache.glob("*.ptx")
    text = path.read_bytes()
    builds: list[str] = []

    def build(*given: Any) -> bytes:
        builds.append(given[3])
        return text[text.index(b"\n") + 1 : -32]

    monkeypatch.setattr(ptx, "_build", build)
    kernel(backend).compile(**CALL)
    assert builds == []
    monkeypatch.setattr(ptx, "_first_line", lambda _: b"// another\n")
    kernel(backend).compile(**CALL)
    assert builds == ["sm_90"]
    assert path.read_bytes().startswith(b"// another\n")


def test_a_poisoned_kernel_is_another_one(backend: CudaBackend) -> None:
    assert backend.cache is not None
    source = "threadgroup float s[4]; s[thread_index_in_threadgroup % 4] = 1; y[0] = s[1];"
    for poison in (True, False):
        made = kernel(CudaBackend(target="sm_90", cache=backend.cache, poison=poison), source)
        made.compile(**CALL)
    texts = [path.read_text("utf-8", "replace") for path in backend.cache.glob("*.ptx")]
    assert sorted("barrier.sync" in text for text in texts) == [False, True]


def test_arithmetic_is_that_of_safe_math(backend: CudaBackend) -> None:
    assert backend.cache is not None
    kernel(backend, "float p = x[0] * x[1]; y[0] = p + x[2]; y[1] = x[0] * x[1] + x[2]; y[2] = x[0] / x[1];").compile(
        **CALL
    )
    text = compiled(backend.cache)
    # Contracted inside an expression only, denormals are zero, and nothing is left for the assembler to contract.
    assert [text.count(name) for name in ("fma.rn.ftz.f32", "mul.rn.ftz.f32", "add.rn.ftz.f32", "div.rn.ftz.f32")] == [
        1
    ] * 4
    assert "mul.f32" not in text
    assert "add.f32" not in text


def test_constant_memory_is_memory_like_any_other(backend: CudaBackend) -> None:
    assert backend.cache is not None
    made = metal_kernel(
        "probe", ["x"], ["y"], "y[0] = x[0] + table[int(x[1])];", "constant float table[2] = {3, 4};", backend=backend
    )
    made.compile(**{**CALL, "inputs": [mx.zeros((2,))]})
    text = compiled(backend.cache)
    assert "ld.const" not in text
    assert ".const" not in text


def test_errors_are_those_of_the_cpu(backend: CudaBackend) -> None:
    with pytest.raises(CompileError, match=r"source:1:8: error: use of undeclared identifier 'missing'"):
        kernel(backend, "y[0] = missing;").compile(**CALL)
    with pytest.raises(CompileError, match="Metal has no goto"):
        kernel(backend, "goto end; end: y[0] = 1;").compile(**CALL)
    with pytest.raises(NotCoveredError, match="textures are not covered"):
        kernel(backend, "texture2d<float> t; y[0] = 1;").compile(**CALL)
    with pytest.raises(CompileError, match="has 32772 bytes of threadgroup variables; the most is 32768"):
        kernel(backend, "threadgroup float s[8192], t; s[0] = t = x[0]; y[0] = s[0] + t;").compile(**CALL)
    with pytest.raises(NotCoveredError, match="a writable variable outside of threadgroup memory: x"):
        lower("@x = internal addrspace(1) global i32 0, align 4\n", poison=False)


def test_without_a_gpu_it_says_so(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    if mx.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(LaunchError, match="no CUDA on this machine"):
        kernel(backend)(**CALL)
    monkeypatch.delenv("METAL_ASSAY_TARGET", raising=False)
    with pytest.raises(ToolchainError, match="let METAL_ASSAY_TARGET name one"):
        kernel(CudaBackend()).compile(**CALL)
    with pytest.raises(ToolchainError, match="no target 'sm_1'"):
        kernel(CudaBackend(target="sm_1")).compile(**CALL)


@pytest.mark.parametrize(("number", "wanted"), [((9, 0), "sm_90"), ((8, 7), "sm_86"), ((12, 1), "sm_120")])
def test_the_target_is_what_the_gpu_understands(
    monkeypatch: pytest.MonkeyPatch, number: tuple[int, int], wanted: str
) -> None:
    info = {"compute_capability_major": number[0], "compute_capability_minor": number[1]}
    monkeypatch.delenv("METAL_ASSAY_TARGET", raising=False)
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    assert ptx.target(None) == wanted


def test_it_is_chosen_by_name_and_where_mlx_has_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METAL_ASSAY_BACKEND", raising=False)
    assert choose(CUDA) == CudaBackend()
    chosen = choose(None)
    assert chosen is None or chosen.name == ("cuda" if mx.cuda.is_available() else "cpu")
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    chosen = choose(None)
    assert chosen is None or chosen.name == "cuda"


def test_the_bytes_of_threadgroup_variables_are_taken_out_of_the_text() -> None:
    line = ".visible .global .align 4 .u32 msl_threadgroup_bytes = 144;\n"
    assert threadgroup_bytes(f"a\n{line}b\n") == (144, "a\nb\n")
    assert threadgroup_bytes(f"a\n{line.replace(' = 144', '')}b\n") == (0, "a\nb\n")
