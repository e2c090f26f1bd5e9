"""Whole kernels through `metal_kernel`, against NumPy: numbers, exact integers, every lane order and thread count."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.metal import CpuBackend, MetalKernel, metal_kernel
from tests.impl.metal_bodies import (
    EXPONENTIAL,
    HALVING,
    HISTOGRAM,
    MACHINE,
    QUANTIZED_PRODUCT,
    SOFTMAX,
    halving,
    machine,
    softmax,
)

ORDERS = ("forward", "reverse", "random")
EPSILON = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}


def cpu(name: str, inputs: list[str], outputs: list[str], source: str, **options: Any) -> MetalKernel:
    atomic = options.pop("atomic_outputs", False)
    header = options.pop("header", "")
    kernel = metal_kernel(name, inputs, outputs, source, header, atomic_outputs=atomic, backend=CpuBackend(**options))
    assert isinstance(kernel, MetalKernel)
    return kernel


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_elementwise_kernel_is_rounded_once(dtype: mx.Dtype) -> None:
    x = mx.array(floats(1000)).astype(dtype)
    kernel = cpu("exponential", ["x"], ["y"], EXPONENTIAL)
    (y,) = kernel(
        inputs=[x],
        template=[("T", dtype)],
        grid=(1000, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[(1000,)],
        output_dtypes=[dtype],
    )
    assert y.dtype == dtype
    right = np.exp(np.array(x.astype(mx.float32), np.float64))
    error = np.abs(np.array(y.astype(mx.float32), np.float64) / right - 1)
    # Half a unit in the last place, and a bit of exp's own in float32.
    assert error.max() <= EPSILON[dtype] * 1.2 + 2.0**-24


@pytest.mark.parametrize("order", ORDERS)
def test_softmax_crosses_simdgroups(order: str) -> None:
    x = (floats(7, 1000) * 5).astype(np.float16)
    kernel = cpu("softmax", ["x"], ["y"], SOFTMAX, lane_order=order, lane_seed=5)
    (y,) = kernel(
        inputs=[mx.array(x)],
        template=[("T", mx.float16), ("N", 1000)],
        grid=(7 * 128, 1, 1),
        threadgroup=(128, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[mx.float16],
    )
    right = softmax(x)
    # One rounding to half (2^-11 of the value, or half of the smallest step), after float32 sums of 1000 terms.
    assert (np.abs(np.array(y) - right) <= right * (2.0**-11 + 1000 * 2.0**-24) + 2.0**-25).all()
    assert kernel.report.divergent_simd.count == kernel.report.divergent_barriers.count == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_quantized_product(threads: int) -> None:
    rng = np.random.default_rng(1)
    rows, columns = 512, 64
    codes = rng.integers(0, 2**32, (columns, rows // 8), dtype=np.uint32)
    scales, x = rng.random((columns, rows // 64)).astype(np.float32), floats(rows)
    biases = (-8 * scales).astype(np.float32)
    kernel = cpu("quantized_product", ["w", "scales", "biases", "x"], ["y"], QUANTIZED_PRODUCT, threads=threads)
    (y,) = kernel(
        inputs=[mx.array(a) for a in (codes, scales, biases, x)],
        template=[("T", mx.float32), ("R", rows)],
        grid=(columns // 8 * 64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(columns,)],
        output_dtypes=[mx.float32],
    )
    nibbles = (codes[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(columns, rows)
    scale, bias = (np.repeat(a, 64, axis=1).astype(np.float64) for a in (scales, biases))
    magnitude = (nibbles * scale + np.abs(bias)) @ np.abs(x.astype(np.float64))
    # At most 8 + 2 + rows / 256 + 32 roundings lie between a term and the sum.
    bound = (10 + rows / 256 + 32) * 2.0**-24 * magnitude
    assert (np.abs(np.array(y) - (nibbles * scale + bias) @ x.astype(np.float64)) <= bound).all()


@pytest.mark.parametrize("order", ORDERS)
def test_loop_around_barriers_ends_when_its_data_says(order: str) -> None:
    x = (np.random.default_rng(2).random((4, 128)) * np.array([[0.5], [3], [40], [7]])).astype(np.float32)
    kernel = cpu("halving", ["x"], ["y", "rounds"], HALVING, lane_order=order)
    y, rounds = kernel(
        inputs=[mx.array(x)],
        grid=(512, 1, 1),
        threadgroup=(128, 1, 1),
        output_shapes=[x.shape, (4,)],
        output_dtypes=[mx.float32, mx.uint32],
    )
    right, counts = halving(x)
    np.testing.assert_array_equal(np.array(y), right)
    assert np.array(rounds).tolist() == counts


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics_lose_nothing(threads: int) -> None:
    x = np.random.default_rng(3).integers(0, 1000, 8192).astype(np.uint32)
    kernel = cpu("histogram", ["x"], ["y"], HISTOGRAM, atomic_outputs=True, threads=threads)
    (y,) = kernel(
        inputs=[mx.array(x)],
        grid=(8192, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[(16,)],
        output_dtypes=[mx.float32],
        init_value=1,
    )
    np.testing.assert_array_equal(np.array(y), np.bincount(x & 15, minlength=16) + 1)


def run_machine(x: Any, program: list[int], threadgroup: int, order: str, seed: int) -> Any:
    kernel = cpu("machine", ["x", "program"], ["y"], MACHINE, lane_order=order, lane_seed=seed)
    (y,) = kernel(
        inputs=[mx.array(x), mx.array(np.array(program, np.uint32))],
        grid=(len(x), 1, 1),
        threadgroup=(threadgroup, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[mx.uint32],
    )
    return np.array(y)


# Leaving (6) may only be the last but operations without a barrier, so it ends the list of those with one.
with_barriers = st.lists(
    st.integers(0, 5).flatmap(lambda op: st.integers(0, 31).map(lambda k: op | k << 3)), max_size=6
)
without_barriers = st.lists(
    st.sampled_from([0, 1, 3, 4, 5, 6]).flatmap(lambda op: st.integers(0, 31).map(lambda k: op | k << 3)), max_size=6
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 140),
    with_barriers,
    without_barriers,
    st.sampled_from(ORDERS),
    st.integers(0, 9),
)
def test_any_program_gives_the_same_in_any_lane_order(
    threads: int, threadgroup: int, first: list[int], last: list[int], order: str, seed: int
) -> None:
    x = np.random.default_rng(threads).integers(0, 2**32, threads, dtype=np.uint32)
    program = [*first, *last, 5]
    got = run_machine(x, program, threadgroup, order, seed)
    np.testing.assert_array_equal(got, machine(x, program, min(threadgroup, threads)))


def test_racy_kernel_shows_under_random_orders() -> None:
    source = """
        threadgroup float shared[64];
        uint t = thread_index_in_threadgroup;
        shared[t] = x[t];
        y[t] = shared[63 - t];
    """
    seen = set()
    for seed in range(4):
        kernel = cpu("racy", ["x"], ["y"], source, lane_order="random", lane_seed=seed)
        (y,) = kernel(
            inputs=[mx.array(floats(64))],
            grid=(64, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(64,)],
            output_dtypes=[mx.float32],
        )
        seen.add(np.array(y).tobytes())
    assert len(seen) == 4


STRIDED = """
    uint i = thread_position_in_grid.x;
    y[i] = x[i / x_shape[1] * x_strides[0] + i % x_shape[1] * x_strides[1]];
    if (i == 0) {
        about[0] = x_ndim;
        about[1] = x_shape[0];
        about[2] = x_strides[0];
        about[3] = x_strides[1];
    }
