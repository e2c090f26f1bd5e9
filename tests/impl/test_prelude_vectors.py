"""Scalars, vectors, their constructors and conversions in Metal text, against values worked out by hand."""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from tests.impl.prelude.run import FLOATS, INTEGERS, mostly_slow, run, values

HEADER = """
template <typename T> struct Lanes { typedef metal::vec<T, 4> four; };
using H4 = half4;
template <typename T> using Pair = vec<T, 2>;
constant float4 TABLE[2] = {float4(1, 2, 3, 4), float4(float2(5, 6), 7, 8)};
constexpr constant half2 HALVES = half2(1.5h, 2);
inline float first(thread float4 (&rows)[2]) { return rows[0].x + rows[1].w; }
inline void swap_ends(thread float4 &v) { v.xw = v.wx; }
"""
BEFORE = """
using V = vec<float, 4>;
float a = x[0], b = x[1], c = x[2], d = x[3];
float4 v = float4(a, b, c, d);
half4 h = half4(v);
float4 rows[2] = {float4(1), float4(2)};
float4 turned = v; swap_ends(turned);
float4 written = v; written.xz = float2(9); written.w += 1; written[1] = 7;
"""


def test_constructors_conversions_and_swizzles() -> None:
    values(
        {
            "v": [1, 2, 3, 4],
            "v.wzyx": [4, 3, 2, 1],
            "v.rgba.bg": [3, 2],
            "v.xxyy": [1, 1, 2, 2],
            "float4()": [0, 0, 0, 0],
            "float4(5)": [5, 5, 5, 5],
            "float4(v.xy, v.zw)": [1, 2, 3, 4],
            "float4(v.xy, 8, 9)": [1, 2, 8, 9],
            "float4(8, v.xy, 9)": [8, 1, 2, 9],
            "float4(8, 9, v.xy)": [8, 9, 1, 2],
            "float4(v.xyz, 9)": [1, 2, 3, 9],
            "float4(9, v.xyz)": [9, 1, 2, 3],
            "float3(v.xy, 9)": [1, 2, 9],
            "float3(9, v.xy)": [9, 1, 2],
            "float4{a, b, c, d}": [1, 2, 3, 4],
            "metal::float2(3, 4)": [3, 4],
            "float4(h)": [1, 2, 3, 4],
            "V(h)": [1, 2, 3, 4],
            "V(a, b, c, d)": [1, 2, 3, 4],
            "H4(v).y": 2,
            "Pair<int>(v.zw)": [3, 4],
            "Lanes<float>::four(h)": [1, 2, 3, 4],
            "vec<float, 4>(1, 2, v.xy)": [1, 2, 1, 2],
            "metal::vec<int, 3>(1.9f, -1.9f, 2.5f)": [1, -1, 2],
            "int4(float4(1.7f, -1.7f, 0, 2))": [1, -1, 0, 2],
            "uchar4(257, 2, 3, 4)": [1, 2, 3, 4],
            "float2(as_type<half2>(0x3c004000u))": [2, 1],
            "TABLE[1].wx": [8, 5],
            "HALVES": [1.5, 2],
            "first(rows)": 3,
            "turned": [4, 2, 3, 1],
            "written": [9, 7, 9, 5],
            "v * 2 + 1": [3, 5, 7, 9],
            "2.0f / v.xy": [2, 1],
            "-v.xy": [-1, -2],
            "ushort2(70000, 1)": [70000 - 65536, 1],
            "int2(7, -7) / 2": [3, -3],
            "uint2(1, 2) << 3": [8, 16],
            "float(sizeof(float3))": 16,
            "float(sizeof(packed_float3))": 12,
            "float(sizeof(bool4))": 4,
            "float(sizeof(bfloat4))": 8,
        },
        before=BEFORE,
        header=HEADER,
    )


def test_bool_vectors_and_selection() -> None:
    values(
        {
            "v > 2": [0, 0, 1, 1],
            "!over": [1, 1, 0, 0],
            "over && even": [0, 0, 0, 1],
            "over || even": [0, 1, 1, 1],
            "over && (v < 4)": [0, 0, 1, 0],
            "float4(over)": [0, 0, 1, 1],
            "int4(over)": [0, 0, 1, 1],
            "any(over)": 1,
            "all(over)": 0,
            "any(v > 4)": 0,
            "all(v > 0)": 1,
            "all(isfinite(v))": 1,
            "any(isnan(v / 0 * 0))": 1,
            "select(v, -v, over)": [1, 2, -3, -4],
            "select(v, -v, v == 2)": [1, -2, 3, 4],
            "select(a, b, a > b)": 1,
            "select(1, 2, true)": 2,
            "over.z": 1,
            "bool4(true)[3]": 1,
            "bool2(true, false)": [1, 0],
        },
        before=BEFORE + "bool4 over = v > 2; bool4 even = bool4(false, true, false, true);",
        header=HEADER,
    )


