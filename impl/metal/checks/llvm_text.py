"""Reads clang's LLVM text: functions, types, operands, and where in the kernel's text an instruction is from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from impl.metal.translation import HEADER_FILE, SOURCE_FILE

OWN_FILES = (HEADER_FILE, SOURCE_FILE)

_NAME = r"[\w.$-]+"
POINTER = rf"(?:%{_NAME}|@{_NAME}|@\"[^\"]+\"|null|getelementptr [^(]*\((?:[^()]|\([^()]*\))*\))"
_FUNCTION = re.compile(r"^define [^@\n]*@([\w.$]+|\"[^\"]+\")\(.*?^}$", re.MULTILINE | re.DOTALL)
_DEFINED = re.compile(rf"^  (%{_NAME}) = (.*)$")
_VALUE = re.compile(rf"%{_NAME}")
_DEBUG = re.compile(r"!dbg !(\d+)")
_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+), column: (\d+), scope: !(\d+)", re.MULTILINE)
_SCOPE = re.compile(
    r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlockFile|LexicalBlock)\(.*?file: !(\d+)", re.MULTILINE
)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', re.MULTILINE)
_SCALAR_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "bfloat": 2, "float": 4, "double": 8}
_VECTOR = re.compile(r"<(\d+) x (\w+)>")


@dataclass
class Function:
    """One definition: its lines, the first and last of which are the head and the brace."""

    name: str
    begin: int
    end: int
    lines: list[str]
    definitions: dict[str, str] = field(default_factory=dict)  # value: right-hand side
    uses: dict[str, list[int]] = field(default_factory=dict)  # value: lines in which it is an operand

    def read(self) -> None:
        """Fill in definitions and uses."""
        for number, line in enumerate(self.lines[1:-1], start=1):
            defined = _DEFINED.match(line)
            rest = line
            if defined:
                self.definitions[defined[1]] = defined[2]
                rest = defined[2]
            for value in set(_VALUE.findall(rest)):
                self.uses.setdefault(value, []).append(number)


def functions(llvm_text: str) -> list[Function]:
    """Return the definitions in their order."""
    found = [Function(m[1], m.start(), m.end(), m[0].split("\n")) for m in _FUNCTION.finditer(llvm_text)]
    for function in found:
        function.read()
    return found


class Places:
    """Where instructions are from, by the debug information of the text."""

    def __init__(self, llvm_text: str) -> None:
        """Read the metadata of `llvm_text`, made with -gline-tables-only."""
        files = {m[1]: m[2] for m in _FILE.finditer(llvm_text)}
        self._scopes = {m[1]: files.get(m[2], "") for m in _SCOPE.finditer(llvm_text)}
        self._locations = {m[1]: (m[4], int(m[2]), int(m[3])) for m in _LOCATION.finditer(llvm_text)}

    def of(self, line: str) -> tuple[str, int, int] | None:
        """Return file, line and column of an instruction of the kernel's own text, or None."""
        debug = _DEBUG.search(line)
        if not debug or debug[1] not in self._locations:
            return None
        scope, row, column = self._locations[debug[1]]
        file = self._scopes.get(scope, "")
        return (file, row, column) if file in OWN_FILES and row else None

    def is_own(self, head: str) -> bool:
        """Tell whether a definition is one of the kernel's own text (the kernel or a helper of the header)."""
        debug = _DEBUG.search(head)
        return bool(debug) and self._scopes.get(debug[1] if debug else "", "") in (*OWN_FILES, "signature")


def take_type(text: str) -> tuple[str, str]:
    """Split `text`, which begins with a type, into the type and what follows."""
    depth, quoted = 0, False
    for place, character in enumerate(text):
        quoted ^= character == '"'
        if quoted:
            continue
        if character in "[{<(":
            depth += 1
        elif character in "]}>)":
            depth -= 1
        elif character in " ," and depth == 0:
            return text[:place], text[place:].lstrip()
    return text, ""


def operands(text: str) -> list[str]:
    """Split what follows an instruction's name at its commas."""
    found, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        if character in "[{<(":
            depth += 1
        elif character in "]}>)":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[begin:place].strip())
            begin = place + 1
    return [*found, text[begin:].strip()]


def vector(kind: str) -> tuple[int, str] | None:
    """Return the number and the type of a vector's elements."""
    found = _VECTOR.fullmatch(kind)
    return (int(found[1]), found[2]) if found else None


def scalar_bytes(kind: str) -> int | None:
    """Return the size of a scalar in memory, or None for what is no scalar of a kernel."""
    return 8 if kind == "ptr" else _SCALAR_BYTES.get(kind)


def stored_bytes(kind: str) -> str:
    """Return the bytes that a load or store of `kind` touches, as an LLVM constant of i64."""
    parts = vector(kind)
    if parts:
        element = scalar_bytes(parts[1])
        if element:
            return str(parts[0] * element)
    scalar = scalar_bytes(kind)
    return str(scalar) if scalar else size_of(kind)


def size_of(kind: str) -> str:
    """Return the size of `kind` in an array, as an LLVM constant of i64."""
    return f"ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64)"


def innermost(kind: str) -> str:
    """Return what a type of arrays of arrays is made of."""
    while kind.startswith("["):
        kind = kind[1:-1].partition(" x ")[2]
    return kind


def without_debug(llvm_text: str) -> str:
    """Return the text without debug information, which edits would make invalid."""
    text = re.sub(r",? !dbg !\d+", "", llvm_text)
    text = re.sub(r"^!llvm\.dbg\.cu = .*\n", "", text, flags=re.MULTILINE)
    # Locations also stand in the nodes of loops.
    return re.sub(r"^(!\d+ = distinct !\{!\d+), .*?((?:, !\d+)?\})$", _bare_loop, text, flags=re.MULTILINE)


def _bare_loop(found: re.Match[str]) -> str:
    return f"{found[1]}}}"
