"""Checks of loads, stores, atomic operations and copies, one instruction at a time.

A component of a vector is read or written in LLVM text by loading the whole vector; the author touched the component
alone, so the check speaks of it alone. A `float3` is moved as four floats, of which the last means nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal.checks.llvm_text import POINTER, operands, scalar_bytes, size_of, stored_bytes, take_type, vector
from impl.metal.checks.table import PRIVATE, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from impl.metal.checks.llvm_text import Function, Places
    from impl.metal.checks.pointers import Pointers, Root
    from impl.metal.checks.table import Table

_LOAD = re.compile(rf"^(  (%[\w.$-]+) = load (?:volatile )?)(.+?), ptr ({POINTER})((?:,.*)?)$")
_STORE = re.compile(r"^(  store (?:volatile )?)(.+)$")
_ATOMIC_LOAD = re.compile(rf"^(  %[\w.$-]+ = load atomic (?:volatile )?(\w+), ptr )({POINTER})( .*)$")
_ATOMIC_STORE = re.compile(rf"^(  store atomic (?:volatile )?(\w+) \S+, ptr )({POINTER})( .*)$")
_MODIFY = re.compile(rf"^(  %[\w.$-]+ = atomicrmw (?:volatile )?\w+ ptr )({POINTER})(, (\w+) .*)$")
_EXCHANGE = re.compile(rf"^(  %[\w.$-]+ = cmpxchg (?:weak )?(?:volatile )?ptr )({POINTER})(, (\w+) .*)$")
_COPY = re.compile(
    rf"^(  call void @llvm\.mem(?:cpy|move)\.[^(]*\(ptr [^%@]*?)({POINTER})(, ptr [^%@]*?)({POINTER})"
    r"(, i64 (\d+|%\S+), .*)$"
)
_FILL = re.compile(rf"^(  call void @llvm\.memset\.[^(]*\(ptr [^%@]*?)({POINTER})(, i8 (\S+), i64 (\d+|%\S+), .*)$")
_INSERTED = re.compile(r"insertelement (<\d+ x \w+>) (\S+), (\w+) (.+), (i\d+ \S+)$")
_EXTRACTED = re.compile(r"extractelement <\d+ x \w+> (\S+), (i\d+ \S+)$")
_SHUFFLED = re.compile(r"shufflevector (<\d+ x \w+>) (\S+), <\d+ x \w+> (\S+|<[^>]*>), <\d+ x i32> (.+)$")
_READS, _WRITES = 1, 2
_UNKNOWN = -1


class Accesses:
    """Writes the checks of one function."""

    def __init__(self, function: Function, pointers: Pointers, places: Places, table: Table) -> None:
        """Begin a function."""
        self._function = function
        self._pointers = pointers
        self._places = places
        self._table = table
        self._count = 0
        self._keeps_values = False
        self._private: dict[str, int] = {}

    def prologue(self) -> Iterator[str]:
        """Return what the function's beginning needs, once all lines are checked."""
        if self._keeps_values:
            yield "  %msl.value = alloca [128 x i8], align 64"

    def checked(self, line: str) -> list[str]:  # noqa: PLR0911 - one an instruction
        """Return `line` with the checks that it needs before it."""
        if "ptr" not in line:
            return [line]
        place = self._table.place(self._places.of(line))
        load = _LOAD.match(line)
        if load and not load[3].startswith("atomic"):
            return self._load(load, place)
        store = _store(line)
        if store:
            return self._store(store, place)
        for pattern, action in ((_ATOMIC_LOAD, _READS), (_ATOMIC_STORE, _WRITES)):
            plain = pattern.match(line)
            if plain:
                return self._atomic(plain[1], plain[3], plain[4], plain[2], action, place)
        for pattern in (_MODIFY, _EXCHANGE):
            changed = pattern.match(line)
            if changed:
                return self._atomic(changed[1], changed[2], changed[3], changed[4], _READS | _WRITES, place)
        copy = _COPY.match(line)
        if copy:
            return self._copy(copy, place)
        fill = _FILL.match(line)
        return self._fill(fill, place) if fill else [line]

    def _ask(self, check: str, pointer: str, *given: str) -> tuple[str, str]:
        """Return the line that asks `check` for the address to use instead of `pointer`, and that address."""
        address = self._new()
        return f"  {address} = call ptr @msl_check_{check}(ptr {pointer}, {', '.join(given)})", address

    def _ask_to_write(self, pointer: str, size: str | int, value: str, place: int, region: int) -> tuple[str, str]:
        return self._ask("write", pointer, f"i64 {size}", f"ptr {value}", f"i32 {place}", f"i32 {region}")

    def _new(self) -> str:
        self._count += 1
        return f"%msl.p{self._count}"

    def _load(self, found: re.Match[str], place: int) -> list[str]:
        kind, pointer = found[3], found[4]
        root = self._pointers.root(pointer)
        if root.kind == "private":
            lines, address = self._in_variable(pointer, root, stored_bytes(kind), place, writes=False)
            return [*lines, f"{found[1]}{kind}, ptr {address}{found[5]}"]
        if self._is_changed_in_part(found[2], pointer):
            # The store that follows says which component is meant.
            peek, address = self._ask("peek", pointer, f"i64 {stored_bytes(kind)}")
            return [peek, f"{found[1]}{kind}, ptr {address}{found[5]}"]
        lines, begin, size = self._used_part(found[2], kind)
        moved, part = self._moved(pointer, begin)
        read, address = self._ask("read", part, f"i64 {size}", f"i32 {place}", f"i32 {self._region(root)}")
        back, address = self._moved_back(address, begin)
        return [*lines, *moved, read, *back, f"{found[1]}{kind}, ptr {address}{found[5]}"]

    def _store(self, found: _Store, place: int) -> list[str]:
        kind, value = take_type(found[2])
        pointer = found[3]
        root = self._pointers.root(pointer)
        if root.kind == "private":
            lines, address = self._in_variable(pointer, root, stored_bytes(kind), place, writes=True)
            return [*lines, f"{found[1]}{found[2]}, ptr {address}{found[4]}"]
        region = self._region(root)
        self._keeps_values = True
        rhs = _bare(self._function.definitions.get(value, ""))
        inserted, shuffled = _INSERTED.match(rhs), _SHUFFLED.match(rhs)
        element = vector(kind)
        if inserted and element and self._loads(inserted[2], pointer):
            return self._store_component(found, inserted, place, region)
        if shuffled and element and self._loads(shuffled[2], pointer):
            return self._store_swizzle(found, kind, value, shuffled[4], place, region)
        size = stored_bytes(kind)
        if shuffled and element and element[0] == 4 and (vector(shuffled[1]) or (0, ""))[0] == 3:
            size = str(3 * (scalar_bytes(element[1]) or 4))
        write, address = self._ask_to_write(pointer, size, "%msl.value", place, region)
        keep = f"  store {found[2]}, ptr %msl.value, align 1"
        return [keep, write, f"{found[1]}{found[2]}, ptr {address}{found[4]}"]

    def _store_component(self, found: _Store, inserted: re.Match[str], place: int, region: int) -> list[str]:
        element, value, index = inserted[3], inserted[4], inserted[5]
        size = scalar_bytes(element) or 4
        lines, begin = self._scaled(index, size)
        lines.append(f"  store {element} {value}, ptr %msl.value, align 1")
        written, address = self._written_part(found[3], begin, size, place, region)
        return [*lines, *written, f"{found[1]}{found[2]}, ptr {address}{found[4]}"]

    def _written_part(self, pointer: str, begin: str, size: int, place: int, region: int) -> tuple[list[str], str]:
        """Check the write of `size` bytes at byte `begin`; return the lines, and the address of the whole."""
        moved, part = self._moved(pointer, begin)
        write, address = self._ask_to_write(part, size, "%msl.value", place, region)
        back, address = self._moved_back(address, begin)
        return [*moved, write, *back], address

    def _store_swizzle(self, found: _Store, kind: str, value: str, mask: str, place: int, region: int) -> list[str]:
        parts = vector(kind)
        chosen = _mask(mask, parts[0] if parts else 0)
        if parts is None:
            return [found[0]]
        size = scalar_bytes(parts[1]) or 4
        lines: list[str] = []
        target = found[3]
        for lane, source in enumerate(chosen):
            if source == lane:
                continue
            component = self._new()
            lines.append(f"  {component} = extractelement {kind} {value}, i64 {lane}")
            lines.append(f"  store {parts[1]} {component}, ptr %msl.value, align 1")
            written, target = self._written_part(found[3], str(lane * size), size, place, region)
            lines += written
        return [*lines, f"{found[1]}{found[2]}, ptr {target}{found[4]}"]

    def _atomic(self, before: str, pointer: str, after: str, kind: str, action: int, place: int) -> list[str]:
        root = self._pointers.root(pointer)
        if root.kind == "private":
            return [f"{before}{pointer}{after}"]
        given = (f"i64 {stored_bytes(kind)}", f"i32 {place}", f"i32 {self._region(root)}", f"i32 {action}")
        ask, address = self._ask("atomic", pointer, *given)
        return [ask, f"{before}{address}{after}"]

    def _copy(self, found: re.Match[str], place: int) -> list[str]:
        target, source, size = found[2], found[4], found[6]
        lines: list[str] = []
        root = self._pointers.root(source)
        if root.kind == "private":
            lines, source = self._in_variable(source, root, size, place, writes=False)
        else:
            ask, source = self._ask("copy_from", source, f"i64 {size}", f"i32 {place}", f"i32 {self._region(root)}")
            lines.append(ask)
        root = self._pointers.root(target)
        if root.kind == "private":
            more, target = self._in_variable(target, root, size, place, writes=True)
            lines += more
        else:
            ask, target = self._ask_to_write(target, size, source, place, self._region(root))
            lines.append(ask)
        return [*lines, f"{found[1]}{target}{found[3]}{source}{found[5]}"]

    def _fill(self, found: re.Match[str], place: int) -> list[str]:
        target, byte, size = found[2], found[4], found[5]
        root = self._pointers.root(target)
        if root.kind == "private":
            lines, address = self._in_variable(target, root, size, place, writes=True)
        else:
            given = (f"i64 {size}", f"i8 {byte}", f"i32 {place}", f"i32 {self._region(root)}")
            ask, address = self._ask("fill", target, *given)
            lines = [ask]
        return [*lines, f"{found[1]}{address}{found[3]}"]

    def _region(self, root: Root) -> int:
        if root.kind == "buffer":
            return int(root.name)
        number = self._table.number_of(root.name) if root.kind == "global" else None
        return _UNKNOWN if number is None else number

    def _in_variable(self, pointer: str, root: Root, size: str, place: int, *, writes: bool) -> tuple[list[str], str]:
        """Return the check of an access of a thread's own variable, none if it cannot miss, and the address to use."""
        steps = self._pointers.steps(pointer)
        if place == 0 or (steps is not None and all(step.is_constant() for step in steps)):
            return [], pointer
        limit = size_of(self._pointers.allocated(root.name))
        lines: list[str] = []
        if steps is None:
            # By way of a pointer variable: the difference tells.
            begin, here, offset = self._new(), self._new(), self._new()
            lines = [
                f"  {begin} = ptrtoint ptr {root.name} to i64",
                f"  {here} = ptrtoint ptr {pointer} to i64",
                f"  {offset} = sub i64 {here}, {begin}",
            ]
        else:
            # Counted from nothing instead of from the variable, which so keeps its place in a register.
            offset = "0"
            for step in steps:
                address, number, total = self._new(), self._new(), self._new()
                lines += [
                    f"  {address} = getelementptr {step.kind}, ptr null, {step.indices}",
                    f"  {number} = ptrtoint ptr {address} to i64",
                    f"  {total} = add i64 {offset}, {number}",
                ]
                offset = total
        if root.name not in self._private:
            name = root.name.lstrip("%").partition(".")[0]
            variable = Variable(name, "", self._pointers.allocated(root.name), PRIVATE)
            self._private[root.name] = self._table.variable(variable)
        mend, address = self._new(), self._new()
        given = f"i64 {offset}, i64 {size}, i64 {limit}, i32 {place}, i32 {self._private[root.name]}, i32 {int(writes)}"
        lines += [
            f"  {mend} = call i64 @msl_check_offset({given})",
            f"  {address} = getelementptr i8, ptr {pointer}, i64 {mend}",
        ]
        return lines, address

    def _is_changed_in_part(self, value: str, pointer: str) -> bool:
        """Tell whether a loaded vector only serves to put a component in and to store the whole back."""
        uses = self._function.uses.get(value, ())
        if len(uses) != 1:
            return False
        made, _, rhs = self._function.lines[uses[0]].strip().partition(" = ")
        if not rhs.startswith(("insertelement", "shufflevector")):
            return False
        operand = _INSERTED.match(_bare(rhs)) or _SHUFFLED.match(_bare(rhs))
        stores = self._function.uses.get(made, ())
        if operand is None or operand[2] != value or len(stores) != 1:
            return False
        stored = _store(self._function.lines[stores[0]])
        return stored is not None and stored[3] == pointer and take_type(stored[2])[1] == made

    def _loads(self, value: str, pointer: str) -> bool:
        rhs = self._function.definitions.get(value, "")
        loaded = _LOAD.match(f"  {value} = {rhs}")
        return bool(loaded) and loaded is not None and loaded[4] == pointer and self._is_changed_in_part(value, pointer)

    def _used_part(self, value: str, kind: str) -> tuple[list[str], str, str]:
        """Return lines, and from which byte on how many bytes of a loaded value are used."""
        parts = vector(kind)
        whole: tuple[list[str], str, str] = ([], "0", stored_bytes(kind))
        uses = self._function.uses.get(value, ())
        if parts is None or len(uses) != 1:
            return whole
        size = scalar_bytes(parts[1]) or 4
        rhs = _bare(self._function.lines[uses[0]].strip().partition(" = ")[2])
        extracted, shuffled = _EXTRACTED.match(rhs), _SHUFFLED.match(rhs)
        if extracted and not ("%" in extracted[2] and not self._is_before(extracted[2].split()[1], value)):
            lines, begin = self._scaled(extracted[2], size)
            return lines, begin, str(size)
        if shuffled and shuffled[2] == value and not shuffled[3].startswith("%"):
            lanes = [lane for lane in _mask(shuffled[4], parts[0]) if 0 <= lane < parts[0]]
            if lanes:
                return [], str(min(lanes) * size), str((max(lanes) + 1 - min(lanes)) * size)
        return whole

    def _is_before(self, first: str, second: str) -> bool:
        names = list(self._function.definitions)
        return first not in self._function.definitions or names.index(first) < names.index(second)

    def _scaled(self, index: str, size: int) -> tuple[list[str], str]:
        kind, number = index.split()
        if not number.startswith("%"):
            return [], str(int(number) * size)
        wide, scaled = self._new(), self._new()
        lines = [f"  {wide} = zext {kind} {number} to i64"] if kind != "i64" else [f"  {wide} = add i64 {number}, 0"]
        return [*lines, f"  {scaled} = mul i64 {wide}, {size}"], scaled

    def _moved(self, pointer: str, begin: str) -> tuple[list[str], str]:
        if begin == "0":
            return [], pointer
        moved = self._new()
        return [f"  {moved} = getelementptr i8, ptr {pointer}, i64 {begin}"], moved

    def _moved_back(self, address: str, begin: str) -> tuple[list[str], str]:
        if begin == "0":
            return [], address
        negative, back = self._new(), self._new()
        lines = [f"  {negative} = sub i64 0, {begin}", f"  {back} = getelementptr i8, ptr {address}, i64 {negative}"]
        return lines, back


# A store: the line, its beginning, type and value, where to, and the rest.
_Store = tuple[str, str, str, str, str]


def _store(line: str) -> _Store | None:
    found = _STORE.match(line)
    if not found or found[2].startswith("atomic "):
        return None
    value, target, *rest = operands(found[2])
    return line, found[1], value, target.removeprefix("ptr "), "".join(f", {part}" for part in rest)


def _bare(rhs: str) -> str:
    return re.sub(r", !.*$", "", rhs)


def _mask(text: str, lanes: int) -> list[int]:
    """Return the lanes that a shuffle takes; what is left open counts as beyond."""
    if text.startswith("zeroinitializer"):
        return [0] * lanes
    return [int(part.split()[1]) if part.split()[1].isdigit() else 1 << 20 for part in text.strip("<>").split(",")]
