"""Edits of clang's LLVM text for NVIDIA's processors, before the optimizer sees it.

Constant memory: buffers that Metal calls `constant` lie in the same memory as all others, and NVIDIA's constant space
cannot point there, so address space 4 becomes 1. Only the entry stays a kernel; everything else may be inlined.
Threadgroup variables are shared memory as they are; `msl_poison` fills them. Atomics count within the GPU.
"""

from __future__ import annotations

import re

from impl.metal.errors import NotCoveredError
from impl.metal.vector_lowering import lower_vectors

ENTRY_NAME = "msl_entry"

_THREADGROUP_VARIABLE = re.compile(
    r"^(@\S+) = internal (?:unnamed_addr )?addrspace\(3\) global (.*) undef(, align \d+)$", re.MULTILINE
)
_WRITABLE = re.compile(r"^@(\S+) = (?!external)[^\n\"]*\baddrspace\((?:0|1)\) global ", re.MULTILINE)
_DEFINED = re.compile(r"^define (?:(?:dso_local|linkonce_odr|hidden) )*(?!internal)", re.MULTILINE)
_ATOMIC = re.compile(r"^(  .*\b(?:atomicrmw|cmpxchg|load atomic|store atomic)\b.*?)( monotonic.*)$", re.MULTILINE)
_BYTES = re.compile(r"^\.visible \.global [^\n]* msl_threadgroup_bytes(?: = (\d+))?;\n", re.MULTILINE)
_SIZE = "i32 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i32)"


def lower(llvm_text: str, *, poison: bool) -> str:
    """Return LLVM text in which only the entry is a kernel, with `msl_poison` defined.

    Raises NotCoveredError when a writable global is left that is not a threadgroup variable, CompileError for `?:` with
    a vector as condition.
    """
    text = lower_vectors(llvm_text).replace("addrspace(4)", "addrspace(1)")
    left = _WRITABLE.search(text)
    if left:
        raise NotCoveredError(f"a writable variable outside of threadgroup memory: {left[1]}")
    text = re.sub(r"^(attributes #\d+ = \{.*?) noinline\b", r"\1", text, flags=re.MULTILINE)
    text = text.replace("ptx_kernel ", "")
    text = _DEFINED.sub("define internal ", text)
    text = re.sub(r"^(@\S+ = )dso_local ", r"\1internal ", text, flags=re.MULTILINE)
    text = re.sub(rf"^define internal (?=void @{ENTRY_NAME}\()", "define ptx_kernel ", text, flags=re.MULTILINE)
    text = _ATOMIC.sub(r'\1 syncscope("device")\2', text)
    text = re.sub(r"^declare .*@msl_poison\(.*\n", "", text, flags=re.MULTILINE)
    variables = [(m[1], m[2]) for m in _THREADGROUP_VARIABLE.finditer(text)]
    # With the attributes of the entry, so that the one may be inlined into the other.
    same = re.search(rf"^define ptx_kernel void @{ENTRY_NAME}\(.*?(#\d+)", text, re.MULTILINE)
    return text + _poison(variables if poison else [], same[1] if same else "") + _sum_of_sizes(variables)


def inlined(llvm_text: str, helpers: set[str]) -> str:
    """Return the text with the functions `helpers` marked for inlining everywhere."""
    for name in helpers:
        llvm_text = re.sub(
            rf"^(define [^@\n]*@{re.escape(name)}\([^\n]*?)( #\d+[^\n]*\{{)$",
            r"\1 alwaysinline\2",
            llvm_text,
            flags=re.MULTILINE,
        )
    return llvm_text


def threadgroup_bytes(ptx: str) -> tuple[int, str]:
    """Return the bytes of all threadgroup variables, those that were optimized away too, and the PTX without them."""
    found = _BYTES.search(ptx)
    return (int(found[1] or 0), ptx[: found.start()] + ptx[found.end() :]) if found else (0, ptx)


def _sum_of_sizes(variables: list[tuple[str, str]]) -> str:
    # LLVM knows the sizes of types, and prints the sum into the PTX.
    total = "0"
    for _, kind in variables:
        total = f"add (i32 {total}, {_SIZE.format(kind=kind)})"
    return f"\n@msl_threadgroup_bytes = addrspace(1) constant i32 {total}\n"


def _poison(variables: list[tuple[str, str]], attributes: str) -> str:
    # A barrier between the filling and the kernel, only where there is something to fill.
    body = "".join(
        f"  call void @msl_fill(ptr addrspace(3) {name}, {_SIZE.format(kind=kind)}, i32 %index, i32 %threads)\n"
        for name, kind in variables
    )
    if variables:
        body += "  call void @msl_rt_threadgroup_barrier(i32 0)\n"
    return f"\ndefine internal void @msl_poison(i32 %index, i32 %threads) {attributes} {{\n{body}  ret void\n}}\n"
