"""Wrong use gives MLX's own errors, a wrong text gives one at the author's own line, a wrong run ends with a reason."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import (
    CpuBackend,
    LaunchError,
    MetalTextError,
    MetalTextWarning,
    NotCoveredError,
    ToolchainError,
    metal_kernel,
)
from impl.metal.toolchain import find_toolchain

ONE = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(4,)], "output_dtypes": [mx.float32]}
X = mx.zeros((64,))
BAD_KERNELS: list[tuple[Any, ...]] = [
    ("k", ["x"], [], ""),
    ("k", "x", ["y"], ""),
    ("k", ["x"], ["y"]),
    ("k", ["x"], ["y"], "", "", True, False, {"math_mode": "quick"}),
    ("k", ["x"], ["y"], "", "", True, False, {"mode": "safe"}),
    ("k", ["x"], ["y"], "", "", True, False, 3),
]
BAD_CALLS: list[dict[str, Any]] = [
    {"inputs": [], **ONE},
    {"inputs": [X, X], **ONE},
    {"inputs": [X], **ONE, "output_shapes": []},
    {"inputs": [X], **ONE, "output_dtypes": []},
    {"inputs": [X], **ONE, "grid": (1, 1)},
    {"inputs": ["x"], **ONE},
    {"inputs": [[1, 2]], **ONE},
    {"inputs": [None], **ONE},
    {"inputs": [X], **ONE, "template": [("T", 1.5)]},
    {"inputs": [X], **ONE, "template": [("N", 2**40)]},
    {"inputs": [X], **ONE, "template": {"T": 1}},
    {"inputs": [X], **ONE, "init_value": "a"},
    {"inputs": [X]},
]


def raised(call: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the result
        call()
    return caught.type, str(caught.value)


@pytest.mark.parametrize("arguments", BAD_KERNELS, ids=range(len(BAD_KERNELS)))
def test_wrong_kernels_get_mlx_errors(arguments: tuple[Any, ...]) -> None:
    kind, words = raised(lambda: mx.fast.metal_kernel(*arguments))
    ours = raised(lambda: metal_kernel(*arguments, backend="cpu"))
    # A missing argument of a Python function is Python's to report.
    assert ours == (kind, words) or (kind is TypeError and ours[0] is TypeError and "source" in ours[1])


@pytest.mark.skipif(mx.metal.is_available(), reason="MLX then raises less, or later")
@pytest.mark.parametrize("arguments", BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_wrong_calls_get_mlx_errors(arguments: dict[str, Any]) -> None:
    mine = metal_kernel("k", ["x"], ["y"], "y[0] = x[0];", backend="cpu")
    theirs: Any = mx.fast.metal_kernel("k", ["x"], ["y"], "y[0] = x[0];")
    right = raised(lambda: theirs(**arguments))
    assert "No Metal back-end" not in right[1]
    assert raised(lambda: mine(**arguments)) == right


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"stream": mx.cpu}, ValueError, r"\[metal_kernel\] Only supports the GPU"),
        ({"threadgroup": (1025, 1, 1)}, ValueError, r"Thread group size \(1025\) is greater than"),
        ({"grid": (0, 1, 1)}, LaunchError, "must be positive"),
    ],
)
def test_what_only_a_gpu_would_refuse(change: dict[str, Any], error: type[Exception], words: str) -> None:
    kernel = metal_kernel("k", ["x"], ["y"], "y[0] = x[0];", backend="cpu")
    with pytest.raises(error, match=words):
        kernel(inputs=[X], **{**ONE, **change})


def refused(source: str, header: str = "") -> MetalTextError:
    kernel = metal_kernel("probe", ["x"], ["y"], source, header, backend="cpu")
    with pytest.raises(MetalTextError) as caught:
        kernel(inputs=[X], **ONE)
    return caught.value


def test_error_stands_at_the_line_of_the_source() -> None:
    words = str(refused("uint i = thread_position_in_grid.x;\n  float v = missing(x[i]);\n  y[i] = v;"))
    # Older clangs underline the first letter only.
    assert words.rstrip("~") == (
        "kernel 'probe' does not compile:\n"
        "source:2:13: error: use of undeclared identifier 'missing'\n"
        "    2 |   float v = missing(x[i]);\n"
        "      |             ^"
    )


def test_error_stands_at_the_line_of_the_header_in_metal_words() -> None:
    words = str(refused("y[0] = f(x);", "// a helper\ninline float f(threadgroup float* p) { return p[0]; }"))
    assert "source:1:8: error: no matching function for call to 'f'" in words
    assert "header:2:14: note:" in words
    assert "device" in words
    assert "__global" not in words


def test_assertion_of_the_prelude_is_shown_where_it_was_asked_for() -> None:
    assert "source:1:8: error: the two types differ in size" in str(refused("y[0] = as_type<float>((ushort)1);"))


def test_feature_that_is_not_covered_names_itself() -> None:
    error = refused("texture2d<float> t; y[0] = 1;")
    assert isinstance(error, NotCoveredError)
    assert "source:1:18: textures are not covered here" in str(error)


REFUSED = [
    ("float* p = y; p[0] = 1;", "", "source:1:8: error: p is a pointer without an address space"),
    ("float v = 1;\n f(v); y[0] = v;", "inline void f(float& v) { v += 1; }", "header:1:22: error: v is a reference"),
    ("y[0] = f(3);", "float f(int n) { return n ? f(n - 1) : 1.0f; }", "header:1:7: error: recursion"),
    (
        "y[0] = f(3);",
        "float g(int n);\nfloat f(int n) { return g(n); }\nfloat g(int n) { return n ? f(n - 1) : 1.0f; }",
        "error: recursion",
    ),
    ("goto end;\n end: y[0] = 1;", "", "source:1:1: error: Metal has no goto"),
    ("half a = 1; bfloat b = 1;\n y[0] = a + b;", "", "source:2:9: error: half and bfloat do not mix"),
    ("half a = 1; bfloat b = 1;\n b += a; y[0] = b;", "", "source:2:2: error: half and bfloat do not mix"),
    ("double d = 1.0; y[0] = d;", "", "double"),
    ("y[0] = n++;", "int n = 3;", "header:1:5: error: n outlives the kernel"),
    ("static int n = 0;\n y[0] = n++;", "", "source:1:12: error: n outlives the kernel"),
    ("y[0] = f();", "float f() { threadgroup float s[2]; s[0] = 1; return s[0]; }", "header:1:31: error"),
    ("x[0] = 1;", "", "source:1:6: error"),
    ("threadgroup float s[4]; device float* p = s; y[0] = p[0];", "", "threadgroup float"),
    ("atomic_fetch_add_explicit(y, 1.0f, memory_order_relaxed);", "", "source:1:1: error"),
    (
        "threadgroup atomic_int a; atomic_store_explicit(&a, 1, memory_order_seq_cst); y[0] = 1;",
        "",
        "source:1:27: error",
    ),
    ("int* p = new int; y[0] = *p;", "", "source:1:10: error"),
    ("y[get_global_id(0)] = 1;", "", "undeclared identifier 'get_global_id'"),
]


@pytest.mark.parametrize(("source", "header", "words"), REFUSED[:6], ids=range(6))
def test_what_metal_refuses_is_refused(source: str, header: str, words: str) -> None:
    assert words in str(refused(source, header))


@pytest.mark.slow
@pytest.mark.parametrize(("source", "header", "words"), REFUSED[6:], ids=range(6, len(REFUSED)))
def test_what_else_metal_refuses(source: str, header: str, words: str) -> None:
    assert words in str(refused(source, header))


# What looks like the refused, and is Metal.
ACCEPTED_HEADER = """
struct Pair {
    float a, b;
    Pair(float x) : a(x), b(2 * x) {}
    void add(float x) { a += x; }
    float sum() const { return a + b; }
};
inline Pair operator+(Pair p, Pair q) { return Pair(p.a + q.a); }
template <typename T> struct View { const device T* p; float at(int i) const { return p[i]; } };
inline void fill(thread float (&values)[4], thread const Pair& p) { values[2] = p.sum(); }
template <int N> inline int count() { if constexpr (N == 0) return 0; else return N + count<N - 1>(); }
inline int twice(int n) { return 2 * n; }
inline int twice(float v) { return twice(int(v)); }
"""
ACCEPTED = """
    using Pointer = device float*;
    Pointer out = y;
    Pair p(1.0f), q = p;
    q.add(2);
    p = p + q;
    float values[4] = {0};
    auto& last = values[3];
    last = View<float>{x}.at(0) + 1;
    fill(values, p);
    float s = 0;
    auto collect = [&](float v) { s += v; };
    for (auto v : values) collect(v);
    half h = half(float(bfloat(s)));
    bfloat b = bfloat(h);
    b += bfloat(1.0f);
    out[0] = float(h) + float(b) + count<4>() + twice(1.5f);
