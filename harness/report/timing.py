"""What a timing comparison found, and its report in a terminal or a log."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from harness.regress import percent
from harness.verdict import Call, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.verdict import Evidence, Verdict

COLORS = {Call.FASTER: "green", Call.SLOWER: "red", Call.SAME: "white", Call.AMBIGUOUS: "yellow"}
# The worst first: what a reader has to act on.
_ORDER = (Call.SLOWER, Call.AMBIGUOUS, Call.FASTER, Call.SAME)
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class TimingReport:
    """Verdicts of one comparison, and all that belongs beside them.

    base and new: what was compared, in words. broken: instances that the new side gets wrong, with the reason.
    left_out: instances that could not be compared, with the reason. notes: what weakens the report.
    """

    base: str
    new: str
    verdicts: tuple[Verdict, ...]
    machine: Mapping[str, object] = field(default_factory=dict)
    broken: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    interleaved: bool = True

    @property
    def wrong(self) -> list[tuple[str, str]]:
        """Every instance that the new side gets wrong, each once."""
        timed = [(v.evidence.instance, v.detail) for v in self.verdicts if v.reason is Reason.WRONG_ANSWER]
        return list(dict([*timed, *self.broken]).items())

    @property
    def exit_code(self) -> int:
        """1: an answer is wrong. 3: a confirmed regression. 4: impossible times, or nothing could be measured. Else 0.

        Nothing could be measured where each verdict was barred: too few rounds, a machine too unsteady, a clock too
        coarse.
        """
        if self.wrong:
            return 1
        if any(verdict.is_regression for verdict in self.verdicts):
            return 3
        if any(verdict.reason is Reason.IMPOSSIBLE for verdict in self.verdicts):
            return 4
        return 4 if all(verdict.evidence.barred is not None for verdict in self.verdicts) else 0

    @property
    def only_unsteady(self) -> bool:
        """Whether all that stood in the way of a verdict was the machine."""
        unsteady = (Reason.CANARY_DRIFTED, Reason.CONTROL_ARM_MOVED)
        impossible = any(verdict.reason is Reason.IMPOSSIBLE for verdict in self.verdicts)
        return self.exit_code == 4 and not impossible and any(verdict.reason in unsteady for verdict in self.verdicts)

    @property
    def tested(self) -> int:
        """How many comparisons the p values were corrected for."""
        return sum(verdict.evidence.barred is None for verdict in self.verdicts)

    def ordered(self) -> list[Verdict]:
        """Return the verdicts, those to act on first."""
        return sorted(self.verdicts, key=lambda v: (_ORDER.index(v.call), v.evidence.instance, v.evidence.operation))


def duration(ns: float) -> str:
    """Write a time with its unit, to three digits."""
    # 999.6 µs is 1.00 ms to three digits.
    ns = float(f"{ns:.3g}")
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if ns >= scale), _UNITS[-1])
    value = ns / scale
    return f"{value:.{max(0, 2 - int(math.log10(value)) if value >= 1 else 2)}f} {unit}"


def ratio(one: Evidence) -> str:
    """Write new / base with its interval."""
    if not one.rounds:
        return "-"
    low, high = (f"{math.exp(end):.2f}" if math.isfinite(end) else "?" for end in (one.interval.low, one.interval.high))
    return f"{math.exp(one.interval.effect):.3f} [{low}, {high}]"


def operation(one: Evidence) -> str:
    """Name what was timed and how."""
    return f"{one.operation} (amortized)" if one.amortized else one.operation


def reason(verdict: Verdict) -> str:
    """Name the reason, and whether a second session agreed."""
    if verdict.call is Call.SLOWER:
        return "confirmed" if verdict.confirmed else "not confirmed"
    return "" if verdict.reason is Reason.CLEAR else str(verdict.reason)


def summary(report: TimingReport) -> str:
    """Count the verdicts in one line."""
    counts = Counter(verdict.call for verdict in report.verdicts)
    words = ", ".join(f"{counts[call]} {call}" for call in _ORDER if counts[call]) or "nothing was compared"
    regressions = sum(verdict.is_regression for verdict in report.verdicts)
    if counts[Call.SLOWER]:
        words += f" ({regressions} confirmed)"
    return f"{words}; {report.tested} tested together"


def undecided(report: TimingReport) -> str:
    """Say what is certain where intervals are too wide for a verdict; "" where none is."""
    wide = [verdict.evidence for verdict in report.verdicts if verdict.reason is Reason.WIDE_INTERVAL]
    if not wide:
        return ""
    low, high = min(one.interval.low for one in wide), max(one.interval.high for one in wide)
    which = "1 interval reaches" if len(wide) == 1 else f"{len(wide)} intervals reach"
    return (
        f"{which} beyond the least change that counts ({percent(min(one.floor for one in wide))}), "
        f"none further than {percent(low)} to {percent(high)}; more rounds make them narrower"
    )


def lines(report: TimingReport) -> Iterator[str]:
    """Yield the lines of the report."""
    yield ""
    yield click.style(f"{report.new} beside {report.base}", bold=True)
    if report.verdicts:
        yield ""
        yield _table(report)
    details = [*dict.fromkeys(_details(report.ordered()))]
    if wide := undecided(report):
        details.append(f"{Reason.WIDE_INTERVAL}: {wide}")
    if details:
        yield ""
        yield from details
    for title, color, rows in (
        ("wrong answers", "red", report.wrong),
        ("not compared", "yellow", report.left_out),
    ):
        if rows:
            yield ""
            yield click.style(f"{title}:", fg=color)
            yield from (f"  {instance}: {why}" for instance, why in rows)
    yield ""
    yield from (f"note: {note}" for note in report.notes)
    yield summary(report)


def _table(report: TimingReport) -> str:
    headers = ["instance", "operation", "base", "new", "new/base [99 %]", "verdict", "reason", "rounds"]
    several = len({verdict.evidence.candidate for verdict in report.verdicts}) > 1
    rows = []
    for verdict in report.ordered():
        one = verdict.evidence
        base, new = (duration(side.median_ns) if side else "-" for side in (one.base, one.new))
        call = click.style(str(verdict.call), fg=COLORS[verdict.call])
        name = f"{one.instance} {one.candidate}" if several else one.instance
        rows.append([name, operation(one), base, new, ratio(one), call, reason(verdict), f"{one.rounds} {one.trace}"])
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)


def _details(verdicts: Iterable[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        # Wrong answers have a part of their own; intervals stand in the table.
        if verdict.detail and verdict.reason not in (Reason.WRONG_ANSWER, Reason.WIDE_INTERVAL):
            one = verdict.evidence
            yield f"{one.instance} {operation(one)}: {verdict.reason}: {verdict.detail}"


def figures(one: Evidence) -> str:
    """Say what a verdict rests on, in one line."""
    control = "none" if one.control is None else percent(one.control.effect)
    outliers = sum(side.outliers for side in (one.base, one.new) if side)
    return (
        f"{one.rounds} rounds in {one.sets} process sets; two copies of the baseline differ by {control}; "
        f"a change counts from {percent(one.floor)}; {outliers} outlier{'s' * (outliers != 1)} (kept)"
    )
