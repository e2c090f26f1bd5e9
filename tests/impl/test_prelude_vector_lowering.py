"""The edits of LLVM text for vectors, on lines as clang 19 and 22 write them."""

from __future__ import annotations

import pytest

from impl.metal.errors import CompileError
from impl.metal.vector_lowering import lower_vectors

EDITED = {
    "  %7 = sext <4 x i1> %6 to <4 x i32>": "  %7 = zext <4 x i1> %6 to <4 x i32>",
    "  %7 = sext i1 %6 to i32": "  %7 = sext i1 %6 to i32",
    "  %7 = sext <4 x i8> %6 to <4 x i32>": "  %7 = sext <4 x i8> %6 to <4 x i32>",
    "  %2 = load <4 x float>, ptr %1, align 16, !tbaa !9": "  %2 = load <4 x float>, ptr %1, align 4, !tbaa !9",
    "  store <4 x half> %2, ptr %1, align 8": "  store <4 x half> %2, ptr %1, align 2",
    "  store volatile <2 x i64> %2, ptr %1, align 16": "  store volatile <2 x i64> %2, ptr %1, align 8",
    "  %2 = load float, ptr %1, align 4": "  %2 = load float, ptr %1, align 4",
    "  %2 = load atomic i64, ptr %1 monotonic, align 8": "  %2 = load atomic i64, ptr %1 monotonic, align 8",
    "  %2 = alloca <4 x float>, align 16": "  %2 = alloca <4 x float>, align 16",
    "  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %1, ptr align 16 %2, i64 64, i1 false)": (
        "  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %1, ptr align 4 %2, i64 64, i1 false)"
    ),
}
SIGN = """  %3 = icmp slt <2 x i32> %2, zeroinitializer
  %4 = sext <2 x i1> %3 to <2 x i32>
"""


@pytest.mark.parametrize("line", EDITED)
def test_lines(line: str) -> None:
    assert lower_vectors(line) == EDITED[line]


@pytest.mark.parametrize("ones", ["splat (i32 -1)", "<i32 -1, i32 -1>"])
def test_a_vector_as_a_condition_is_refused(ones: str) -> None:
    with pytest.raises(CompileError, match="write select"):
        lower_vectors(f"{SIGN}  %5 = xor <2 x i32> %4, {ones}\n")


def test_the_sign_of_a_vector_is_no_condition() -> None:
    assert lower_vectors(SIGN) == SIGN.replace("sext", "zext")
