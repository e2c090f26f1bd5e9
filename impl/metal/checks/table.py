"""What a checked object tells of itself: the places of its checks, and its variables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from impl.metal.checks.llvm_text import innermost, size_of

# Kinds of memory, as in runtime/regions.h.
INPUT, OUTPUT, THREADGROUP, TABLE, PRIVATE = range(5)


@dataclass
class Variable:
    """A variable of the text. symbol: its name in LLVM text, empty for one of a thread; kind: THREADGROUP and so on."""

    name: str
    symbol: str
    type: str
    kind: int


@dataclass
class Table:
    """Filled in while a text is instrumented. Memories are numbered: first the `buffers`, then the variables."""

    buffers: int
    variables: list[Variable] = field(default_factory=list)
    places: dict[tuple[str, int, int], int] = field(default_factory=dict)
    used_results: set[int] = field(default_factory=set)
    fresh: list[tuple[str, int]] = field(default_factory=list)  # variables without a first value, and their places

    def place(self, where: tuple[str, int, int] | None) -> int:
        """Return the number of a place; 0 for none: the runtime then takes the place that was passed last."""
        return 0 if where is None else self.places.setdefault(where, len(self.places) + 1)

    def variable(self, variable: Variable) -> int:
        """Add a variable and return its number."""
        self.variables.append(variable)
        return self.buffers + len(self.variables) - 1

    def number_of(self, symbol: str) -> int | None:
        """Return the number of the global `symbol`, or None when it is none of the variables."""
        for number, variable in enumerate(self.variables):
            if variable.symbol == symbol:
                return self.buffers + number
        return None

    def llvm(self) -> str:
        """Return the definitions that carry this table in the object."""
        count = len(self.variables)
        addresses = ", ".join(f"ptr {v.symbol or 'null'}" for v in self.variables)
        sizes = ", ".join(f"i64 {size_of(v.type)}" for v in self.variables)
        elements = ", ".join(f"i64 {size_of(innermost(v.type))}" for v in self.variables)
        told = {
            "places": list(self.places),
            "used": sorted(self.used_results),
            "fresh": self.fresh,
            "variables": [[v.name, v.kind] for v in self.variables],
        }
        text = json.dumps(told, separators=(",", ":")).encode() + b"\0"
        escaped = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text)
        return (
            f'@msl_check_table = constant [{len(text)} x i8] c"{escaped}"\n'
            f"@msl_check_addresses = constant [{count} x ptr] [{addresses}]\n"
            f"@msl_check_sizes = constant [{count} x i64] [{sizes}]\n"
            f"@msl_check_elements = constant [{count} x i64] [{elements}]\n"
        )


def plain_name(symbol: str) -> str:
    """Return the author's name for a mangled one: `shared` for `@_ZZ10msl_kernelE6shared`."""
    name = re.sub(r"(?:_|\.)\d+$", "", symbol.lstrip("@").strip('"'))
    for begin in range(len(name)):
        found = re.match(r"(\d+)([A-Za-z_]\w*)$", name[begin:])
        if found and found[2][int(found[1]) :] in ("", "E") and len(found[2]) >= int(found[1]):
            return found[2][: int(found[1])]
    return name.rpartition(".")[2] or name
