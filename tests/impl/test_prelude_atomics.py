"""Atomics of Metal text in device and threadgroup memory, by sums that a lost update would change."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tests.impl.prelude.run import run

NONE = {"x": np.zeros(8, np.float32)}


def test_every_operation_on_threadgroup_atomics() -> None:
    source = """
    threadgroup atomic_int a[10];
    threadgroup atomic_uint u;
    threadgroup atomic<float> f;
    threadgroup atomic_bool flag;
    int i = thread_index_in_threadgroup;
    if (i < 10) atomic_store_explicit(&a[i], i == 3 ? -1 : i == 8 ? 1000 : 0, memory_order_relaxed);
    if (i == 0) {
      atomic_store_explicit(&u, 0, memory_order_relaxed);
      atomic_store_explicit(&f, 0.5f, memory_order_relaxed);
      atomic_store_explicit(&flag, false, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int before = atomic_fetch_add_explicit(&a[0], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&a[1], i, memory_order_relaxed);
    atomic_fetch_or_explicit(&a[2], 1 << (i % 8), memory_order_relaxed);
    atomic_fetch_and_explicit(&a[3], ~(1 << (i % 8)), memory_order_relaxed);
    atomic_fetch_xor_explicit(&a[4], i, memory_order_relaxed);
    atomic_fetch_min_explicit(&a[5], -i, memory_order_relaxed);
    atomic_fetch_max_explicit(&a[6], i, memory_order_relaxed);
    atomic_fetch_max_explicit(&a[7], before, memory_order_relaxed);
    int seen = atomic_load_explicit(&a[9], memory_order_relaxed);
    bool done = false;
    while (!done)
      done = atomic_compare_exchange_weak_explicit(
          &a[9], &seen, seen + 2, memory_order_relaxed, memory_order_relaxed);
    atomic_fetch_add_explicit(&u, 0x80000000u, memory_order_relaxed);
    atomic_fetch_add_explicit(&f, 0.25f, memory_order_relaxed);
    bool late = atomic_exchange_explicit(&flag, true, memory_order_relaxed);
    if (late) atomic_fetch_sub_explicit(&a[8], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < 10) y[i] = atomic_load_explicit(&a[i], memory_order_relaxed);
    if (i == 0) {
      y[10] = atomic_load_explicit(&u, memory_order_relaxed);
      y[11] = 4 * atomic_load_explicit(&f, memory_order_relaxed);
      y[12] = atomic_load_explicit(&flag, memory_order_relaxed);
    }
    """
    (got,) = run(source, NONE, {"y": ((13,), mx.int32)}, threads=100)
    xor = int(np.bitwise_xor.reduce(np.arange(100)))
    assert got.tolist() == [100, -4950, 255, -256, xor, -99, 99, 99, 1000 - 99, 200, 0, 2 + 100, 1]


def test_device_atomics_as_outputs() -> None:
    source = """
    uint i = thread_position_in_grid.x;
    atomic_fetch_add_explicit(&total[i % 4], 1.0f, memory_order_relaxed);
    atomic_fetch_max_explicit(&largest[0], int(i) - 500, memory_order_relaxed);
    device atomic_uint *as_words = (device atomic_uint *)words;
    atomic_fetch_or_explicit(as_words, 1u << (i % 32), metal::memory_order_relaxed);
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    """
    total, largest, words = run(
        source,
        NONE,
        {"total": ((4,), mx.float32), "largest": ((1,), mx.int32), "words": ((1,), mx.uint32)},
        threads=1000,
        group=100,
        init_value=0,
        atomic_outputs=True,
    )
    assert total.tolist() == [250] * 4
    assert largest.tolist() == [499]
    assert words.tolist() == [0xFFFFFFFF]