"""


def test_what_metal_accepts_is_accepted() -> None:
    kernel = metal_kernel("accepted", ["x"], ["y"], ACCEPTED, ACCEPTED_HEADER, backend="cpu")
    (y,) = kernel(inputs=[X], **ONE)
    # p = (1 + 3, 2 * 4), so the values are 0, 0, 12 and 1.
    assert y[0].item() == 13 + 14 + 10 + 2


def test_more_threadgroup_memory_than_there_is() -> None:
    assert "36000 bytes of threadgroup variables" in str(refused("threadgroup float s[9000]; s[0] = 1; y[0] = s[0];"))


SPINNING = "volatile thread uint n = 0; while (x[0] == 0.0f) n++; y[thread_position_in_grid.x] = n;"
SPINNING_LANES = (
    "float v = simd_sum(x[0]); volatile thread uint n = 0; while (v == 0.0f) n++; y[thread_position_in_grid.x] = n;"
)
SUM = "y[thread_position_in_grid.x] = simd_sum(x[thread_position_in_grid.x]);"
WIDE = {"grid": (256, 1, 1), "threadgroup": (64, 1, 1), "output_shapes": [(256,)], "output_dtypes": [mx.float32]}


def still_right(threads: int) -> None:
    """Check that a launch that was cut short left fibers and the floating-point unit in order."""
    kernel = metal_kernel("sum", ["x"], ["y"], SUM, backend=CpuBackend(threads=threads))
    (y,) = kernel(inputs=[mx.arange(256).astype(mx.float32)], **WIDE)
    np.testing.assert_array_equal(np.array(y), np.arange(256).reshape(8, 32).sum(1).repeat(32))
    assert np.float32(1e-39) * np.float32(0.5) > 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("source", [SPINNING, SPINNING_LANES])
def test_endless_loop_ends_at_the_time_limit(source: str, threads: int) -> None:
    kernel = metal_kernel("spin", ["x"], ["y"], source, backend=CpuBackend(threads=threads, time_limit_s=0.05))
    began = time.monotonic()
    with pytest.raises(LaunchError, match=r"did not end within 0\.05 s"):
        kernel(inputs=[X], **WIDE)
    assert time.monotonic() - began < 5
    still_right(threads)


def test_interrupt_ends_an_endless_loop_and_python_hears_of_it() -> None:
    kernel = metal_kernel("spin", ["x"], ["y"], SPINNING, backend=CpuBackend(threads=2, time_limit_s=20))
    kernel.compile(inputs=[X], **WIDE)
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            kernel(inputs=[X], **WIDE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    still_right(2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("y[thread_position_in_grid.x + (1ul << 40)] = simd_sum(x[0]);", "touched memory that is not its own"),
        ("y[0] = float(5 / int(x[0]));", "divided an integer by zero"),
    ],
)
def test_fault_is_an_error_and_not_the_end(source: str, words: str, threads: int) -> None:
    kernel = metal_kernel("fault", ["x"], ["y"], source, backend=CpuBackend(threads=threads))
    with pytest.raises(LaunchError, match=words):
        kernel(inputs=[X], **WIDE)
    still_right(threads)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            """uint t = thread_index_in_threadgroup;
            if (t < 40) threadgroup_barrier(mem_flags::mem_none); else threadgroup_barrier(mem_flags::mem_none);
            y[t] = 1;""",
            "waited at different barriers",
        ),
        (
            """uint t = thread_index_in_threadgroup;
            if (t >= 40) return;
            threadgroup_barrier(mem_flags::mem_none); y[t] = 1;""",
            "source:3:13: a barrier was reached by some threads after others had returned",
        ),
    ],
)
def test_barrier_that_not_all_reach_is_told_once(source: str, words: str) -> None:
    kernel = metal_kernel("divergent", ["x"], ["y"], source, backend="cpu")
    with pytest.warns(MetalTextWarning, match=words):
        kernel(inputs=[X], **WIDE)
    kernel(inputs=[X], **WIDE)  # no second warning, which would be an error here


def test_unwritten_memory_shows() -> None:
    source = "threadgroup float s[64]; uint t = thread_index_in_threadgroup; if (t > 3) { y[t] = s[t]; z[t] = 7; }"
    kernel = metal_kernel("unwritten", ["x"], ["y", "z"], source, backend="cpu")
    shapes = {"output_shapes": [(64,), (64,)], "output_dtypes": [mx.float32, mx.int32]}
    y, z = kernel(inputs=[X], grid=(64, 1, 1), threadgroup=(64, 1, 1), **shapes)
    assert np.isnan(np.array(y)).all()
    assert np.array(z).view(np.uint32).tolist() == [0xAAAAAAAA] * 4 + [7] * 60


def test_unknown_compiler_and_unknown_backend_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match="no program 'clang-none' here"):
        find_toolchain("clang-none")
    monkeypatch.setenv("METAL_ASSAY_BACKEND", "vulkan")
    with pytest.raises(MetalTextError, match="no backend 'vulkan'"):
        metal_kernel("k", ["x"], ["y"], "")
