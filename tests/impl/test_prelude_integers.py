"""Metal's integer functions against Python's integers, for all eight types, scalar and vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from tests.impl.prelude.run import INTEGERS, mostly_slow, run

if TYPE_CHECKING:
    from collections.abc import Callable


class Width:
    """An integer type: how it wraps, saturates and counts bits."""

    def __init__(self, dtype: mx.Dtype) -> None:
        limits = np.iinfo(np.array(mx.zeros(1, dtype)).dtype)
        self.low, self.high, self.bits = int(limits.min), int(limits.max), int(limits.bits)

    def wrap(self, x: int) -> int:
        return (x - self.low) % (1 << self.bits) + self.low

    def clip(self, x: int) -> int:
        return min(max(x, self.low), self.high)

    def pattern(self, x: int) -> int:
        return x % (1 << self.bits)

    def reversed(self, x: int) -> int:
        return self.wrap(int(f"{self.pattern(x):0{self.bits}b}"[::-1], 2))

    def leading(self, x: int) -> int:
        return self.bits - self.pattern(x).bit_length()

    def trailing(self, x: int) -> int:
        p = self.pattern(x)
        return (p & -p).bit_length() - 1 if p else self.bits

    def rotate(self, x: int, y: int) -> int:
        n, p = self.pattern(y) % self.bits, self.pattern(x)
        return self.wrap(p << n | p >> (self.bits - n))

    def extract(self, x: int) -> int:
        field = self.pattern(x) >> 2 & 31
        return field - 32 if self.low < 0 and field & 16 else field

    def insert(self, x: int, y: int) -> int:
        return self.wrap(self.pattern(x) & ~(31 << 2) | (self.pattern(y) & 31) << 2)


@dataclass(frozen=True)
class Operands:
    width: Width
    a: int
    b: int
    c: int


CASES: dict[str, Callable[[Operands], int]] = {
    "abs(a)": lambda o: o.width.wrap(abs(o.a)),
    "min(a, b)": lambda o: min(o.a, o.b),
    "max(a, b)": lambda o: max(o.a, o.b),
    "clamp(a, min(b, c), max(b, c))": lambda o: min(max(o.a, min(o.b, o.c)), max(o.b, o.c)),
    "min3(a, b, c)": lambda o: min(o.a, o.b, o.c),
    "max3(a, b, c)": lambda o: max(o.a, o.b, o.c),
    "median3(a, b, c)": lambda o: sorted((o.a, o.b, o.c))[1],
    "popcount(a)": lambda o: o.width.pattern(o.a).bit_count(),
    "clz(a)": lambda o: o.width.leading(o.a),
    "ctz(a)": lambda o: o.width.trailing(o.a),
    "reverse_bits(a)": lambda o: o.width.reversed(o.a),
    "rotate(a, b)": lambda o: o.width.rotate(o.a, o.b),
    "mulhi(a, b)": lambda o: o.width.wrap((o.a * o.b) >> o.width.bits),
    "madhi(a, b, c)": lambda o: o.width.wrap(((o.a * o.b) >> o.width.bits) + o.c),
    "madsat(a, b, c)": lambda o: o.width.clip(o.a * o.b + o.c),
    "addsat(a, b)": lambda o: o.width.clip(o.a + o.b),
    "subsat(a, b)": lambda o: o.width.clip(o.a - o.b),
    "hadd(a, b)": lambda o: (o.a + o.b) >> 1,
    "rhadd(a, b)": lambda o: (o.a + o.b + 1) >> 1,
    "V(absdiff(a, b))": lambda o: o.width.wrap(abs(o.a - o.b)),
    "extract_bits(a, 2u, 5u)": lambda o: o.width.extract(o.a),
    "insert_bits(a, b, 2, 5)": lambda o: o.width.insert(o.a, o.b),
}
LANES = 64


@pytest.mark.parametrize("name", mostly_slow(INTEGERS, ["int", "uint8_t"]))
def test_integer_functions(name: str) -> None:
    dtype = INTEGERS[name]
    width = Width(dtype)
    random = np.random.default_rng(9)
    rows = [
        random.integers(width.low, width.high, LANES, np.array(mx.zeros(1, dtype)).dtype, endpoint=True)
        for _ in range(3)
    ]
    edges = [width.low, width.high, 0, 1, width.wrap(-1), width.high // 2]
    for k, row in enumerate(rows):
        row[: len(edges)] = edges[k:] + edges[:k]
    source = "uint i = thread_position_in_grid.x;\n" + "\n".join(
        f"y[{k * LANES} + i] = i % 4 ? f{k}(x[i], x[{LANES} + i], x[{2 * LANES} + i])"
        f" : f{k}(vec<T, 3>(x[i]), vec<T, 3>(x[{LANES} + i]), vec<T, 3>(x[{2 * LANES} + i])).y;"
        for k in range(len(CASES))
    )
    header = "\n".join(
        f"template <typename V> inline V f{k}(V a, V b, V c) {{ return {expression.replace('V(', 'msl_make<V>(')}; }}"
        for k, expression in enumerate(CASES)
    )
    (got,) = run(
        source,
        {"x": mx.array(np.stack(rows))},
        {"y": ((len(CASES), LANES), dtype)},
        threads=LANES,
        header=header,
        template={"T": dtype},
    )
    for row, (expression, exact) in zip(got, CASES.items(), strict=True):
        want = [exact(Operands(width, *map(int, abc))) for abc in zip(*rows, strict=True)]
        assert row.tolist() == want, (expression, name)


def test_products_of_24_bits() -> None:
    a, b = [3, -5, 0x7FFFFF], [7, 11, 2]
    (got,) = run(
        "y[0] = mul24(x[0], x[3]); y[1] = mad24(x[1], x[4], 1); y[2] = mul24(int2(x[2]), int2(x[5])).y;",
        {"x": mx.array([*a, *b, 0, 0])},
        {"y": ((3,), mx.int32)},
    )
    assert got.tolist() == [21, -54, 2 * 0x7FFFFF]
