"""What a launch showed, in words for the kernel's author."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from impl.metal.checks.finding import Fault, Finding, Place
from impl.metal.checks.table import INPUT, PRIVATE, TABLE, THREADGROUP
from impl.metal.translation import HEADER_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from impl.metal.backend import Call
    from impl.metal.checks.native import Found, Region
    from impl.metal.signature import Text

# `Fault` and `Detail` of runtime/faults.h.
_READ_OUTSIDE, _WRITE_OUTSIDE, _RACE, _UNINITIALIZED, _BY_ZERO, _OVERFLOW, _SHIFT, _CONVERSION, _TO_INPUT, _INACTIVE = (
    range(10)
)
_WRITES, _OTHER_WRITES, _OTHER_GROUP, _UNCOVERED, _GAP, _ATOMIC, _OTHER_ATOMIC = (1 << i for i in range(7))
_FAULTS = {
    _READ_OUTSIDE: Fault.OUT_OF_BOUNDS_READ,
    _WRITE_OUTSIDE: Fault.OUT_OF_BOUNDS_WRITE,
    _TO_INPUT: Fault.OUT_OF_BOUNDS_WRITE,
    _RACE: Fault.RACE,
    _UNINITIALIZED: Fault.UNINITIALIZED_READ,
    _BY_ZERO: Fault.UNDEFINED_ARITHMETIC,
    _OVERFLOW: Fault.UNDEFINED_ARITHMETIC,
    _SHIFT: Fault.UNDEFINED_ARITHMETIC,
    _CONVERSION: Fault.UNDEFINED_ARITHMETIC,
    _INACTIVE: Fault.INACTIVE_LANE_READ,
}


@dataclass(frozen=True)
class Words:
    """What messages need to know of a kernel's call. places, regions: as the checked object numbers them."""

    text: Text
    call: Call
    places: Sequence[tuple[str, int, int]]
    regions: Sequence[Region]

    def place(self, number: int) -> tuple[Place, ...]:
        """Return place `number`, or nothing for 0."""
        if not 0 < number <= len(self.places):
            return ()
        file, line, column = self.places[number - 1]
        lines = (self.text.header if file == HEADER_FILE else self.text.source).split("\n")
        shown = lines[line - 1].rstrip() if line <= len(lines) else ""
        return (Place(file, line, column, shown),)

    def finding(self, found: Found) -> Finding:
        """Return the finding for one fault of the runtime's table."""
        places = self.place(found.site)
        if found.fault == _RACE:
            places += self.place(found.other_site)
        return Finding(self.text.name, _FAULTS[found.fault], self._message(found, places), places, found.count)

    def _message(self, found: Found, places: tuple[Place, ...]) -> str:  # noqa: PLR0911 - one a fault
        who = self._thread(found.group, found.thread)
        if found.fault == _RACE:
            return self._race(found, places)
        if found.fault == _UNINITIALIZED:
            return f"{who} reads {self._element(found, places)}, which {self._nobody(found)} has written"
        if found.fault == _INACTIVE:
            return f"{who} uses the value of a lane that takes no part here"
        if found.fault == _BY_ZERO:
            return f"{who} divides {found.offset} by zero"
        if found.fault == _OVERFLOW:
            return f"{who} divides {found.offset}, the smallest number of its type, by -1"
        if found.fault == _SHIFT:
            return f"{who} shifts a number of {found.value:.0f} bits by {found.offset}"
        if found.fault == _CONVERSION:
            kind = f"{'a signed' if found.offset & 256 else 'an unsigned'} integer of {found.offset & 255} bits"
            return f"{who} converts {found.value:g} to {kind}, which has no such value"
        if found.fault == _TO_INPUT:
            return f"{who} writes {self._element(found, places)}, which {self._read_only(found)}"
        return self._outside(found, places, who)

    def _outside(self, found: Found, places: tuple[Place, ...], who: str) -> str:
        verb = "reads" if found.fault == _READ_OUTSIDE else "writes"
        if found.region < 0:
            return f"{who} {verb} memory that belongs to no buffer and no variable"
        region = self.regions[found.region]
        if found.detail & _GAP:
            at = found.offset // region.element_bytes
            return (
                f"{who} {verb} {region.name}[{at}] as it lies in memory, between the elements of this view; "
                f"an index must go by {region.name}_strides"
            )
        if verb == "writes" and region.kind in (INPUT, TABLE) and 0 <= found.offset < region.bytes:
            return f"{who} writes {self._element(found, places)}, which {self._read_only(found)}"
        limit = region.bytes // region.element_bytes
        count = "one element" if limit == 1 else f"{limit} elements"
        wide = ""
        if found.bytes > region.element_bytes and found.bytes % region.element_bytes == 0:
            wide = f" and {found.bytes // region.element_bytes - 1} after it"
        return f"{who} {verb} {self._element(found, places)}{wide}, but {self._name(region, places)} has {count}"

    def _race(self, found: Found, places: tuple[Place, ...]) -> str:
        verb = "writes" if found.detail & _WRITES else "reads"
        other_verb = "wrote" if found.detail & _OTHER_WRITES else "read"
        if found.detail & (_ATOMIC | _OTHER_ATOMIC):
            verb += " atomically" if found.detail & _ATOMIC else " not atomically"
            other_verb += " atomically" if found.detail & _OTHER_ATOMIC else " not atomically"
        who, other = self._thread(found.group, found.thread), self._thread(found.other_group, found.other_thread)
        if found.group == found.other_group:
            other = f"thread {found.other_thread}"
        what = f"{who} {verb} {self._element(found, places)}, which {other} {other_verb}"
        if len(places) == 2:
            what += f" at {places[1].file}:{places[1].line}"
        if found.detail & _OTHER_GROUP:
            return f"{what}; nothing orders threadgroups of one launch"
        region = self.regions[found.region]
        flag = "mem_threadgroup" if region.kind == THREADGROUP else "mem_device"
        if found.detail & _UNCOVERED:
            return f"{what}; the barrier between them lacks mem_flags::{flag}, so it does not order this memory"
        same = found.thread // 32 == found.other_thread // 32
        barrier = f"threadgroup_barrier(mem_flags::{flag}){' or simdgroup_barrier' if same else ''}"
        return f"{what}, with no {barrier} between"

    def _thread(self, group: int, thread: int) -> str:
        sizes = [min(t, g) for t, g in zip(self.call.threadgroup, self.call.grid, strict=True)]
        groups = [-(-g // s) for g, s in zip(self.call.grid, sizes, strict=True)]
        number = max(group - 1, 0)
        if groups[0] * groups[1] * groups[2] == 1:
            return f"thread {thread}"
        place = (number % groups[0], number // groups[0] % groups[1], number // groups[0] // groups[1])
        shown = str(place[0]) if groups[1] * groups[2] == 1 else "({}, {}, {})".format(*place)
        return f"thread {thread} of threadgroup {shown}"

    def _element(self, found: Found, places: tuple[Place, ...]) -> str:
        region = self.regions[found.region]
        name = self._name(region, places)
        return f"{name}[{found.offset // region.element_bytes}]"

    def _name(self, region: Region, places: tuple[Place, ...]) -> str:
        # LLVM numbers variables of one name; the author's line tells whether the number is part of it.
        bare = region.name.rstrip("0123456789")
        if region.kind == PRIVATE and places and bare:
            line = places[0].text
            if not re.search(rf"\b{re.escape(region.name)}\b", line) and re.search(rf"\b{re.escape(bare)}\b", line):
                return bare
        return region.name

    def _nobody(self, found: Found) -> str:
        if self.regions[found.region].kind == THREADGROUP:
            return "no thread of its threadgroup"
        return "no thread"

    def _read_only(self, found: Found) -> str:
        return "is an input" if self.regions[found.region].kind == INPUT else "is constant"


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once: several lane orders see the same one, a race also with its accesses exchanged."""
    kept: dict[object, Finding] = {}
    for finding in findings:
        places = frozenset((p.file, p.line, p.column) for p in finding.places)
        key = (finding.fault, places) if places else (finding.fault, finding.message)
        if key in kept:
            kept[key] = replace(kept[key], count=max(kept[key].count, finding.count))
        else:
            kept[key] = finding
    raced = {place for f in kept.values() if f.fault is Fault.RACE for place in f.places}
    # Who reads what another thread is about to write may read before anybody has written: one fault, not two.
    return tuple(
        f for f in kept.values() if f.fault is not Fault.UNINITIALIZED_READ or not raced.intersection(f.places)
    )
