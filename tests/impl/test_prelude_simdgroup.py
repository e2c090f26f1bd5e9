"""What the lanes of a simdgroup and a quadgroup exchange, against NumPy, for every element type and for vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from tests.impl.prelude.run import FLOATS, INTEGERS, mostly_slow, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANE = np.arange(32)

Exchange = Callable[[Any], Any]
REDUCTIONS: dict[str, Exchange] = {
    "simd_sum(v)": lambda v: np.repeat(v.sum(), 32),
    "simd_max(v)": lambda v: np.repeat(v.max(), 32),
    "simd_min(v)": lambda v: np.repeat(v.min(), 32),
    "simd_product(i % 9 == 0 ? V(2) : V(1))": lambda _: np.repeat(2.0**4, 32),
    "simd_prefix_inclusive_sum(v)": lambda v: v.cumsum(),
    "simd_prefix_exclusive_sum(v)": lambda v: v.cumsum() - v,
    "simd_prefix_inclusive_product(i == 3 ? V(5) : V(1))": lambda _: np.where(LANE >= 3, 5.0, 1.0),
    "simd_prefix_exclusive_product(i == 3 ? V(5) : V(1))": lambda _: np.where(LANE > 3, 5.0, 1.0),
    "quad_sum(v)": lambda v: v.reshape(8, 4).sum(1).repeat(4),
    "quad_max(v)": lambda v: v.reshape(8, 4).max(1).repeat(4),
    "quad_prefix_inclusive_sum(v)": lambda v: v.reshape(8, 4).cumsum(1).reshape(32),
}
MOVES: dict[str, Exchange] = {
    "simd_shuffle(v, 31 - i)": lambda v: v[::-1],
    "simd_broadcast(v, 5)": lambda v: np.repeat(v[5], 32),
    "simd_broadcast_first(v)": lambda v: np.repeat(v[0], 32),
    "simd_shuffle_xor(v, 5)": lambda v: v[LANE ^ 5],
    "simd_shuffle_down(v, 3)": lambda v: np.where(LANE + 3 < 32, v[np.minimum(LANE + 3, 31)], v),
    "simd_shuffle_up(v, 3)": lambda v: np.where(LANE >= 3, v[np.maximum(LANE - 3, 0)], v),
    "simd_shuffle_rotate_down(v, 3)": lambda v: np.roll(v, -3),
    "simd_shuffle_rotate_up(v, 3)": lambda v: np.roll(v, 3),
    "simd_shuffle_and_fill_down(v, w, 3)": lambda v: np.concatenate([v[3:], v[:3] + 40]),
    "simd_shuffle_and_fill_up(v, w, 3)": lambda v: np.concatenate([v[-3:] + 40, v[:-3]]),
    "simd_shuffle_and_fill_down(v, w, 1, 8)": lambda v: np.concatenate(
        [np.append(part[1:], part[0] + 40) for part in v.reshape(4, 8)]
    ),
    "quad_shuffle(v, 3 - i % 4)": lambda v: v.reshape(8, 4)[:, ::-1].reshape(32),
    "quad_broadcast(v, 2)": lambda v: v[2::4].repeat(4),
    "quad_broadcast_first(v)": lambda v: v[::4].repeat(4),
    "quad_shuffle_xor(v, 1)": lambda v: v[LANE ^ 1],
    "quad_shuffle_down(v, 1)": lambda v: np.where(LANE % 4 < 3, np.roll(v, -1), v),
    "quad_shuffle_up(v, 1)": lambda v: np.where(LANE % 4 > 0, np.roll(v, 1), v),
    "quad_shuffle_rotate_down(v, 1)": lambda v: np.roll(v.reshape(8, 4), -1, axis=1).reshape(32),
    "quad_shuffle_rotate_up(v, 1)": lambda v: np.roll(v.reshape(8, 4), 1, axis=1).reshape(32),
}
BITS: dict[str, Exchange] = {
    "simd_and(v)": lambda v: np.repeat(np.bitwise_and.reduce(v), 32),
    "simd_or(v)": lambda v: np.repeat(np.bitwise_or.reduce(v), 32),
    "simd_xor(v)": lambda v: np.repeat(np.bitwise_xor.reduce(v), 32),
    "quad_or(v)": lambda v: np.bitwise_or.reduce(v.reshape(8, 4), axis=1).repeat(4),
}


def _given(name: str) -> NDArray[np.int64]:
    # Small enough that every sum fits each type: 8 bits of fraction in a bfloat, 127 in an int8_t.
    return np.random.default_rng(3).integers(0, 8, 32) if name != "bfloat16_t" else np.arange(32) % 8


@pytest.mark.parametrize("name", mostly_slow([*FLOATS, *INTEGERS], ["bfloat16_t", "uint8_t"]))
def test_exchanges_of_scalars_and_vectors(name: str) -> None:
    dtype = {**FLOATS, **INTEGERS}[name]
    whole = name in INTEGERS
    v = _given(name)
    probes = {**REDUCTIONS, **MOVES, **(BITS if whole else {})}
    # As a scalar, and as the third component of a vector. Small functions compile faster than one long body.
    header = "\n".join(
        "template <typename V> __attribute__((noinline)) inline V exchange_"
        f"{k}(V v, V w, uint i) {{ return {expression}; }}"
        for k, expression in enumerate(probes)
    )
    stores = "\n".join(
        f"y[{k} * 64 + i] = exchange_{k}(x[i], T(x[i] + 40), i);\n"
        f"y[{k} * 64 + 32 + i] = exchange_{k}(vec<T, 4>(1, 2, x[i], 4), vec<T, 4>(1, 2, x[i] + 40, 4), i).z;"
        for k in range(len(probes))
    )
    (got,) = run(
        "uint i = thread_position_in_grid.x;\n" + stores,
        {"x": mx.array(v).astype(dtype)},
        {"y": ((len(probes), 2, 32), dtype)},
        threads=32,
        template={"T": dtype},
        header=header,
    )
    for row, (expression, exact) in zip(got.astype(np.float64), probes.items(), strict=True):
        want = np.asarray(exact(v if whole else v.astype(np.float64)), np.float64)
        assert row[0].tolist() == want.tolist(), (expression, name)
        assert row[1].tolist() == want.tolist(), ("vector", expression, name)


def test_votes_and_inactive_lanes() -> None:
    source = """
    uint i = thread_position_in_grid.x;
    bool odd = i & 1;
    y[i] = (uint)(ulong)simd_ballot(odd);
    y[32 + i] = simd_all(i < 32) + 2 * simd_any(i == 7) + 4 * simd_all(odd) + 8 * simd_any(i > 31);
    y[64 + i] = (uint)simd_vote::vote_t(simd_active_threads_mask());
    uint seen = 0;
    if (i >= 8) seen = simd_sum(1u) * 100 + simd_is_first() + 2 * (simd_broadcast_first(i) == 8);
    y[96 + i] = seen;
    y[128 + i] = (uint)(quad_vote::vote_t)quad_ballot(odd) + 16 * quad_any(i == 5) + 32 * quad_all(i < 4);
    y[160 + i] = simd_ballot(odd).any() + 2 * simd_ballot(odd).all() + 4 * simd_vote(0xfffffffful).all();
    """
    (got,) = run(source, {"x": np.zeros(1, np.float32)}, {"y": ((6, 32), mx.uint32)}, threads=32)
    assert set(got[0]) == {0xAAAAAAAA}
    assert set(got[1]) == {1 + 2}
    assert set(got[2]) == {0xFFFFFFFF}
    assert got[3].tolist() == [0] * 8 + [2403] + [2402] * 23
    assert got[4].tolist() == [10 + 32 * (k < 4) + 16 * (4 <= k < 8) for k in range(32)]
    assert set(got[5]) == {1 + 4}


def test_half_sums_are_rounded_in_half_and_bfloat_sums_once() -> None:
    x = np.full(32, 1 + 2**-7, np.float32)
    source = "y[thread_position_in_grid.x] = float(simd_sum(x[thread_position_in_grid.x]));"
    outputs = {"y": ((32,), mx.float32)}
    (half,) = run(source, {"x": mx.array(x).astype(mx.float16)}, outputs, threads=32)
    (bfloat,) = run(source, {"x": mx.array(x).astype(mx.bfloat16)}, outputs, threads=32)
    total = np.float16(0)
    for value in x.astype(np.float16):
        total = np.float16(total + value)
    assert half[0] == total
    assert bfloat[0] == float(ml_dtypes.bfloat16(x.sum()))


@pytest.mark.parametrize("threads", [64, 40])
def test_barriers_order_threadgroup_memory(threads: int) -> None:
    source = """
    threadgroup float shared[64];
    uint i = thread_index_in_threadgroup, n = threads_per_threadgroup.x;
    shared[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    float last = shared[n - 1 - i];
    simdgroup_barrier(metal::mem_flags::mem_none);
    threadgroup_barrier(mem_flags::mem_none);
    shared[i] = last * 2;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = shared[n - 1 - i];
    """
    x = np.arange(threads, dtype=np.float32)
    (got,) = run(source, {"x": x}, {"y": ((threads,), mx.float32)}, threads=threads)
    assert got.tolist() == (2 * x).tolist()
