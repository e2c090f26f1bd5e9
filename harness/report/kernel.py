"""What the checks of a kernel found, as a compiler would say it: place, fault, the line, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from harness.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.kernel_run import Origin, Seen
    from harness.outcome import KernelChecks, KernelFault, KernelPlace, Result

JSON_VERSION = 1
SHOWN_INSTANCES = 3

HELP = {
    "race": "order the two: a barrier between them, with mem_flags::mem_threadgroup for threadgroup memory and "
    "mem_device for buffers; or make both atomic",
    "out-of-bounds read": "guard it (`if (i < n)`), or mend the index: sizes and strides of an input x are x_shape and "
    "x_strides",
    "out-of-bounds write": "guard it (`if (i < n)`), or mend the index, the grid or the size of the output",
    "uninitialized read": "write it first, in every thread's way to here; for an output, pass `init_value`",
    "unwritten output": "let a thread write every element; or pass `init_value`, if the rest is to keep that value",
    "divergent barrier": "every thread of the threadgroup must come to the same barrier: take it out of the branch or "
    "the loop, and let threads without work skip the work instead of returning",
    "divergent simd operation": "take the operation out of the branch, so that all lanes of the simdgroup come to it",
    "read of an inactive lane": "let every lane that is read take part, or choose another lane",
    "undefined arithmetic": "make sure that the operands are in range before",
    "order-dependent result": "threads depend on who comes first: look for a missing barrier, or for atomics whose "
    "order matters",
    "time limit": "look for a loop without end, or for threads that wait for each other; raise --time-limit for a "
    "kernel that only takes long",
    "memory limit": "raise --memory-limit, or describe a smaller launch",
}


@dataclass(frozen=True)
class FileReport:
    """One file: its faults, the results of its instances by id, and where the kernel's text stands."""

    path: str
    seen: list[Seen]
    results: Mapping[str, Result]
    origins: Mapping[str, Origin]


def report(files: Sequence[FileReport]) -> Iterator[str]:
    """Yield the lines of the report."""
    for file in files:
        yield from _file(file, several=len(files) > 1)
    if len(files) > 1:
        with_faults = sum(bool(file.seen) for file in files)
        yield f"{len(files)} files: {with_faults} with findings, {sum(len(file.seen) for file in files)} in all"


def _file(file: FileReport, *, several: bool) -> Iterator[str]:
    head = click.style(f"{file.path}: ", bold=True) if several else ""
    results = file.results.values()
    if file.seen and several:
        yield f"{head}"
    for one in file.seen:
        yield from _fault(one, file.origins, several=len(results) > 1)
        yield ""
    skipped = [words for result in results if result.checks is not None for words in result.checks.skipped]
    skipped += [result.reason for result in results if result.outcome is Outcome.UNSUPPORTED]
    yield from (f"not checked: {words}" for words in dict.fromkeys(skipped))
    yield f"{head}{summary(file.seen, file.results)}"


def _fault(seen: Seen, origins: Mapping[str, Origin], *, several: bool) -> Iterator[str]:
    fault = seen.fault
    yield from at_its_place(fault)
    if seen.differs is not None:
        yield f"    expected  {seen.differs.expected}"
        yield f"    actual    {seen.differs.actual}"
        if seen.differs.note:
            yield f"              {seen.differs.note}"
    in_files = [text for p in fault.places if (text := _in_file(p, origins))]
    if in_files:
        yield f"  --> {', '.join(in_files)}"
    if fault.fault in HELP:
        yield f"  help: {HELP[fault.fault]}"
    if several:
        shown = ", ".join(seen.instances[:SHOWN_INSTANCES])
        more = len(seen.instances) - SHOWN_INSTANCES
        yield f"  in {shown}" + (f" and {more} more instances" if more > 0 else "")


def report_compiled(checks: KernelChecks, kernels: int, target: str, cache: Path) -> Iterator[str]:
    """Yield what was compiled for another device, and how it runs there."""
    for fault in checks.faults:
        yield from at_its_place(fault)
        yield ""
    yield from (f"not covered: {why}" for why in checks.skipped)
    refused = len({fault.kernel for fault in checks.faults}) + len(checks.skipped)
    yield f"{kernels - refused} of {kernels} kernels compiled for {target} into {cache}"
    if kernels > refused:
        yield f"there: METAL_ASSAY_CACHE={cache} METAL_ASSAY_BACKEND=cuda"