"""


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.int8])
@pytest.mark.parametrize("contiguous", [True, False])
def test_strided_inputs_are_copied_only_when_asked(dtype: mx.Dtype, contiguous: bool) -> None:
    base = mx.arange(5 * 8).reshape(5, 8).astype(dtype)
    x = base[1:4, 1:7].T
    kernel = metal_kernel(
        "strided", ["x"], ["y", "about"], STRIDED, ensure_row_contiguous=contiguous, backend=CpuBackend()
    )
    y, about = kernel(
        inputs=[x],
        grid=(18, 1, 1),
        threadgroup=(18, 1, 1),
        output_shapes=[(6, 3), (4,)],
        output_dtypes=[dtype, mx.int32],
    )
    assert mx.array_equal(y, x)
    assert about.tolist() == ([2, 6, 3, 1] if contiguous else [2, 6, 1, 8])


def test_python_scalars_are_inputs_and_inputs_stay_as_they_are() -> None:
    x = mx.arange(64).astype(mx.float32)
    before = np.array(x)
    kernel = metal_kernel(
        "scalars", ["x", "a", "b", "c"], ["y"], "uint i = thread_position_in_grid.x; y[i] = c ? a * x[i] + b : 0;"
    )
    (y,) = kernel(
        inputs=[x, 2, 0.5, True],
        grid=(64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[mx.float32],
    )
    np.testing.assert_array_equal(np.array(y), 2 * before + 0.5)
    np.testing.assert_array_equal(np.array(x), before)


@pytest.mark.parametrize(("flush", "product"), [(True, 0), (False, 5e-40)])
def test_denormals(flush: bool, product: float) -> None:
    source = "y[0] = x[0] * 0.5f; z[0] = half(x[1]) * half(0.5f);"
    kernel = cpu("denormals", ["x"], ["y", "z"], source, flush_denormals=flush)
    y, z = kernel(
        inputs=[mx.array(np.array([1e-39, 2.0**-15] * 4, np.float32))],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
        output_shapes=[(1,), (1,)],
        output_dtypes=[mx.float32, mx.float16],
    )
    assert np.array(y)[0] == np.float32(product)
    assert np.array(z)[0] == np.float16(2.0**-16)  # a half denormal is kept


@pytest.mark.parametrize(("mode", "infinite"), [("safe", True), ("fast", None)])
def test_math_mode(mode: str, infinite: bool | None) -> None:
    kernel = metal_kernel(
        "math", ["x"], ["y"], "y[0] = exp(x[0]) == 0.0f ? 1 : 0;", compile_options={"math_mode": mode}, backend="cpu"
    )
    (y,) = kernel(
        inputs=[mx.array([-np.inf] * 9)],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
        output_shapes=[(1,)],
        output_dtypes=[mx.float32],
    )
    assert infinite is None or bool(y.item()) == infinite


@pytest.mark.parametrize(("setting", "like"), [("reverse", ("reverse", 0)), ("7", ("random", 7)), ("", ("forward", 0))])
def test_lane_order_of_the_environment(setting: str, like: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    source = "threadgroup uint turn; y[thread_index_in_threadgroup] = ++turn + x[0];"  # from 0xFFFFFFFF on
    arguments: dict[str, Any] = {
        "grid": (64, 1, 1),
        "threadgroup": (64, 1, 1),
        "output_shapes": [(64,)],
        "output_dtypes": [mx.uint32],
        "inputs": [mx.zeros((8,), mx.uint32)],
    }
    monkeypatch.setenv("METAL_ASSAY_LANE_SEED", setting)
    got = np.array(metal_kernel("turns", ["x"], ["y"], source, backend="cpu")(**arguments)[0])
    right = np.array(cpu("turns", ["x"], ["y"], source, lane_order=like[0], lane_seed=like[1])(**arguments)[0])
    np.testing.assert_array_equal(got, right)
    turns = got.tolist()
    assert sorted(turns) == list(range(64))
    in_order = {"forward": list(range(64)), "reverse": list(range(63, -1, -1))}.get(like[0])
    assert turns == in_order if in_order else turns not in (list(range(64)), list(range(63, -1, -1)))


RECONVERGENCE = """
    uint lane = thread_index_in_simdgroup, inner = 0, outer = 0, skipped = 0, branch = 0, left = 0;
    for (uint i = 0; i < 3; ++i) {
        for (uint j = 0; j < (lane & 3u); ++j) inner = inner * 31u + simd_sum(1u);
        outer = outer * 31u + simd_sum(1u);
        if ((lane + i) % 3u == 0) continue;
        skipped = skipped * 31u + simd_sum(1u);
    }
    if (lane < 10) branch = count(1u);
    else branch = count(100u);
    uint round = 0;
    do {
        left = left * 31u + simd_sum(1u);
    } while (round++ < lane % 5u);
    device uint* out = y + lane * 6u;
    out[0] = inner; out[1] = outer; out[2] = skipped; out[3] = branch; out[4] = left; out[5] = simd_sum(1u);
