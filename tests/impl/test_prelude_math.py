"""Metal's floating-point functions against NumPy in float64, for float, half and bfloat, scalar and vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.impl.prelude.run import FLOATS, mostly_slow, run, values

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.float64]

# Name, the exact function, and the range of the arguments.
ONE: list[tuple[str, Callable[[Floats], Floats], tuple[float, float]]] = [
    ("acos", np.arccos, (-1, 1)),
    ("acosh", np.arccosh, (1, 50)),
    ("asin", np.arcsin, (-1, 1)),
    ("asinh", np.arcsinh, (-20, 20)),
    ("atan", np.arctan, (-20, 20)),
    ("atanh", np.arctanh, (-0.95, 0.95)),
    ("ceil", np.ceil, (-20, 20)),
    ("cos", np.cos, (-6, 6)),
    ("cosh", np.cosh, (-6, 6)),
    ("cospi", lambda x: np.cos(np.pi * x), (-2, 2)),
    ("exp", np.exp, (-8, 8)),
    ("exp2", np.exp2, (-8, 8)),
    ("exp10", lambda x: 10.0**x, (-4, 4)),
    ("fabs", np.abs, (-20, 20)),
    ("abs", np.abs, (-20, 20)),
    ("floor", np.floor, (-20, 20)),
    ("fract", lambda x: x - np.floor(x), (-20, 20)),
    ("log", np.log, (0.01, 90)),
    ("log2", np.log2, (0.01, 90)),
    ("log10", np.log10, (0.01, 90)),
    ("rint", np.rint, (-20, 20)),
    ("round", lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), (-20, 20)),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (0.01, 90)),
    ("saturate", lambda x: np.clip(x, 0, 1), (-1, 2)),
    ("sign", np.sign, (-2, 2)),
    ("sin", np.sin, (-6, 6)),
    ("sinh", np.sinh, (-6, 6)),
    ("sinpi", lambda x: np.sin(np.pi * x), (-2, 2)),
    ("sqrt", np.sqrt, (0, 90)),
    ("tan", np.tan, (-1.4, 1.4)),
    ("tanh", np.tanh, (-6, 6)),
    ("tanpi", lambda x: np.tan(np.pi * x), (-0.4, 0.4)),
    ("trunc", np.trunc, (-20, 20)),
]
MORE: list[tuple[str, str, Callable[[Floats, Floats, Floats], Floats]]] = [
    ("atan2", "a, b", lambda a, b, _: np.arctan2(a, b)),
    ("copysign", "a, b", lambda a, b, _: np.copysign(a, b)),
    ("fdim", "a, b", lambda a, b, _: np.maximum(a - b, 0)),
    ("fmax", "a, b", lambda a, b, _: np.maximum(a, b)),
    ("fmin", "a, b", lambda a, b, _: np.minimum(a, b)),
    ("max", "a, b", lambda a, b, _: np.maximum(a, b)),
    ("min", "a, b", lambda a, b, _: np.minimum(a, b)),
    ("fmod", "a, b", lambda a, b, _: np.fmod(a, b)),
    ("pow", "abs(a), b", lambda a, b, _: np.abs(a) ** b),
    ("powr", "abs(a), b", lambda a, b, _: np.abs(a) ** b),
    ("step", "a, b", lambda a, b, _: np.where(b < a, 0.0, 1.0)),
    ("fma", "a, b, c", lambda a, b, c: a * b + c),
    ("clamp", "a, -abs(b), abs(b)", lambda a, b, _: np.clip(a, -np.abs(b), np.abs(b))),
    ("fmax3", "a, b, c", lambda a, b, c: np.maximum(a, np.maximum(b, c))),
    ("min3", "a, b, c", lambda a, b, c: np.minimum(a, np.minimum(b, c))),
    ("median3", "a, b, c", lambda a, b, c: np.median([a, b, c], axis=0)),
]
LANES = 256
ROUNDING = {"float": 2.0**-21, "half": 2.0**-10, "bfloat16_t": 2.0**-7}


def _rounded(x: Floats, name: str) -> Floats:
    if name == "bfloat16_t":
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)
    return x.astype(np.float16 if name == "half" else np.float32).astype(np.float64)


def _check(names: list[str], got: Any, want: list[Floats], name: str) -> None:
    for function, seen, exact in zip(names, got.astype(np.float64), want, strict=True):
        allowed = ROUNDING[name] * np.maximum(np.abs(exact), 2.0**-6)
        wrong = np.abs(seen - exact) > allowed
        assert not wrong.any(), (function, name, seen[wrong][:3], exact[wrong][:3])


@pytest.mark.parametrize("name", mostly_slow(FLOATS, ["float", "bfloat16_t"]))
def test_functions_of_one_number(name: str) -> None:
    random = np.random.default_rng(7)
    given = np.stack([_rounded(random.uniform(*span, LANES), name) for _, _, span in ONE])
    # A vector's components must be what the scalar function gives: column 4n + 3 comes from a vector.
    stores = "\n".join(
        f"y[{k * LANES} + i] = i % 4 == 3 ? {f}(((const device vec<T, 4> *)(x + {k * LANES}))[i / 4]).w"
        f" : {f}(x[{k * LANES} + i]);"
        for k, (f, _, _) in enumerate(ONE)
    )
    (got,) = run(
        "uint i = thread_position_in_grid.x;\n" + stores,
        {"x": mx.array(given.astype(np.float32)).astype(FLOATS[name])},
        {"y": ((len(ONE), LANES), FLOATS[name])},
        threads=LANES,
        template={"T": FLOATS[name]},
    )
    _check([f for f, _, _ in ONE], got, [exact(x) for (_, exact, _), x in zip(ONE, given, strict=True)], name)


@pytest.mark.parametrize("name", mostly_slow(FLOATS, ["half"]))
def test_functions_of_several_numbers(name: str) -> None:
    random = np.random.default_rng(8)
    a, b, c = (_rounded(random.uniform(0.25, 3, LANES) * random.choice([-1, 1], LANES), name) for _ in range(3))
    stores = "\n".join(
        f"y[{k * LANES} + i] = i % 4 == 3 ? f{k}(vec<T, 3>(a), vec<T, 3>(b), vec<T, 3>(c)).z : f{k}(a, b, c);"
        for k in range(len(MORE))
    )
    header = "\n".join(
        f"template <typename V> inline V f{k}(V a, V b, V c) {{ return metal::{f}({args}); }}"
        for k, (f, args, _) in enumerate(MORE)
    )
    (got,) = run(
        f"uint i = thread_position_in_grid.x;\nT a = x[i], b = x[{LANES} + i], c = x[{2 * LANES} + i];\n" + stores,
        {"x": mx.array(np.stack([a, b, c]).astype(np.float32)).astype(FLOATS[name])},
        {"y": ((len(MORE), LANES), FLOATS[name])},
        threads=LANES,
        template={"T": FLOATS[name]},
        header=header,
    )
    _check([f for f, _, _ in MORE], got, [exact(a, b, c) for _, _, exact in MORE], name)


def test_special_values_and_the_parts_of_numbers() -> None:
    f32 = np.float32
    values(
        {
            "min(NAN, a)": 1,
            "max(a, NAN)": 1,
            "sign(NAN)": 0,
            "sign(-0.0f)": -0.0,
            "fract(-1e-8f)": f32(1 - 2**-24),
            "sinpi(1.0f)": 0,
            "cospi(0.5f)": 0,
            "powr(-1.0f, 2.0f) != powr(-1.0f, 2.0f)": 1,
            "rint(2.5f)": 2,
            "round(2.5f)": 3,
            "isinf(-INFINITY)": 1,
            "isnormal(1e-39f)": 0,
            "isnormal(half(6e-5f))": 0,
            "signbit(-0.0f)": 1,
            "signbit(float2(-1, 1))": [1, 0],
            "ldexp(a, 5)": 32,
            "ldexp(half2(1, 3), int2(1, -1))": [2, 1.5],
            "ilogb(0.3f)": -2,
            "frexp(-10.0f, e)": -0.625,
            "e": 4,
            "modf(-2.75f, whole)": -0.75,
            "whole": -2,
            "sincos(a, whole) == sin(a) && whole == cos(a)": 1,
            "nextafter(1.0f, 2.0f)": f32(1 + 2**-23),
            "nextafter(half(1), half(0))": 1 - 2**-11,
            "nextafter(0.0f, -1.0f) < 0 || true": 1,
            "mix(float2(1, 2), float2(3, 6), 0.5f)": [2, 4],
            "clamp(float3(-1, 0.5f, 2), 0.0f, 1.0f)": [0, 0.5, 1],
            "max(float2(-1, 2), 0)": [0, 2],
            "smoothstep(0.0f, 2.0f, float2(1, 3))": [0.5, 1],
            "step(0.5f, float2(0, 1))": [0, 1],
            "pow(float2(2, 3), 2.0f)": [4, 9],
            "metal::fast::exp2(3.0f)": 8,
            "fast::sqrt(float2(4, 9))": [2, 3],
            "metal::precise::rsqrt(0.25f)": 2,
            "precise::divide(1.0f, 4.0f)": 0.25,
            "sizeof(fast::exp(half(1)))": 4,
            "sizeof(exp(half(1)))": 2,
            "sizeof(metal::exp(bfloat(1)))": 2,
            "dot(float3(1, 2, 3), float3(4, 5, 6))": 32,
            "cross(float3(1, 0, 0), float3(0, 1, 0))": [0, 0, 1],
            "length(float2(3, 4))": 5,
            "distance(half2(3, 4), half2(0))": 5,
            "normalize(float2(0, 4))": [0, 1],
            "reflect(float2(1, -1), float2(0, 1))": [1, 1],
            "length_squared(bfloat2(1, 2))": 5,
        },
        before="float a = x[0]; int e; float whole;",
    )