def at_its_place(fault: KernelFault, *, named: bool = False) -> Iterator[str]:
    """Yield place (`named`: kernel as well), fault and message, then the line of the text; of a race, both lines."""
    words = [fault.kernel] if named or not fault.places else []
    where = ", ".join([*words, *map(str, fault.places[:1])])
    yield (click.style(f"{where}: ", bold=True) if where else "") + f"{_red(fault.fault)}: {fault.message}"
    for number, place in enumerate(fault.places):
        if number:
            yield click.style(f"{place}: ", bold=True) + "the other access"
        yield from line_with_caret(place)


def _red(text: str) -> str:
    return click.style(text, fg="red", bold=True)


def line_with_caret(place: KernelPlace) -> Iterator[str]:
    """Yield a line of a kernel's text with its number, and a caret under the column."""
    # A caret under text with tabs needs the same tabs.
    before = "".join(c if c == "\t" else " " for c in place.text[: place.column - 1])
    yield f"{place.line:5} | {place.text.rstrip()}"
    yield f"      | {before}^"


def _in_file(place: KernelPlace, origins: Mapping[str, Origin]) -> str:
    origin = origins.get(place.file)
    if origin is None:
        return ""
    return f"{origin.path}:{origin.line + place.line - 1}:{origin.indent + place.column}"


def summary(seen: list[Seen], results: Mapping[str, Result]) -> str:
    """Say in one line what was checked, and what came of it."""
    checked = [result.checks for result in results.values() if result.checks is not None]
    kernels = {name for checks in checked for name in checks.kernels}
    orders = {order for checks in checked for order in checks.orders}
    compared = sum(result.comparisons for result in results.values()) > len(checked)
    unchecked = len(results) - len(checked)
    whole = not any(checks.skipped for checks in checked)
    found = f"{len(seen)} finding{'s' * (len(seen) != 1)}"
    words = [
        found if seen else "clean" if checked and whole else "nothing found" if checked else "nothing was checked",
        f"{', '.join(sorted(kernels))} in {len(checked)} instance{'s' * (len(checked) != 1)}" if checked else "",
        f"{len(orders)} orders of the lanes" if orders else "",
        "answers compared" if compared else "",
        f"{unchecked} not checked" if unchecked and checked else "",
    ]
    text = f"{words[0]}: {', '.join(filter(None, words[1:]))}".removesuffix(": ")
    return click.style(text, fg="red" if seen else "green" if checked else "yellow", bold=True)


def as_json(files: Sequence[FileReport]) -> dict[str, Any]:
    """Return the report for programs: of each file the findings, and every instance."""
    return {"assay_kernel": JSON_VERSION, "files": [_json_file(file) for file in files]}


def _json_file(file: FileReport) -> dict[str, Any]:
    return {
        "file": file.path,
        "findings": [_json_fault(one, file.origins) for one in file.seen],
        "instances": [
            {
                "id": name,
                "outcome": str(result.outcome),
                "checked": result.checks is not None,
                "reason": result.reason,
                "output": result.output,
                "comparisons": result.comparisons,
                "seconds": round(result.seconds, 6),
                "orders": list(result.checks.orders) if result.checks is not None else [],
                "skipped": list(result.checks.skipped) if result.checks is not None else [],
            }
            for name, result in file.results.items()
        ],
    }


def _json_fault(seen: Seen, origins: Mapping[str, Origin]) -> dict[str, Any]:
    fault = seen.fault
    found: dict[str, Any] = {
        "kernel": fault.kernel,
        "fault": fault.fault,
        "message": fault.message,
        "count": fault.count,
        "instances": list(seen.instances),
        "places": [
            {"file": p.file, "line": p.line, "column": p.column, "text": p.text, "in": _in_file(p, origins)}
            for p in fault.places
        ],
    }
    if seen.differs is not None:
        found |= {"expected": seen.differs.expected, "actual": seen.differs.actual}
    return found