"""


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_meet_again_where_their_ways_do(order: str) -> None:
    """Lanes that leave a loop, go round it again, skip the rest of a round, or call one helper from two branches."""
    backend = CpuBackend(lane_order=order, lane_seed=2)
    header = "inline uint count(uint n) { return simd_sum(n); }"
    kernel = metal_kernel("reconvergence", [], ["y"], RECONVERGENCE, header, backend=backend)
    (y,) = kernel(
        inputs=[], grid=(32, 1, 1), threadgroup=(32, 1, 1), output_shapes=[(32, 6)], output_dtypes=[mx.uint32]
    )
    lanes = np.arange(32)
    right = np.zeros((32, 6), np.uint32)
    for i in range(3):
        for j in range(3):
            here = (lanes & 3) > j
            right[here, 0] = right[here, 0] * np.uint32(31) + np.uint32(here.sum())
        right[:, 1] = right[:, 1] * np.uint32(31) + np.uint32(32)
        here = (lanes + i) % 3 != 0
        right[here, 2] = right[here, 2] * np.uint32(31) + np.uint32(here.sum())
    right[:, 3] = np.where(lanes < 10, 10, 2200)
    for j in range(5):
        here = lanes % 5 >= j
        right[here, 4] = right[here, 4] * np.uint32(31) + np.uint32(here.sum())
    right[:, 5] = 32
    np.testing.assert_array_equal(np.array(y), right)


def test_a_body_may_begin_with_a_pragma_and_its_arguments_shadow_the_header() -> None:
    header = "constexpr constant int K = 9;\ntemplate <typename T> inline T twice(T v) { return v + v; }"
    source = """#pragma clang fp contract(off)
        uint i = thread_position_in_grid.x;
        float kept[K];
        kept[K - 1] = x[i];
        y[i] = DOUBLED ? T(twice(kept[K - 1]) * K) : T(0);
    """
    kernel = cpu("shadowed", ["x"], ["y"], source, header=header)
    (y,) = kernel(
        inputs=[mx.arange(8, dtype=mx.float32)],
        template=[("T", mx.float16), ("K", 3), ("DOUBLED", True)],
        grid=(8, 1, 1),
        threadgroup=(8, 1, 1),
        output_shapes=[(8,)],
        output_dtypes=[mx.float16],
    )
    assert y.tolist() == [6 * i for i in range(8)]
