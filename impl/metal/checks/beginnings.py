"""Which variables of a thread begin without a value, and so get one that shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal.checks.llvm_text import operands, size_of, take_type

if TYPE_CHECKING:
    from impl.metal.checks.llvm_text import Function
    from impl.metal.checks.table import Table

_BEGINS = re.compile(r"^  call void @llvm\.lifetime\.start\.p0\((?:i64 \S+, )?ptr (?:nonnull )?(%[\w.$-]+)\)")
# What the front end makes for itself.
_TEMPORARY = re.compile(r"%(?:agg|ref|tmp|temp|coerce|undef|retval|cleanup|saved|msl)\b")
_STORE = re.compile(r"^  store (?:volatile )?(.+)$")
_FILLED = re.compile(
    r"^  call void @llvm\.mem(?:set|cpy|move)\.[^(]*\(ptr (?:[a-z]+ \d+ |noundef |nonnull )*(%[\w.$-]+),"
)


def checked(function: Function, number: int, line: str, place: int, table: Table) -> list[str]:
    """Return what is to follow `line`, line `number` of `function`: a first value where the author gives none."""
    begins = _BEGINS.match(line)
    if not begins or not place or _TEMPORARY.match(begins[1]):
        return []
    variable = begins[1]
    allocated = take_type(function.definitions.get(variable, "").removeprefix("alloca "))[0]
    # References and pointers have to be given a value by the language or are of no use; the rest is data.
    if not allocated or allocated == "ptr" or _given(function, number, variable, allocated):
        return []
    table.fresh.append((variable.lstrip("%").partition(".")[0], place))
    return [f"  call void @msl_check_fresh(ptr {variable}, i64 {size_of(allocated)}, i32 {len(table.fresh)})"]


def _given(function: Function, number: int, variable: str, allocated: str) -> bool:
    """Tell whether the first thing that happens to `variable` is that all of it gets a value."""
    for later in function.uses.get(variable, ()):
        if later <= number:
            continue
        between = function.lines[number + 1 : later]
        if any(text and not text.startswith(" ") for text in between):
            return False  # another block: it may be skipped
        line = function.lines[later]
        filled = _FILLED.match(line)
        if filled:
            return filled[1] == variable
        store = _STORE.match(line)
        if store:
            value, target, *_ = operands(store[1])
            kind = take_type(value)[0]
            return target == f"ptr {variable}" and (kind == allocated or not allocated.startswith(("[", "%", "{")))
        return False
    return True
