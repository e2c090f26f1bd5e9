"""The report of the selftest of timing."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tabulate import tabulate

from harness.timing.plan import TURNS
from harness.verdict import DEFAULT_RULE, Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.selftest_timing import Counts, Found, Settings

_HEADERS = ("planted", "compared", "SLOWER", "FASTER", "SAME", "AMBIGUOUS")


def markdown(found: Found, settings: Settings, machine: Mapping[str, object]) -> str:
    """Return the report as Markdown."""
    others = list(found.counts[0].alarms)
    rows = [_row(count, others) for count in found.counts]
    rounds = [DEFAULT_RULE.least_rounds * (look + 1) for look in range(len(DEFAULT_RULE.spent))]
    headers = [*_HEADERS, f"SLOWER after {' / '.join(map(str, rounds))} rounds", "confirmed", "measured", *others]
    table = tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    idle, busy = "The selftest started nothing else.", "One core was kept busy by another process meanwhile."
    load = busy if settings.load else idle
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    most = DEFAULT_RULE.most_rounds
    return f"""# Selftest of timing

What `assay` says of two arms that do the same, and of arms with a planted delay: work that counts, called through the
driver as any other, in {settings.sets} sets of fresh processes a look; looks of {DEFAULT_RULE.least_rounds} rounds (of
{TURNS} turns that visit every arm), at most {most} rounds in all. {load} A change counts from
{100 * DEFAULT_RULE.min_effect:.0f} %. `confirmed`: false alarms that a second session repeated. `measured`: median of
the ratios that were seen. The last columns are what pytest-benchmark's own comparison makes of the samples of the
first look: the share that it calls a regression.

{table}

Each sort of work has one baseline for all that it is compared with, so comparisons of one sort are not independent.

Machine: {where}. Made by `assay selftest timing{" --load" if settings.load else ""}`.
"""


def _row(count: Counts, others: list[str]) -> list[str]:
    change = f"{100 * count.change:+.0f} %" if count.change else "nothing"
    calls = [_share(count.last[call], count) for call in (Call.SLOWER, Call.FASTER, Call.SAME, Call.AMBIGUOUS)]
    confirmed = "" if count.change else f"{count.confirmed} of {count.last[Call.SLOWER]}"
    seen = f"{100 * (median(count.ratios) - 1):+.1f} %" if count.ratios else "-"
    looks = " / ".join(_share(look[Call.SLOWER], count) for look in count.looks)
    rest = [_share(count.alarms.get(rule, 0), count) for rule in others]
    return [change, str(count.compared), *calls, looks, confirmed, seen, *rest]


def _share(part: int, count: Counts) -> str:
    return f"{100 * part / count.compared:.1f} %" if count.compared else "-"
