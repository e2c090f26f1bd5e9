"""The rewriting of constructors, declarators, literals and constructors' qualifiers that clang cannot take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl.metal.vector_syntax import rewrite

REWRITTEN = {
    "vec<float, 4>(1, 2, 3, 4)": "msl_make<vec<float, 4>>(1, 2, 3, 4)",
    "metal::vec<T, 2> (x)": "msl_make<metal::vec<T, 2>> (x)",
    "vec<T, (N > 2 ? 4 : 2)>(x)": "msl_make<vec<T, (N > 2 ? 4 : 2)>>(x)",
    "vec<float, 2> v = a < b;": "vec<float, 2> v = a < b;",
    "vec<T, 4>(vec<T, 2>(a), b)": "msl_make<vec<T, 4>>(msl_make<vec<T, 2>>(a), b)",
    "using V = vec<T, 4>; V(x) + V{x}": "using V = vec<T, 4>; msl_make<V>(x) + V{x}",
    "using V = half4; y = V(x)": "using V = half4; y = msl_make<V>(x)",
    "typedef metal::vec<float, 2> f2; f2(a)": "typedef metal::vec<float, 2> f2; msl_make<f2>(a)",
    "using V = float4; using W = V; W(a)": "using V = float4; using W = V; msl_make<W>(a)",
    "template <typename T> using P = vec<T, 2>; P<int>(v)": (
        "template <typename T> using P = vec<T, 2>; msl_make<P<int>>(v)"
    ),
    "struct S { using v = vec<T, 4>; }; S<T>::v(x)": "struct S { using v = vec<T, 4>; }; msl_make<S<T>::v>(x)",
    "using P = device float4 *; P(x)": "using P = device float4 *; P(x)",
    "using N = int; N(x)": "using N = int; N(x)",
    "using V = float4; a.V(x); p->V(x)": "using V = float4; a.V(x); p->V(x)",
    "using V = float4; operator V() const": "using V = float4; operator V() const",
    "thread float4 (&rows)[2]": "thread float4 MSL_DECLARES (&rows)[2]",
    "threadgroup half (*tile)[64]": "threadgroup half MSL_DECLARES (*tile)[64]",
    "half(*p) + float4(*q)": "half(*p) + float4(*q)",
    "using V = float4; thread V (&rows)[2]": "using V = float4; thread V (&rows)[2]",
    "static_cast<half>(x) + static_cast<vec<T, 2>>(y)": "msl_make   <half>(x) + msl_make   <vec<T, 2>>(y)",
    "using V = float4; static_cast<V>(x)": "using V = float4; msl_make   <V>(x)",
    "static_cast<T>(x) + static_cast<float>(x)": "static_cast<T>(x) + static_cast<float>(x)",
    "static_cast<thread half &>(x); static_cast<device half *>(x)": (
        "static_cast<thread half &>(x); static_cast<device half *>(x)"
    ),
    "operator half() const": "operator half MSL_DECLARES() const",
    "1.5bf + .5bf + 1e3bf - 2.bf": "bfloat(1.5f) + bfloat(.5f) + bfloat(1e3f) - bfloat(2.f)",
    "0xabf + x1.5": "0xabf + x1.5",
    "struct A { A(int x) thread : x(x) {} };": "struct A { A(int x)        : x(x) {} };",
    "operator T() const thread noexcept {": "operator T() const        noexcept {",
    "float at(int i) const thread {": "float at(int i) const thread {",
    "if (c) thread float *p = q;": "if (c) thread float *p = q;",
}


@pytest.mark.parametrize("text", REWRITTEN)
def test_what_is_rewritten_and_what_is_left_alone(text: str) -> None:
    assert rewrite("", text)[1] == REWRITTEN[text]


def test_an_alias_of_the_header_is_known_in_the_source() -> None:
    assert rewrite("using V = vec<float, 4>;", "V(1)") == ("using V = vec<float, 4>;", "msl_make<V>(1)")


def test_comments_and_strings_are_left_alone() -> None:
    text = 'using V = float4; // V(1) vec<T, 2>(1)\n/* V(2)\n1.5bf */ f("V(3)")'
    assert rewrite("", text)[1] == text


@given(st.lists(st.sampled_from([*REWRITTEN, "\n", "\n// vec<T, 2>(x)\n", "/*\n*/", '"\\""']), max_size=8))
def test_lines_keep_their_numbers_and_a_second_pass_changes_nothing(parts: list[str]) -> None:
    text = " ".join(parts)
    once = rewrite("", text)[1]
    assert once.count("\n") == text.count("\n")
    assert rewrite("", once)[1] == once
