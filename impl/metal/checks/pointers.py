"""What a pointer in LLVM text points into, as far as the text tells: a buffer, a variable, or nobody knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from impl.metal.checks.llvm_text import POINTER, operands, take_type

if TYPE_CHECKING:
    from impl.metal.checks.llvm_text import Function

_GEP = re.compile(r"getelementptr (?:(?:inbounds|nuw|nusw) )*(.*)$")
_LOADED = re.compile(rf"load ptr, ptr ({POINTER})(?:,|$)")
_STORE = re.compile(r"^  store (?:volatile )?(ptr .*)$")
_SELECT = re.compile(rf"select i1 [^,]+, ptr ({POINTER}), ptr ({POINTER})")
_PHI = re.compile(rf"\[ ({POINTER}), %[\w.$-]+ \]")
_GLOBAL = re.compile(r"ptr (@[\w.$]+|@\"[^\"]+\")")
_ALLOCA = re.compile(r"alloca (.*)$")
_LIFETIME = re.compile(r"@llvm\.lifetime\.")


@dataclass(frozen=True)
class Root:
    """The memory a pointer points into. kind: `buffer` (name is its number), `global`, `private` or `unknown`."""

    kind: str
    name: str = ""


UNKNOWN = Root("unknown")


@dataclass(frozen=True)
class Step:
    """One getelementptr: the type it walks over and the indices, as in the text."""

    kind: str
    indices: str

    def is_constant(self) -> bool:
        """Tell whether its indices are known, and within the array if it walks into one."""
        if "%" in self.indices:
            return False
        numbers = [int(part.split()[-1]) for part in self.indices.split(",") if part.split()[-1].lstrip("-").isdigit()]
        length = re.match(r"\[(\d+) x ", self.kind)
        if length and len(numbers) > 1:
            return numbers[0] == 0 and 0 <= numbers[1] < int(length[1])
        return bool(numbers) and numbers[0] == 0


class Pointers:
    """Answers for the pointers of one function."""

    def __init__(self, function: Function, arguments: dict[str, Root]) -> None:
        """`arguments`: the function's parameters whose memory is known."""
        self._function = function
        self._arguments = arguments
        self._known: dict[str, Root | None] = {}
        self._stores: dict[str, list[str]] = {}
        for line in function.lines:
            stored = _stored(line)
            if stored:
                self._stores.setdefault(stored[1], []).append(stored[0])

    def root(self, pointer: str) -> Root:
        """Return what `pointer` points into."""
        return self._root(pointer) or UNKNOWN

    def steps(self, pointer: str) -> list[Step] | None:
        """Return the way from the root to `pointer`, or None when it leads over memory."""
        found: list[Step] = []
        while True:
            rhs = pointer if pointer.startswith("getelementptr") else self._function.definitions.get(pointer, "")
            gep = self._gep(rhs)
            if gep is None:
                return found if rhs.startswith("alloca") or pointer.startswith("@") else None
            pointer = gep[1]
            found.append(Step(gep[0], gep[2]))

    def allocated(self, name: str) -> str:
        """Return the type of the variable `name`."""
        found = _ALLOCA.match(self._function.definitions[name])
        return take_type(found[1])[0] if found else "i8"

    def _root(self, pointer: str) -> Root | None:
        # None while it is being found out: a pointer that moves on in a loop points where it came from.
        if pointer in self._known:
            return self._known[pointer]
        self._known[pointer] = None
        found = self._find(pointer)
        if found is None:
            del self._known[pointer]
        else:
            self._known[pointer] = found
        return found

    def _find(self, pointer: str) -> Root | None:  # noqa: PLR0911 - one a kind of pointer
        if pointer in self._arguments:
            return self._arguments[pointer]
        if pointer.startswith("@"):
            return Root("global", pointer)
        if pointer.startswith("getelementptr"):
            found = _GLOBAL.search(pointer)
            return Root("global", found[1]) if found else UNKNOWN
        rhs = self._function.definitions.get(pointer, "")
        if rhs.startswith("alloca"):
            return Root("private", pointer)
        gep = self._gep(rhs)
        if gep:
            return self._root(gep[1])
        loaded = _LOADED.match(rhs)
        if loaded:
            return self._held(loaded[1])
        chosen = _SELECT.match(rhs)
        if chosen:
            return self._joined([chosen[1], chosen[2]])
        if rhs.startswith("phi ptr "):
            return self._joined(_PHI.findall(rhs))
        return UNKNOWN

    def _gep(self, rhs: str) -> tuple[str, str, str] | None:
        found = _GEP.match(rhs)
        if not found:
            return None
        body = found[1].removeprefix("(")
        kind, rest = take_type(body)
        base = re.match(rf",\s*ptr ({POINTER}), (.*)$", rest)
        if base is None:
            return None
        return kind, base[1], re.sub(r"\)$|, !.*$", "", base[2])

    def _held(self, variable: str) -> Root | None:
        """Return the root of what a pointer variable of this function holds, whenever it is."""
        if not self._function.definitions.get(variable, "").startswith("alloca ptr"):
            return UNKNOWN
        for number in self._function.uses.get(variable, ()):
            line = self._function.lines[number]
            stored = _stored(line)
            plain = (stored and stored[1] == variable and stored[0] != variable) or (
                f"load ptr, ptr {variable}," in line or _LIFETIME.search(line)
            )
            if not plain:
                return UNKNOWN
        return self._joined(self._stores.get(variable, []))

    def _joined(self, pointers: list[str]) -> Root | None:
        roots = {root for root in map(self._root, pointers) if root is not None}
        return roots.pop() if len(roots) == 1 else UNKNOWN if roots else None


def _stored(line: str) -> tuple[str, str] | None:
    """Return the pointer that `line` stores, and where."""
    found = _STORE.match(line)
    if not found:
        return None
    value, target, *_ = operands(found[1])
    return value.removeprefix("ptr "), target.removeprefix("ptr ")
