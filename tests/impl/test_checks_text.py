"""Reading and editing LLVM text: names, types, what pointers point into, and what needs no check."""

from __future__ import annotations

import pytest

from impl.metal.checks.instrument import instrument
from impl.metal.checks.llvm_text import functions, operands, stored_bytes, take_type
from impl.metal.checks.pointers import Pointers, Root
from impl.metal.checks.table import plain_name

FUNCTION = """define void @msl_kernel(ptr noundef align 4 %x, ptr noundef align 4 %y, i32 %i) !dbg !5 {
entry:
  %x.addr = alloca ptr, align 8
  %p = alloca ptr, align 8
  %mixed = alloca ptr, align 8
  %lent = alloca ptr, align 8
  %acc = alloca [4 x float], align 16
  store ptr %x, ptr %x.addr, align 8
  %0 = load ptr, ptr %x.addr, align 8, !dbg !6
  store ptr %0, ptr %p, align 8
  store ptr %x, ptr %mixed, align 8
  store ptr %y, ptr %mixed, align 8
  store ptr %x, ptr %lent, align 8
  call void @change(ptr %lent)
  br label %loop

loop:
  %1 = load ptr, ptr %p, align 8
  %next = getelementptr inbounds float, ptr %1, i64 4
  store ptr %next, ptr %p, align 8
  %2 = load ptr, ptr %mixed, align 8
  %3 = load ptr, ptr %lent, align 8
  %at = getelementptr inbounds [4 x float], ptr %acc, i64 0, i64 %i64
  %4 = load float, ptr %next, align 4, !dbg !7
  %fixed = getelementptr inbounds [4 x float], ptr %acc, i64 0, i64 3
  store float %4, ptr %fixed, align 4, !dbg !7
  store float %4, ptr %at, align 4, !dbg !7
  br label %loop
}
!5 = distinct !DISubprogram(name: "msl_kernel", file: !8, line: 1)
!6 = !DILocation(line: 2, column: 5, scope: !5)
!7 = !DILocation(line: 3, column: 9, scope: !9)
!8 = !DIFile(filename: "signature", directory: "/")
!9 = !DILexicalBlockFile(scope: !5, file: !10, discriminator: 0)
!10 = !DIFile(filename: "source", directory: "/")
"""
ARGUMENTS = {"%x": Root("buffer", "0"), "%y": Root("buffer", "1")}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("@_ZZ10msl_kernelE6shared", "shared"),
        ("@_ZZ10msl_kernelE6shared_0", "shared"),
        ("@_ZL5table", "table"),
        ("@_ZN4ours5tableE.1", "table"),
        ("@plain", "plain"),
        ('@"_ZZ10msl_kernelE2s1"', "s1"),
    ],
)
def test_names_are_the_authors(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


def test_types_and_operands() -> None:
    assert take_type('%"struct.metal::vec<float, 4>" %a, ptr %b') == ('%"struct.metal::vec<float, 4>"', "%a, ptr %b")
    assert take_type("{ i32, [2 x float] } undef") == ("{ i32, [2 x float] }", "undef")
    held = "float 2.0, ptr getelementptr inbounds ([2 x float], ptr @s, i64 0, i64 1), align 4"
    assert operands(held) == ["float 2.0", "ptr getelementptr inbounds ([2 x float], ptr @s, i64 0, i64 1)", "align 4"]
    assert [stored_bytes(kind) for kind in ("<3 x float>", "bfloat", "ptr", "<4 x i8>")] == ["12", "2", "8", "4"]


@pytest.mark.parametrize(
    ("pointer", "root"),
    [
        ("%x", Root("buffer", "0")),
        ("%next", Root("buffer", "0")),
        ("%1", Root("buffer", "0")),
        ("%2", Root("unknown")),
        ("%3", Root("unknown")),
        ("%at", Root("private", "%acc")),
        ("getelementptr inbounds ([2 x float], ptr @s, i64 0, i64 1)", Root("global", "@s")),
    ],
)
def test_what_a_pointer_points_into(pointer: str, root: Root) -> None:
    (function,) = functions(FUNCTION)
    assert Pointers(function, ARGUMENTS).root(pointer) == root


def test_only_what_can_miss_is_checked_and_by_its_place() -> None:
    text, table = instrument(FUNCTION, 2)
    assert list(table.places) == [("source", 3, 9)]
    assert text.count("call ptr @msl_check_read(ptr %next, i64 4, i32 1, i32 0)") == 1
    assert text.count("@msl_check_offset(") == 1
    assert "store float %4, ptr %fixed, align 4\n" in text
    assert [(v.name, v.symbol) for v in table.variables] == [("acc", "")]
    assert "!dbg" not in text
