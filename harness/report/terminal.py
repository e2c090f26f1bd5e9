"""The report of a run in a terminal or a CI log: one row a case, then each kind of failure with its evidence."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from harness.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.outcome import Result
    from harness.run import Run, SubjectRun

_COLORS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.ERRORED: "magenta",
    Outcome.FIXED: "red",
    Outcome.KNOWN: "yellow",
    Outcome.UNSUPPORTED: "yellow",
}
# Failures of one case are mostly one cause: this many are shown in full, the rest counted.
SHOWN_ALIKE = 2


def report(run: Run, *, every: bool = False) -> Iterator[str]:
    """Yield the lines of the report; with `every`, each failure is shown in full."""
    by_id = {instance.id: instance for instance in run.instances}
    for part in run.subjects:
        yield from _subject(part, by_id, several=len(run.subjects) > 1, every=every)
    yield from _summary(run)


def _subject(part: SubjectRun, by_id: dict[str, Instance], *, several: bool, every: bool) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in part.versions.items())
    yield ""
    yield click.style(part.subject, bold=True) + f"  ({versions}; {part.device})"
    if part.results:
        yield ""
        yield _table(part, by_id)
    for what, count in sorted(part.left_out.items()):
        yield f"left out: {count} instance{'s' * (count != 1)} ({part.subject} does not offer {what})"
    yield from _reasons(part)
    yield from _failures(part, by_id, every=every)
    yield from _timings(part)
    if several:
        yield ""


def _table(part: SubjectRun, by_id: dict[str, Instance]) -> str:
    counts: dict[str, Counter[Outcome]] = {}
    for instance_id, result in part.results.items():
        counts.setdefault(by_id[instance_id].case_name, Counter())[result.outcome] += 1
    columns = [outcome for outcome in Outcome if any(count[outcome] for count in counts.values())]
    rows = [_row(name, count, columns) for name, count in sorted(counts.items())]
    total: Counter[Outcome] = sum(counts.values(), Counter())
    rows.append(_row("total", total, columns))
    align = ["left", *["right"] * (len(columns) + 1)]
    return tabulate(rows, headers=["case", "instances", *columns], tablefmt="simple", colalign=align)


def _row(name: str, count: Counter[Outcome], columns: Sequence[Outcome]) -> list[str]:
    cells = [click.style(str(count[outcome]), fg=_COLORS[outcome]) if count[outcome] else "·" for outcome in columns]
    return [name, str(sum(count.values())), *cells]


def _reasons(part: SubjectRun) -> Iterator[str]:
    for outcome in (Outcome.UNSUPPORTED, Outcome.KNOWN):
        reasons = Counter(result.reason for result in part.results.values() if result.outcome is outcome)
        if reasons:
            yield ""
            yield click.style(f"{outcome}:", fg=_COLORS[outcome])
        yield from (f"  {count:>4}  {reason}" for reason, count in reasons.most_common())


def _failures(part: SubjectRun, by_id: dict[str, Instance], *, every: bool) -> Iterator[str]:
    groups: dict[tuple[str, Outcome, str], list[str]] = {}
    for instance_id, result in part.results.items():
        if result.outcome.is_bad:
            sign = (
                result.findings[0].check
                if result.findings
                else result.reason.partition(" raised ")[2].partition(":")[0]
            )
            groups.setdefault((by_id[instance_id].case_name, result.outcome, sign), []).append(instance_id)
    for (name, outcome, _), ids in groups.items():
        yield ""
        count = f"{len(ids)} instance{'s' * (len(ids) != 1)} of {name}"
        yield click.style(str(outcome), fg=_COLORS[outcome], bold=True) + f": {count}"
        yield textwrap.fill(by_id[ids[0]].case.title, 100, initial_indent="  ", subsequent_indent="  ")
        shown = ids if every else ids[:SHOWN_ALIKE]
        for instance_id in shown:
            yield ""
            yield from evidence(by_id[instance_id], part.results[instance_id], part.subject, part.against)
        if len(ids) > len(shown):
            yield ""
            yield f"  and {len(ids) - len(shown)} more like {'this' if len(shown) == 1 else 'these'} (--all shows each)"


def evidence(instance: Instance, result: Result, subject: str, against: Path | None = None) -> Iterator[str]:
    """Yield what was expected and seen in one instance, and the command that runs just it."""
    yield f"  {instance.id}"
    if not result.findings:
        yield f"    {result.reason}"
    for finding in result.findings[:3]:
        yield f"    {finding.check}, {finding.where}"
        yield f"      expected  {finding.expected}"
        yield f"      actual    {finding.actual}"
        if finding.note:
            yield f"                {finding.note}"
    if len(result.findings) > 3:
        yield f"    and {len(result.findings) - 3} more findings in this instance"
    if result.output:
        lines = result.output.strip().splitlines()
        yield f"    output{' (its end)' if len(lines) > 8 else ''}:"
        yield from (f"      | {line[:160]}" for line in lines[-8:])
    again = replay(instance, subject, against)
    yield f"    again: {again}{' --checks' if result.checks is not None else ''}"


def replay(instance: Instance, subject: str, against: Path | None = None) -> str:
    """Return the command that runs just this instance, or compares it with the recording `against` once more."""
    what = ["--against", str(against)] if against else [instance.path]
    return shlex.join(["assay", "run", *what, "--subject", subject, "--select", instance.id])


def _timings(part: SubjectRun) -> Iterator[str]:
    rows = []
    for instance_id, result in part.results.items():
        for timed in result.rounds:
            per_call = sorted(ns / timed.calls / 1000 for ns in timed.round_ns)
            count = len(per_call)
            quartiles = [per_call[count // 4], per_call[count // 2], per_call[(3 * count) // 4]]
            rows.append([instance_id, timed.operation, *(f"{value:.1f}" for value in quartiles), count, timed.calls])
    if rows:
        yield ""
        headers = ["timed", "operation", "q1 µs", "median µs", "q3 µs", "rounds", "calls a round"]
        yield tabulate(rows, headers=headers, colalign=["left", "left", *["right"] * 5], disable_numparse=True)


def _summary(run: Run) -> Iterator[str]:
    total: Counter[Outcome] = sum((part.counts() for part in run.subjects), Counter())
    words = ", ".join(click.style(f"{total[o]} {o}", fg=_COLORS[o]) for o in Outcome if total[o]) or "nothing ran"
    resumed = sum(part.resumed for part in run.subjects)
    more = f" ({resumed} of them from the record)" if resumed else ""
    yield ""
    yield f"{sum(total.values())} instances in {run.seconds:.1f} s: {words}{more}"
    checks = [result.checks for part in run.subjects for result in part.results.values() if result.checks is not None]
    if checks:
        faults = sum(len(one.faults) for one in checks)
        launches = sum(one.launches for one in checks)
        yield f"launches of kernels checked: {launches}, findings: {faults}"
        yield from (f"not checked: {why}" for why in dict.fromkeys(why for one in checks for why in one.skipped))
    if run.record is not None:
        yield f"record: {run.record}"
