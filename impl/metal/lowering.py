"""Edits of clang's unoptimized LLVM text, so that a CPU can run what the front end made for a GPU.

Threadgroup variables: the front end makes each an internal global whose first value is `undef`, which lets the
optimizer believe that nobody else ever writes it. They become hidden globals, and a function that fills them with NaN
bytes is added. Calling conventions: `spir_kernel` and `spir_func` are dropped, because aarch64 has no such thing.
Where lanes may wait for each other: see convergence.py. What differs in vectors: see vector_lowering.py.

Why text and not a plugin: a plugin needs the headers of exactly this LLVM, which no wheel has. Why it is safe: LLVM
prints one definition a line in a fixed form; nothing but a threadgroup variable is `internal global ... undef`, since
every other variable of program scope must be `constant` with a value; and the text holds no strings in which the two
words could stand. Any other writable global is refused.
"""

from __future__ import annotations

import re

from impl.metal import convergence
from impl.metal.errors import NotCoveredError
from impl.metal.vector_lowering import lower_vectors

_THREADGROUP_VARIABLE = re.compile(
    r"^(@\S+) = internal (?:unnamed_addr )?global (.*) undef(, align \d+)$", re.MULTILINE
)
_CALLING_CONVENTION = re.compile(r"\bspir_(?:kernel|func) ")
_WAITING_CALLS = re.compile(r"^declare .*@(?:msl_rt_meet|msl_rt_threadgroup_barrier)\(", re.MULTILINE)
_SIZE = "ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64)"


def lower(llvm_text: str) -> str:
    """Return LLVM text for the CPU, with `msl_poison`, `msl_threadgroup_bytes` and `msl_waits` added.

    Raises NotCoveredError when a writable global is left that is not a threadgroup variable, CompileError for `?:` with
    a vector as condition.
    """
    variables = [(m[1], m[2]) for m in _THREADGROUP_VARIABLE.finditer(llvm_text)]
    text = _THREADGROUP_VARIABLE.sub(r"\1 = hidden global \2 zeroinitializer\3", llvm_text)
    text, places = convergence.mark(lower_vectors(_CALLING_CONVENTION.sub("", text)))
    left = re.search(r"^@(\S+) = (?!hidden )[a-z_ ]*\bglobal ", text, re.MULTILINE)
    if left:
        raise NotCoveredError(f"a writable variable outside of threadgroup memory: {left[1]}")
    waits = int(_WAITING_CALLS.search(text) is not None)
    declared = "" if "@llvm.memset.p0.i64(" in text else "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
    return f"{text}\n{declared}{_additions(variables, waits)}{_table(places)}"


def _table(places: list[list[int]]) -> str:
    """Return `msl_places`: for each marked call the loops it is in, outermost first, and -1 for no more."""
    padded = [[*loops, -1, -1, -1, -1][: convergence.MOST_DEPTH] for loops in places] or [[-1] * convergence.MOST_DEPTH]
    numbers = ", ".join(f"i32 {loop}" for loops in padded for loop in loops)
    return f"@msl_places = constant [{len(padded) * convergence.MOST_DEPTH} x i32] [{numbers}]\n"


def _additions(variables: list[tuple[str, str]], waits: int) -> str:
    fills = "".join(
        f"  call void @llvm.memset.p0.i64(ptr {name}, i8 -1, i64 {_SIZE.format(kind=kind)}, i1 false)\n"
        for name, kind in variables
    )
    total, sums = "0", ""
    for number, (_, kind) in enumerate(variables):
        sums += f"  %s{number} = add i64 {total}, {_SIZE.format(kind=kind)}\n"
        total = f"%s{number}"
    return (
        f"define void @msl_poison() {{\n{fills}  ret void\n}}\n"
        f"define i64 @msl_threadgroup_bytes() {{\n{sums}  ret i64 {total}\n}}\n"
        f"define i32 @msl_waits() {{\n  ret i32 {waits}\n}}\n"
    )
