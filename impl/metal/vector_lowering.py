"""Edits of clang's unoptimized LLVM text that give vectors Metal's meaning instead of OpenCL's.

True: a comparison of vectors is -1 per component in OpenCL and 1 in Metal. Nothing else widens a vector of bits with
its sign, but OpenCL's `?:` with a vector as condition, which Metal does not have: it is refused.
Alignment: the arrays of MLX's CPU backend begin 8 bytes after a multiple of 16, so a `float4` behind a device pointer
is not aligned as its type promises; Apple's GPUs ask for the alignment of one element only.
"""

from __future__ import annotations

import re

from impl.metal.errors import CompileError

_TRUE = re.compile(r"= sext (<\d+ x i1>)")
_CONDITION = re.compile(
    r"(%\S+) = icmp slt <\d+ x i\d+> \S+, zeroinitializer\n\s+(%\S+) = sext <\d+ x i1> \1 to <\d+ x i\d+>\n"
    r"\s+%\S+ = xor <\d+ x i\d+> \2, (?:splat \(i\d+ -1\)|<i\d+ -1(?:, i\d+ -1)*>)"
)
_ACCESS = re.compile(r"(\b(?:load|store) (?:volatile )?<\d+ x (i8|i16|i32|i64|half|bfloat|float)>.*, align )\d+")
_COPY = re.compile(r"^.*@llvm\.mem(?:cpy|move)\..*$", re.MULTILINE)
_WIDE = re.compile(r"\balign (?:8|16|32|64|128)\b")
_ELEMENT_BYTES = {"i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8}


def lower_vectors(llvm_text: str) -> str:
    """Return the text with 1 for true in vectors, and accesses of vectors aligned like their elements.

    Raises CompileError where a vector is the condition of `?:`.
    """
    if _CONDITION.search(llvm_text):
        raise CompileError(
            "a vector is the condition of ?:, or ~ is applied to a comparison of vectors; Metal has neither, "
            "write select(if_false, if_true, condition), or ! for the opposite"
        )
    text = _TRUE.sub(r"= zext \1", llvm_text)
    text = _ACCESS.sub(lambda m: f"{m[1]}{_ELEMENT_BYTES[m[2]]}", text)
    return _COPY.sub(lambda m: _WIDE.sub("align 4", m[0]), text)
