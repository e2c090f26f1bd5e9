"""Puts checks into clang's LLVM text: before each access of memory, division, shift and conversion of the kernel.

What needs none: variables of a thread that are used as they are. The rest is asked of the runtime (checked.cpp), which
answers with the address to use, so that an access outside does no harm and the kernel goes on. A check carries the
number of its place in the kernel's text; inside the prelude it is 0, and the place is that of the call that led
there. A check also carries what the pointer points into, where the text tells: then an index that lands in somebody
else's memory is found all the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal.checks import arithmetic, beginnings
from impl.metal.checks.accesses import Accesses
from impl.metal.checks.lending import Lending
from impl.metal.checks.llvm_text import Function, Places, functions, take_type, without_debug
from impl.metal.checks.pointers import Pointers, Root
from impl.metal.checks.table import TABLE, THREADGROUP, Table, Variable, plain_name
from impl.metal.convergence import KERNEL_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

# Between two threadgroup variables, so that an overrun of one by an unknown pointer is not taken for the other.
_PAD_BYTES = 256
# How the runtime enters the kernel, and the functions that read what other lanes brought to a meeting.
_LEFT_ALONE = re.compile(r"msl_run_(?:thread|group)$|msl_lanes|msl_fold|msl_reduce|msl_meet\w")

_GLOBAL = re.compile(r"^(@\S+) = (.*?)\b(global|constant) (.*)$", re.MULTILINE)
_THREADGROUP = re.compile(r"^(@\S+) = (internal (?:unnamed_addr )?global) (.*) undef(, align \d+)$", re.MULTILINE)
_CALL = re.compile(r"\bcall [^@\n]*@([\w.$]+|\"[^\"]+\")\(")
_RESULT = re.compile(r"^  (%[\w.$-]+) = call ")
_FLAGS = re.compile(r"@_ZN5metal1\dthreadgroup_barrierE|@_ZN5metal19threadgroup_barrierENS_9mem_flagsE")
_FENCE = re.compile(r"@_ZN5metal19atomic_thread_fenceE\w*msl_fence_order")
_ATOMIC_CALL = re.compile(r"atomic_(?:fetch|exchange|compare)")
DECLARATIONS = """
@msl_check_here = external global i32
declare ptr @msl_check_read(ptr, i64, i32, i32)
declare ptr @msl_check_peek(ptr, i64)
declare ptr @msl_check_write(ptr, i64, ptr, i32, i32)
declare ptr @msl_check_atomic(ptr, i64, i32, i32, i32)
declare ptr @msl_check_copy_from(ptr, i64, i32, i32)
declare ptr @msl_check_fill(ptr, i64, i8, i32, i32)
declare i64 @msl_check_offset(i64, i64, i64, i32, i32, i32)
declare i64 @msl_check_division(i64, i64, i64, i32, i32, i32)
declare i64 @msl_check_shift(i64, i64, i32, i32)
declare i64 @msl_check_conversion(double, i64, i32, i32, i32)
declare void @msl_check_fresh(ptr, i64, i32)
declare void @msl_check_lend(ptr, i64, i32)
declare void @msl_check_take_back(ptr)
declare void @msl_check_flags(i32)
declare void @msl_check_fence()
"""


def instrument(llvm_text: str, buffers: int) -> tuple[str, Table]:
    """Return the text with checks, for a kernel with `buffers` buffers, and the table of their places and variables.

    DECLARATIONS must follow once the text is lowered, which refuses globals that it does not know.
    """
    places = Places(llvm_text)
    table = Table(buffers)
    text = _variables(llvm_text, table)
    found = functions(text)
    kernel = next((f for name in KERNEL_NAMES for f in found if f.name == name), None)
    own = {f.name for f in found if places.is_own(f.lines[0]) and not _LEFT_ALONE.search(f.name)}
    # In the order of the text, as the runtime compares places to find out which lane is behind.
    for where in sorted({w for f in found for line in f.lines if (w := places.of(line))}):
        table.place(where)
    for function in found:
        if not _LEFT_ALONE.search(function.name):
            _instrument(function, function is kernel, function.name in own, places, table)
    _remember_calls(found, own, places, table)
    pieces, at = [], 0
    for function in found:
        pieces += [text[at : function.begin], "\n".join(function.lines)]
        at = function.end
    return without_debug("".join([*pieces, text[at:]])), table


def _variables(llvm_text: str, table: Table) -> str:
    for symbol, before, word, rest in _GLOBAL.findall(llvm_text):
        kind = take_type(rest)[0]
        if word == "global" and "internal" in before:
            table.variable(Variable(plain_name(symbol), symbol, kind, THREADGROUP))
        elif word == "constant" and "external" not in before:
            table.variable(Variable(plain_name(symbol), symbol, kind, TABLE))
    return _THREADGROUP.sub(rf"\1 = \2 {{ \3, [{_PAD_BYTES} x i8] }} undef\4", llvm_text)


def _instrument(function: Function, is_kernel: bool, is_own: bool, places: Places, table: Table) -> None:
    arguments: dict[str, Root] = {}
    if is_kernel:
        names = re.findall(r"\bptr (?:[a-z]+(?:\(\w+\)| \d+)? )*(%[\w.$-]+)", function.lines[0])
        arguments = {name: Root("buffer", str(number)) for number, name in enumerate(names[: table.buffers])}
    pointers = Pointers(function, arguments)
    accesses = Accesses(function, pointers, places, table)
    lending = Lending(function, pointers, table) if is_own else None
    lines = [function.lines[0]]
    for number, line in enumerate(function.lines[1:-1], start=1):
        where = places.of(line)
        if where and "!llvm.loop" in line:
            lines.append(_here(table.place(where)))
        computed = arithmetic.checked(function, number, line, table.place(where))
        if computed != [line]:
            lines += computed
            continue
        lines += lending.line(line) if lending and ("alloca" in line or "lifetime" in line) else accesses.checked(line)
        if where and is_own:
            lines += beginnings.checked(function, number, line, table.place(where), table)
    lines.append(function.lines[-1])
    begin = 2 if len(lines) > 2 and lines[1].endswith(":") else 1
    head = list(accesses.prologue())
    if _FLAGS.search(lines[0]):
        head.append("  call void @msl_check_flags(i32 %0)")
    if _FENCE.search(lines[0]):
        head.append("  call void @msl_check_fence()")
    function.lines = [*lines[:begin], *head, *lines[begin:]]


def _here(place: int) -> str:
    return f"  store volatile i32 {place}, ptr @msl_check_here, align 4"


def _remember_calls(found: Iterable[Function], own: set[str], places: Places, table: Table) -> None:
    """Before each call that leads from the kernel's text to a check or a meeting in the prelude, note its place."""
    calls = {f.name: {name for line in f.lines for name in _CALL.findall(line)} for f in found}
    asking = {name for name, called in calls.items() if any(c.startswith(("msl_check_", "msl_rt_")) for c in called)}
    while True:
        more = {name for name, called in calls.items() if name not in asking and called & asking}
        if not more:
            break
        asking |= more
    asking -= own
    for function in found:
        if function.name not in own:
            continue
        lines = []
        for line in function.lines:
            called = _CALL.search(line)
            where = places.of(line)
            if called and called[1] in asking and where:
                place = table.place(where)
                lines.append(_here(place))
                result = _RESULT.match(line)
                if result and _ATOMIC_CALL.search(called[1]) and function.uses.get(result[1]):
                    table.used_results.add(place)
            lines.append(line)
        function.lines = lines
