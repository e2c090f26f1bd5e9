"""Arrays of a thread that a function lends to its helpers: inside them a pointer no longer tells whose memory it is.

Such an array is followed by spare bytes, and the runtime knows of it from the beginning of its life to the end, so that
a helper that goes past it is found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal.checks.llvm_text import size_of
from impl.metal.checks.table import PRIVATE, Variable

if TYPE_CHECKING:
    from impl.metal.checks.llvm_text import Function
    from impl.metal.checks.pointers import Pointers
    from impl.metal.checks.table import Table

_SPARE_BYTES = 64
_CALL = re.compile(r"\bcall [^@\n]*@(?!llvm\.|msl_)[\w.$\"]+\((.*)\)")
_POINTER = re.compile(r"\bptr [^,()]*?(%[\w.$-]+)")
_ARRAY = re.compile(r"^(  (%[\w.$-]+) = alloca )(\[.*\])(, align \d+.*)$")
_LIFETIME = re.compile(r"^  call void @llvm\.lifetime\.(start|end)\.p0\((?:i64 \S+, )?ptr (?:nonnull )?(%[\w.$-]+)\)")


class Lending:
    """The lent arrays of one function."""

    def __init__(self, function: Function, pointers: Pointers, table: Table) -> None:
        """Find them."""
        self._pointers = pointers
        self._lent: dict[str, int] = {}
        begun = {m[2] for line in function.lines if (m := _LIFETIME.match(line))}
        for line in function.lines:
            called = _CALL.search(line)
            for pointer in _POINTER.findall(called[1]) if called else ():
                root = pointers.root(pointer)
                # Only an array that has a beginning and an end is known to be one's own in between.
                if root.kind != "private" or root.name in self._lent or root.name not in begun:
                    continue
                kind = pointers.allocated(root.name)
                if kind.startswith("["):
                    name = root.name.lstrip("%").partition(".")[0]
                    self._lent[root.name] = table.variable(Variable(name, "", kind, PRIVATE))

    def line(self, line: str) -> list[str]:
        """Return `line` with what lending needs around it."""
        array = _ARRAY.match(line)
        if array and array[2] in self._lent:
            return [f"{array[1]}{{ {array[3]}, [{_SPARE_BYTES} x i8] }}{array[4]}"]
        lifetime = _LIFETIME.match(line)
        if not lifetime or lifetime[2] not in self._lent:
            return [line]
        variable = lifetime[2]
        if lifetime[1] == "end":
            return [f"  call void @msl_check_take_back(ptr {variable})", line]
        size = size_of(self._pointers.allocated(variable))
        return [line, f"  call void @msl_check_lend(ptr {variable}, i64 {size}, i32 {self._lent[variable]})"]
