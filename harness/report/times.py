"""The table of `assay time`: medians with quartiles, rates, and how subjects compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from harness.regress_session import Context, judge
from harness.report.timing import COLORS, duration, ratio, reason
from harness.stats import by_round, spark, spread
from harness.timing.record import key_of
from harness.timing.samples import Role
from harness.verdict import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.time_session import Timed
    from harness.timing.record import Key
    from harness.timing.samples import Arm, Timing
    from harness.verdict import Verdict

_HEADERS = ("subject", "median", "quartiles", "by round", "GB/s", "% of copy", "G op/s")


def lines(found: Timed) -> Iterator[str]:
    """Yield the lines of the report."""
    verdicts: dict[tuple[Key, str], Verdict] = {}
    if any(timing.of(Role.CANDIDATE) for timing in found.timings):
        judged = judge(found.timings, {}, Context(impossible=lambda timing: found.impossible.get(key_of(timing), "")))
        verdicts = {(one.evidence.key, one.evidence.candidate): one for one in judged}
    for timing in found.timings:
        yield ""
        how = ", amortized" if timing.amortized else ""
        yield click.style(f"{timing.instance}  {timing.operation}{how}", bold=True)
        rows = [_row(found, timing, arm) for arm in timing.arms if arm.role in (Role.BASELINE, Role.CANDIDATE)]
        headers = list(_HEADERS)
        if len(rows) > 1:
            headers += ["beside the baseline [99 %]", "verdict"]
            rows = [row + _verdict(verdicts.get((key_of(timing), row[0]))) for row in rows]
        yield tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
        for arm_name, why in (*timing.wrong, *timing.failed):
            yield click.style(f"{arm_name}: {why}", fg="red")
        if key_of(timing) in found.impossible:
            yield click.style(f"impossible: {found.impossible[key_of(timing)]}", fg="red")
    yield ""
    if not found.timings:
        yield "nothing was timed: no subject offers any of it"
        return
    largest = max(timing.overhead_ns for timing in found.timings)
    overhead = f"an empty evaluation takes {duration(largest)}, never subtracted"
    yield f"{len(found.timings)} timings, seed {found.seed}; {overhead}"
    if found.record is not None:
        yield f"samples: {found.record}"


def _row(found: Timed, timing: Timing, arm: Arm) -> list[str]:
    rounds = by_round(timing).get(arm.name)
    if rounds is None:
        said = "wrong" if arm.name in dict(timing.wrong) else "errored" if arm.name in dict(timing.failed) else "-"
        return [arm.name, said, *[""] * (len(_HEADERS) - 2)]
    own = spread(rounds.call_ns)
    row = [
        arm.name,
        duration(own.median_ns),
        f"{duration(own.q1_ns)} to {duration(own.q3_ns)}",
        spark(rounds.call_ns),
        "",
        "",
        "",
    ]
    if timing.moved_bytes:
        moved_s = timing.moved_bytes / own.median_ns * 1e9
        row[4:6] = [f"{moved_s / 1e9:.3g}", f"{100 * moved_s / found.machine.copied_s(timing.moved_bytes // 2):.0f}"]
    if timing.operations:
        row[6] = f"{timing.operations / own.median_ns:.3g}"
    return row


def _verdict(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return ["", ""]
    why = f" ({reason(verdict)})" if reason(verdict) and verdict.call is not Call.SLOWER else ""
    return [ratio(verdict.evidence), click.style(f"{verdict.call}{why}", fg=COLORS[verdict.call])]