def test_literals_and_the_types_of_expressions() -> None:
    # 1.0 is a float, so that 1.0 / 3 is not computed in double and rounded; half and bfloat round every operation.
    third = float(np.float32(1) / np.float32(3))
    half = np.float16
    bfloat = ml_dtypes.bfloat16
    rounded_half = half(half(half(1.1) * half(1.3)) + half(0.7))
    rounded_bfloat = bfloat(float(bfloat(float(bfloat(1.1)) * float(bfloat(1.3)))) + float(bfloat(0.7)))
    values(
        {
            "1.0 / 3": third,
            "sizeof(1.0)": 4,
            "sizeof(1.0h)": 2,
            "sizeof(1.5bf)": 2,
            "1.1h": float(half(1.1)),
            "1.1bf": float(bfloat(1.1)),
            "half(x[0] * 1.1f) * half(x[0] * 1.3f) + half(x[0] * 0.7f)": float(rounded_half),
            "float(bfloat(x[0] * 1.1f) * bfloat(x[0] * 1.3f) + bfloat(x[0] * 0.7f))": float(rounded_bfloat),
            "float(bfloat(half(x[1])))": 2,
            "half(bfloat16_t(x[1]))": 2,
            "bfloat2(half2(x[0], x[1]))": [1, 2],
            "half2(bfloat2(x[0], x[1]))": [1, 2],
            "0xffffffffu / 16777216": 255,
            "(1ul << 40) >> 38": 4,
        }
    )


@pytest.mark.parametrize("name", mostly_slow([*FLOATS, *INTEGERS], ["bfloat16_t", "int64_t"]))
def test_every_element_type_goes_through_a_vector(name: str) -> None:
    dtype = {**FLOATS, **INTEGERS}[name]
    given = mx.array([1, 2, 3, 4, 5, 6, 7, 8]).astype(dtype)
    source = """
    device vec<T, 4> *to = (device vec<T, 4> *)y;
    const device vec<T, 2> *pairs = reinterpret_cast<const device vec<T, 2> *>(x);
    to[0] = vec<T, 4>(pairs[0].yx, pairs[3]) + vec<T, 4>(vec<float, 4>(10)) * T(2);
    """
    (got,) = run(source, {"x": given}, {"y": ((4,), dtype)}, template={"T": dtype})
    assert got.tolist() == [22, 21, 27, 28]


def test_numeric_limits() -> None:
    finfo, half, iinfo = np.finfo(np.float32), np.finfo(np.float16), np.iinfo
    values(
        {
            "numeric_limits<float>::max()": finfo.max,
            "numeric_limits<float>::min()": finfo.tiny,
            "numeric_limits<float>::lowest()": finfo.min,
            "numeric_limits<float>::epsilon()": finfo.eps,
            "numeric_limits<float>::infinity()": np.inf,
            "numeric_limits<float>::quiet_NaN()": np.nan,
            "numeric_limits<half>::max()": half.max,
            "numeric_limits<half>::epsilon()": half.eps,
            "numeric_limits<half>::denorm_min()": half.smallest_subnormal,
            "float(numeric_limits<bfloat>::max())": (2 - 2**-7) * 2.0**127,
            "float(numeric_limits<bfloat>::epsilon())": 2**-7,
            "numeric_limits<int>::min()": iinfo(np.int32).min,
            "numeric_limits<uchar>::max()": 255,
            "numeric_limits<char>::min()": -128,
            "numeric_limits<short>::max()": 32767,
            "numeric_limits<ulong>::max() >> 40": 2**24 - 1,
            "numeric_limits<long>::min() >> 40": -(2**23),
            "numeric_limits<int>::digits": 31,
            "numeric_limits<float>::is_integer": 0,
            "INFINITY": np.inf,
            "HALF_MAX": 65504,
            "INT_MAX >> 8": 2**23 - 1,
        }
    )


def test_bits_and_packed_vectors_and_matrices() -> None:
    values(
        {
            "as_type<float>(0x40490fdbu)": np.float32(np.pi),
            "as_type<uint>(x[0]) >> 20": 0x3F8,
            "as_type<ushort>(half(x[1]))": 0x4000,
            "as_type<uchar4>(0x04030201u)": [1, 2, 3, 4],
            "as_type<uint>(uchar4(1, 0, 0, 1)) & 0xffffu": 1,
            "packed[1].y": 5,
            "float3(packed[1])": [4, 5, 6],
            "packed[0] * 2.0f + packed[1]": [6, 9, 12],
            "m[1]": [3, 4],
            "m * float2(1, 10)": [31, 42],
            "float2(1, 10) * m": [21, 43],
            "(m * m)[0]": [7, 10],
            "transpose(m)[0]": [1, 3],
            "determinant(m)": -2,
            "float3x3(2.0f)[1]": [0, 2, 0],
            "determinant(float4x4(2.0f))": 16,
        },
        before="""const device packed_float3 *packed = (const device packed_float3 *)x;
        float2x2 m = float2x2(float2(1, 2), float2(3, 4));""",
    )
