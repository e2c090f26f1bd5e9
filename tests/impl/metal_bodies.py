"""Bodies of Metal kernels that the tests run, and their answers in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXPONENTIAL = """
    uint i = thread_position_in_grid.x;
    T value = x[i];
    y[i] = metal::exp(value);
"""

# One threadgroup a row: maxima and sums cross simdgroups through threadgroup memory.
SOFTMAX = """
    threadgroup float shared[32];
    uint thread_number = thread_index_in_threadgroup, lane = thread_index_in_simdgroup;
    const device T* row = x + threadgroup_position_in_grid.x * (uint)N;
    device T* out = y + threadgroup_position_in_grid.x * (uint)N;
    float most = -INFINITY;
    for (uint i = thread_number; i < (uint)N; i += threads_per_threadgroup.x) most = max(most, float(row[i]));
    most = simd_max(most);
    if (simdgroup_index_in_threadgroup == 0) shared[lane] = -INFINITY;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) shared[simdgroup_index_in_threadgroup] = most;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    most = simd_max(shared[lane]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = thread_number; i < (uint)N; i += threads_per_threadgroup.x) sum += exp(float(row[i]) - most);
    sum = simd_sum(sum);
    if (simdgroup_index_in_threadgroup == 0) shared[lane] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) shared[simdgroup_index_in_threadgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(shared[lane]);
    for (uint i = thread_number; i < (uint)N; i += threads_per_threadgroup.x)
        out[i] = T(exp(float(row[i]) - most) / sum);
"""

# Rows of a matrix of 4-bit codes in groups of 64, four rows a simdgroup.
QUANTIZED_PRODUCT = """
    constexpr uint rows_each = 4;
    uint lane = thread_index_in_simdgroup;
    uint simdgroup = threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
    uint first = simdgroup * rows_each;
    uint words = (uint)R / 8u;
    float sums[rows_each] = {0};
    for (uint word = lane; word < words; word += 32u) {
        float values[8], whole = 0;
        for (uint i = 0; i < 8; ++i) whole += values[i] = float(x[word * 8 + i]);
        for (uint r = 0; r < rows_each; ++r) {
            uint codes = w[(first + r) * words + word], group = (first + r) * ((uint)R / 64u) + word / 8u;
            float sum = 0;
            for (uint i = 0; i < 8; ++i) sum = fma(values[i], float((codes >> (4u * i)) & 15u), sum);
            sums[r] += float(scales[group]) * sum + float(biases[group]) * whole;
        }
    }
    for (uint r = 0; r < rows_each; ++r) {
        float sum = simd_sum(sums[r]);
        if (lane == 0) y[first + r] = T(sum);
    }
"""

# How often a group goes round depends on its data: its largest value is halved until all are below 1.
HALVING = """
    threadgroup float values[128];
    uint t = thread_index_in_threadgroup, group = threadgroup_position_in_grid.x;
    values[t] = x[group * 128 + t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint count = 0;
    while (true) {
        float most = values[0];
        for (uint i = 1; i < 128; ++i) most = max(most, values[i]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (most < 1.0f) break;
        if (values[t] == most) values[t] = most * 0.5f;
        count++;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[group * 128 + t] = values[t];
    if (t == 0) rounds[group] = count;
"""

HISTOGRAM = """
    threadgroup atomic_uint counts[16];
    uint t = thread_index_in_threadgroup;
    if (t < 16) atomic_store_explicit(&counts[t], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&counts[x[thread_position_in_grid.x] & 15u], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 16) {
        float count = atomic_load_explicit(&counts[t], memory_order_relaxed);
        atomic_fetch_add_explicit(&y[t], count, memory_order_relaxed);
    }
"""

# A small machine: each thread runs `program` on its value. An instruction is an operation (lowest three bits) and an
# operand. 0 sum, 1 exchange, 2 through threadgroup memory, 3 and 4 in divergent branches, 5 on its own, 6 leaves early
# (only lanes whose bit is set, and only where no barrier follows).
MACHINE = """
    threadgroup uint shared[1024];
    uint t = thread_index_in_threadgroup, n = threads_per_threadgroup.x;
    uint v = x[thread_position_in_grid.x];
    for (uint s = 0; s < (uint)program_shape[0]; ++s) {
        uint operation = program[s] & 7u, k = program[s] >> 3;
        if (operation == 0) {
            v = simd_sum(v) + t;
        } else if (operation == 1) {
            v += simd_shuffle_xor(v, ushort(k & 31u));
        } else if (operation == 2) {
            shared[t] = v;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            v ^= shared[n - 1 - t] * 3u;
            threadgroup_barrier(mem_flags::mem_threadgroup);
        } else if (operation == 3) {
            if ((v >> (k & 31u)) & 1u) v += simd_sum(v ^ k);
        } else if (operation == 4) {
            if (v & 1u) v = simd_max(v);
            else v = simd_min(v) + 7u;
        } else if (operation == 5) {
            v = v * 1664525u + 1013904223u;
        } else if ((v >> (k & 31u)) & 1u) {
            break;
        }
    }
    y[thread_position_in_grid.x] = v;
"""
_NOBODY = np.uint32(0xFFFFFFFF)  # what reading a lane that takes no part gives


def machine(x: NDArray[np.uint32], program: list[int], threadgroup: int) -> NDArray[np.uint32]:
    """Return what MACHINE leaves for `x`, [threads], with threadgroups of `threadgroup` threads."""
    out = x.copy()
    for first in range(0, len(x), threadgroup):
        group = out[first : first + threadgroup]
        running = np.ones(len(group), np.bool_)
        for instruction in program:
            operation, k = instruction & 7, np.uint32(instruction >> 3)
            if operation == 2:
                group ^= group[::-1].copy() * np.uint32(3)
                continue
            for begin in range(0, len(group), 32):
                lanes = slice(begin, begin + 32)
                _simdgroup(group[lanes], running[lanes], operation, k, begin)
    return out


def _simdgroup(v: NDArray[np.uint32], running: NDArray[np.bool_], operation: int, k: np.uint32, begin: int) -> None:
    old, bit = v.copy(), (v >> (k & np.uint32(31)) & np.uint32(1)).astype(np.bool_)
    if not running.any():
        return
    if operation == 0:
        sums = old[running].sum(dtype=np.uint32) + np.arange(begin, begin + len(v), dtype=np.uint32)
        v[running] = sums[running]
    elif operation == 1:
        padded = np.full(32, _NOBODY)
        padded[: len(v)][running] = old[running]
        v[running] += padded[np.arange(len(v)) ^ int(k & np.uint32(31))][running]
    elif operation == 3:
        chosen = running & bit
        v[chosen] += (old[chosen] ^ k).sum(dtype=np.uint32)
    elif operation == 4:
        odd = (old & np.uint32(1)).astype(np.bool_)
        for lanes, value in ((running & odd, np.max), (running & ~odd, lambda a: np.min(a) + np.uint32(7))):
            if lanes.any():
                v[lanes] = value(old[lanes])
    elif operation == 5:
        v[running] = old[running] * np.uint32(1664525) + np.uint32(1013904223)
    elif operation == 6:
        running &= ~bit


def softmax(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the softmax of each row of `x`, [rows, columns], in float64."""
    shifted = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True))
    answer: NDArray[np.float64] = shifted / shifted.sum(axis=1, keepdims=True)
    return answer


def halving(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], list[int]]:
    """Return what HALVING leaves of the rows of `x`, and how often each went round."""
    out, rounds = x.copy(), []
    for row in out:
        count = 0
        while row.max() >= 1:
            row[row == row.max()] *= np.float32(0.5)
            count += 1
        rounds.append(count)
    return out, rounds
