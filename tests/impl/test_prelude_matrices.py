"""simdgroup_matrix: Apple's lane layout, loads and stores with strides, origin and transposition, and products."""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from tests.impl.prelude.run import FLOATS, mostly_slow, run

RNG = np.random.default_rng(5)


def test_lanes_hold_the_elements_that_kernels_expect() -> None:
    # The place of a lane's elements as MLX's steel kernels compute it (BaseMMAFrag::get_coord), in their own words.
    lane = np.arange(32)
    quad = lane // 4
    row, column = (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2
    source = """
    simdgroup_float8x8 m;
    simdgroup_load(m, x);
    y[2 * thread_index_in_simdgroup] = m.thread_elements()[0];
    y[2 * thread_index_in_simdgroup + 1] = reinterpret_cast<thread float2 &>(m.thread_elements()).y;
    """
    x = np.arange(64, dtype=np.float32)
    (got,) = run(source, {"x": x}, {"y": ((32, 2), mx.float32)}, threads=32)
    assert got.tolist() == np.stack([8 * row + column, 8 * row + column + 1], 1).tolist()


@pytest.mark.parametrize("name", mostly_slow(FLOATS, ["half"]))
def test_products_with_float_sums(name: str) -> None:
    a, b = RNG.integers(-8, 9, (2, 8, 8)).astype(np.float32) / 4
    source = """
    simdgroup_matrix<T, 8, 8> a, b, d;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.5f);
    simdgroup_load(a, x);
    simdgroup_load(b, x + 64);
    simdgroup_multiply(d, a, b);
    simdgroup_store(d, y);
    simdgroup_multiply_accumulate(sum, a, b, sum);
    simdgroup_multiply_accumulate(sum, a, b, sum);
    simdgroup_store(sum, z);
    simdgroup_matrix<T, 8, 8> diagonal(T(3));
    simdgroup_multiply(d, diagonal, a);
    simdgroup_store(d, w);
    """
    y, z, w = run(
        source,
        {"x": mx.array(np.stack([a, b])).astype(FLOATS[name])},
        {"y": ((8, 8), FLOATS[name]), "z": ((8, 8), mx.float32), "w": ((8, 8), FLOATS[name])},
        threads=32,
        template={"T": FLOATS[name]},
    )
    product = a.astype(np.float64) @ b
    rounded = product.astype({"float": np.float32, "half": np.float16}.get(name, ml_dtypes.bfloat16))
    assert y.tolist() == rounded.astype(np.float32).tolist()
    assert z.tolist() == (2 * product + 0.5).tolist()
    assert w.tolist() == (3 * a).tolist()


def test_strides_origin_and_transposition_in_device_and_threadgroup_memory() -> None:
    x = np.arange(24 * 20, dtype=np.float32).reshape(24, 20)
    source = """
    threadgroup float tile[24 * 20];
    for (uint i = thread_index_in_threadgroup; i < 24 * 20; i += 32) tile[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 m;
    simdgroup_load(m, x, 20, ulong2(3, 5));
    simdgroup_store(m, y);
    simdgroup_load(m, tile, 20, ulong2(3, 5), true);
    simdgroup_store(m, y + 64);
    simdgroup_load(m, tile + 41, 20);
    simdgroup_store(m, y + 128, 8, ulong2(0, 0), true);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_store(m, tile, 10, 2);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index_in_threadgroup; i < 80; i += 32) y[192 + i] = tile[20 + i];
    """
    (got,) = run(source, {"x": x}, {"y": ((192 + 80,), mx.float32)}, threads=32)
    parts = got[:192].reshape(3, 8, 8)
    assert parts[0].tolist() == x[5:13, 3:11].tolist()
    assert parts[1].tolist() == x[5:13, 3:11].T.tolist()
    assert parts[2].tolist() == x[2:10, 1:9].T.tolist()
    # Origin (2, 2) with ten elements a row.
    rows = got[192:].reshape(8, 10)
    assert rows[:, 2:].tolist() == x[2:10, 1:9].tolist()
