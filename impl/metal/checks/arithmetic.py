"""Checks of integer divisions, shifts, and conversions of floating-point numbers to integers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal.checks.llvm_text import vector

if TYPE_CHECKING:
    from impl.metal.checks.llvm_text import Function

_OPERAND = r"(?:%[\w.$-]+|-?\d+|<[^>]*>|splat \([^)]*\)|zeroinitializer)"
_KIND = r"(?:i\d+|<\d+ x i\d+>)"
_DIVISION = re.compile(rf"^  (%[\w.$-]+) = ([su])(div|rem) (?:exact )?({_KIND}) ({_OPERAND}), ({_OPERAND})(.*)$")
_SHIFT = re.compile(
    rf"^  (%[\w.$-]+) = (?:shl|lshr|ashr) (?:(?:nuw|nsw|exact) )*({_KIND}) {_OPERAND}, (%sh[lr]\.mask\d*)(?=[, ]|$)"
)
_MASK = re.compile(rf"and {_KIND} ({_OPERAND}), ")
_CONVERSION = re.compile(rf"^  (%[\w.$-]+) = fpto([su])i (\w+|<\d+ x \w+>) ({_OPERAND}) to ({_KIND})(?=[, ]|$)")
_BITS = re.compile(r"i(\d+)")


def checked(function: Function, number: int, line: str, place: int) -> list[str]:
    """Return line `number` of `function`, with its check after it if it divides, shifts or converts.

    The result goes through the check, which can put another one in place of what is undefined.
    """
    division = _DIVISION.match(line)
    if division and division[6].startswith("%"):
        return _division(division, number, place)
    shift = _SHIFT.match(line)
    if shift:
        # The front end cuts the amount to the bits of the type; what the author wrote is the cut's operand.
        mask = _MASK.match(function.definitions.get(shift[3], ""))
        if mask and mask[1].startswith("%"):
            return _shift(shift, mask[1], number, place)
    conversion = _CONVERSION.match(line)
    if conversion and conversion[4].startswith("%"):
        return _conversion(conversion, number, place)
    return [line]


class _Lanes:
    """Writes lines for each component of a value, in the manner of a scalar."""

    def __init__(self, kind: str, number: int) -> None:
        parts = vector(kind)
        self._kind = kind
        self._prefix = f"%msl.a{number}"
        self._names = 0
        self.count = parts[0] if parts else 1
        self.element = parts[1] if parts else kind
        self.lines: list[str] = []

    def new(self, what: str) -> str:
        self._names += 1
        name = f"{self._prefix}.{self._names}"
        self.lines.append(f"  {name} = {what}")
        return name

    def component(self, kind: str, value: str, lane: int) -> str:
        return self.new(f"extractelement {kind} {value}, i64 {lane}") if vector(kind) else value

    def wide(self, value: str, sign: bool) -> str:
        return (
            value if self.element == "i64" else self.new(f"{'sext' if sign else 'zext'} {self.element} {value} to i64")
        )

    def narrow(self, value: str) -> str:
        return value if self.element == "i64" else self.new(f"trunc i64 {value} to {self.element}")

    def put(self, whole: str, value: str, lane: int) -> str:
        return (
            self.new(f"insertelement {self._kind} {whole}, {self.element} {value}, i64 {lane}")
            if self.count > 1
            else value
        )

    def named(self, value: str, name: str) -> list[str]:
        """Give the result the name that the rest of the function knows it by."""
        return [*self.lines, f"  {name} = freeze {self._kind} {value}"]


def _bits(kind: str) -> int:
    found = _BITS.search(kind)
    return int(found[1]) if found else 64


def _division(found: re.Match[str], number: int, place: int) -> list[str]:
    name, letter, verb, kind, numerator, divisor = found.groups()[:6]
    sign = letter == "s"
    lanes = _Lanes(kind, number)
    bits = _bits(kind)
    tops = [lanes.component(kind, numerator, lane) for lane in range(lanes.count)]
    bottoms = [lanes.component(kind, divisor, lane) for lane in range(lanes.count)]
    result = "poison"
    for lane, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)):
        bad = lanes.new(f"icmp eq {lanes.element} {bottom}, 0")
        if sign:
            least = lanes.new(f"icmp eq {lanes.element} {top}, {-(1 << (bits - 1))}")
            minus = lanes.new(f"icmp eq {lanes.element} {bottom}, -1")
            bad = lanes.new(f"or i1 {bad}, {lanes.new(f'and i1 {least}, {minus}')}")
        safe = lanes.new(f"select i1 {bad}, {lanes.element} 1, {lanes.element} {bottom}")
        raw = lanes.new(f"{letter}{verb} {lanes.element} {top}, {safe}")
        given = ", ".join(f"i64 {lanes.wide(value, sign)}" for value in (top, bottom, raw))
        checked_result = lanes.new(f"call i64 @msl_check_division({given}, i32 {bits}, i32 {int(sign)}, i32 {place})")
        result = lanes.put(result, lanes.narrow(checked_result), lane)
    return lanes.named(result, name)


def _shift(found: re.Match[str], amount: str, number: int, place: int) -> list[str]:
    name, kind = found[1], found[2]
    lanes = _Lanes(kind, number)
    raw = lanes.new(found[0].partition(" = ")[2])
    result = "poison"
    for lane in range(lanes.count):
        by = lanes.wide(lanes.component(kind, amount, lane), sign=True)
        given = lanes.wide(lanes.component(kind, raw, lane), sign=True)
        checked_result = lanes.new(f"call i64 @msl_check_shift(i64 {by}, i64 {given}, i32 {_bits(kind)}, i32 {place})")
        result = lanes.put(result, lanes.narrow(checked_result), lane)
    return lanes.named(result, name)


def _conversion(found: re.Match[str], number: int, place: int) -> list[str]:
    name, letter, source, value, kind = found.groups()[:5]
    lanes = _Lanes(kind, number)
    # What does not fit gives no value at all in LLVM text; frozen it is some value.
    raw = lanes.new(f"freeze {kind} {lanes.new(f'fpto{letter}i {source} {value} to {kind}')}")
    parts = vector(source)
    result = "poison"
    for lane in range(lanes.count):
        number_there = lanes.component(source, value, lane)
        wide = lanes.new(f"fpext {parts[1] if parts else source} {number_there} to double")
        given = lanes.wide(lanes.component(kind, raw, lane), sign=letter == "s")
        checked_result = lanes.new(
            f"call i64 @msl_check_conversion(double {wide}, i64 {given}, i32 {_bits(kind)}, i32 {int(letter == 's')}, "
            f"i32 {place})"
        )
        result = lanes.put(result, lanes.narrow(checked_result), lane)
    return lanes.named(result, name)
