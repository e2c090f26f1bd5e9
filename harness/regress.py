"""Verdicts on timings: FASTER, SLOWER, SAME, or AMBIGUOUS with the reason why nothing can be said.

What is measured again and again until it pleases proves nothing, so the error that may be made is spent over the
looks (`Rule.spent`). What is compared often finds something by chance, so the p values of a report are corrected
together. The figures that this rests on are simulated: `python -m tests.bench.verdict_simulation`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from harness.stats import Interval, by_round, false_discoveries, interval, round_effects, spark, spread
from harness.timing.samples import Role
from harness.verdict import DEFAULT_RULE, Call, Evidence, Reason, Rule, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats import Floats, Ints, Rounds
    from harness.timing.samples import Arm, Timing

# Visits shorter than this many overheads measure the clock; the driver aims at twice as many.
VISIT_OVERHEADS = 10
# A synchronized call shorter than this many empty evaluations is mostly one.
CALL_OVERHEADS = 2
# By so much the machine may change from one third of a session to another. Turns that visit every arm within
# milliseconds bear the two paces of shared machines and chips that grow warm, but not one that was nearly stopped.
CANARY_RATIO = 2.5
# Two copies of the baseline may differ by this part of what is said of the candidate.
CONTROL_SHARE = 4


def examine(
    timing: Timing,
    rule: Rule = DEFAULT_RULE,
    *,
    look: int = 1,
    quiet_effects: Sequence[float] = (),
    impossible: str = "",
) -> list[Evidence]:
    """Return the evidence on each candidate of a timing.

    look counts from 1. quiet_effects: |log ratio| of control and baseline in stored runs of this case on such a
    machine. impossible: why these times can't be true.
    """
    (baseline,) = timing.of(Role.BASELINE)
    arms = by_round(timing)
    wrong = dict(timing.wrong)
    control = _control(timing, baseline, arms, rule)
    canary = next((arms[arm.name] for arm in timing.of(Role.CANARY) if arm.name in arms), None)
    found = []
    for candidate in timing.of(Role.CANDIDATE):
        effects, sets = _effects(arms, baseline.name, candidate.name)
        spent = rule.spent[min(look, len(rule.spent)) - 1]
        seen = interval(effects, sets, 1 - spent)
        floor = _floor(rule, [*quiet_effects, *([abs(control.effect)] if control else [])])
        rounds = len(effects)
        barred, detail = _barred(timing, rule, baseline, candidate, arms, wrong, rounds, seen.clusters, impossible)
        if barred is None:
            barred, detail = _unsteady(rule, control, canary, abs(seen.effect))
        found.append(
            Evidence(
                timing.instance,
                timing.operation,
                timing.amortized,
                timing.case_digest,
                baseline.name,
                candidate.name,
                rounds,
                seen.clusters,
                look,
                spread(arms[baseline.name].call_ns) if baseline.name in arms else None,
                spread(arms[candidate.name].call_ns) if candidate.name in arms else None,
                seen,
                control,
                math.log1p(rule.min_effect),
                floor,
                min(1.0, seen.p * rule.error / spent),
                spark(effects),
                barred,
                detail,
            )
        )
    return found


def _effects(arms: dict[str, Rounds], base: str, new: str) -> tuple[Floats, Ints]:
    if base not in arms or new not in arms:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    return round_effects(arms[base], arms[new])


def _control(timing: Timing, baseline: Arm, arms: dict[str, Rounds], rule: Rule) -> Interval | None:
    for arm in timing.of(Role.CONTROL):
        if arm.name in arms and baseline.name in arms:
            return interval(*round_effects(arms[baseline.name], arms[arm.name]), 1 - rule.error)
    return None


def _floor(rule: Rule, quiet: Sequence[float]) -> float:
    stated = math.log1p(rule.min_effect)
    return max(stated, float(np.quantile(quiet, 0.975))) if quiet else stated


def _barred(
    timing: Timing,
    rule: Rule,
    baseline: Arm,
    candidate: Arm,
    arms: dict[str, Rounds],
    wrong: dict[str, str],
    rounds: int,
    sets: int,
    impossible: str,
) -> tuple[Reason | None, str]:
    failed = dict(timing.failed)
    for arm, why, reason in (
        (candidate, wrong, Reason.WRONG_ANSWER),
        (baseline, wrong, Reason.WRONG_BASELINE),
        (candidate, failed, Reason.ERRORED),
        (baseline, failed, Reason.ERRORED),
    ):
        if arm.name in why:
            return reason, f"{arm.name}: {why[arm.name]}"
    if impossible:
        return Reason.IMPOSSIBLE, impossible
    if rounds < rule.least_rounds or sets < rule.least_sets:
        least = f"{rule.least_rounds} rounds in {rule.least_sets} sets of processes"
        return Reason.FEW_ROUNDS, f"{rounds} rounds in {sets}; it takes {least}"
    for arm in (baseline, candidate):
        took = float(np.median([visit.took_ns for visit in timing.visits if visit.arm == arm.name]))
        if took < VISIT_OVERHEADS * timing.overhead_ns:
            return Reason.BELOW_OVERHEAD, f"a visit of {arm.name} lasts {took / timing.overhead_ns:.1f} overheads"
        call = float(np.median(arms[arm.name].call_ns))
        if not timing.amortized and call < CALL_OVERHEADS * timing.overhead_ns:
            share = call / timing.overhead_ns
            return Reason.BELOW_OVERHEAD, f"a call of {arm.name} lasts {share:.1f} empty evaluations; time it amortized"
    return None, ""


def _unsteady(rule: Rule, control: Interval | None, canary: Rounds | None, effect: float) -> tuple[Reason | None, str]:
    if control is None:
        return Reason.CONTROL_ARM_MISSING, "there is no second copy of the baseline to tell noise by"
    # A tiny difference that is certain can't become a verdict: half the least effect can. Beside an effect many times
    # as large it is what one control in a hundred shows by chance.
    if control.excludes_zero and abs(control.effect) > max(math.log1p(rule.min_effect) / 2, effect / CONTROL_SHARE):
        return Reason.CONTROL_ARM_MOVED, f"two copies of the baseline differ by {percent(control.effect)}"
    if canary is not None and len(canary.call_ns) >= 3:
        ratio = drift(canary)
        if ratio > CANARY_RATIO:
            return Reason.CANARY_DRIFTED, f"fixed work took {ratio:.2f} times as long in one part as in another"
    return None, ""


def drift(canary: Rounds) -> float:
    """Return the ratio of the slowest and the fastest third of a session, by the median of the canary."""
    thirds = [float(np.median(part)) for part in np.array_split(canary.call_ns, 3)]
    return max(thirds) / min(thirds)


def decide(evidence: Sequence[Evidence], rule: Rule = DEFAULT_RULE) -> list[Verdict]:
    """Return a verdict for each piece of evidence of one report; their p values are corrected together."""
    tested = [one for one in evidence if one.barred is None]
    adjusted = dict(zip(map(id, tested), false_discoveries([one.p for one in tested]), strict=True))
    return [_decide(one, adjusted.get(id(one), 1.0), rule) for one in evidence]


def _decide(one: Evidence, p: float, rule: Rule) -> Verdict:
    if one.barred is not None:
        return Verdict(Call.AMBIGUOUS, one.barred, one, one.detail)
    seen = one.interval
    if seen.excludes_zero and abs(seen.effect) >= one.floor:
        if p <= rule.error:
            return Verdict(Call.SLOWER if seen.effect > 0 else Call.FASTER, Reason.CLEAR, one, p_adjusted=p)
        detail = "alone it would count; among this many comparisons chance makes such a one"
        return Verdict(Call.AMBIGUOUS, Reason.MANY_COMPARED, one, detail, p_adjusted=p)
    # By the stated minimum, not by a floor that noise has raised: a noisy machine can't tell that two are the same.
    if -one.least < seen.low and seen.high < one.least:
        return Verdict(Call.SAME, Reason.CLEAR, one, p_adjusted=p)
    detail = f"{percent(seen.low)} to {percent(seen.high)}, where a change counts from {percent(one.floor)}"
    return Verdict(Call.AMBIGUOUS, Reason.WIDE_INTERVAL, one, detail, p_adjusted=p)


def percent(log_ratio: float) -> str:
    """Write a log ratio as a change in percent."""
    if math.isinf(log_ratio):
        return "∞" if log_ratio > 0 else "-100 %"
    return f"{100 * math.expm1(log_ratio):+.1f} %"
