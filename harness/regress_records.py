"""Two recorded sessions side by side. They were not interleaved: whatever changed between them looks like a change.

What the canary took in the same round is divided out, which takes away what slowed everything alike. What slowed one
kind of work only (a warm chip whose memory is as fast as ever) stays, so the least effect is larger than within a
session, and only a second new session makes a regression count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from harness.errors import NothingRanError
from harness.regress import decide, drift
from harness.regress_session import confirmed
from harness.stats import (
    Interval,
    by_round,
    cluster_medians,
    interval,
    round_effects,
    spark,
    spread,
    unpaired_interval,
)
from harness.timing.record import different, key_of
from harness.timing.samples import Role
from harness.verdict import Evidence, Reason, Rule, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.stats import Floats, Rounds
    from harness.timing.record import TimingRecord
    from harness.timing.samples import Timing

# Not interleaved, a change smaller than this is more often the machine's than the code's.
APART_EFFECT = 0.10
# By so much the canary may differ within a session or between the two: without interleaving little is borne.
CANARY_RATIO = 1.25


class MachinesDifferError(NothingRanError):
    """Two records were made on machines whose times can't be compared."""


@dataclass(frozen=True)
class Apart:
    """Verdicts on what two records share, and why the rest was not compared."""

    verdicts: list[Verdict]
    left_out: list[tuple[str, str]]


@dataclass(frozen=True)
class _Known:
    quiet_effects: Mapping[tuple[str, str], Sequence[float]]
    slowdowns: Mapping[str, float]


def same_machine(base: TimingRecord, new: TimingRecord, names: tuple[Path | str, Path | str]) -> None:
    """Raise MachinesDifferError when two records come from different machines."""
    apart = different(base.fingerprint, new.fingerprint)
    if apart:
        listed = "\n".join(f"  {line}" for line in apart)
        raise MachinesDifferError(
            f"{names[0]} and {names[1]} come from different machines, so their times say nothing of the code:\n"
            f"{listed}\n--across-machines compares them all the same"
        )


def compare_records(
    base: TimingRecord,
    new: TimingRecord,
    *,
    again: TimingRecord | None = None,
    min_effect: float = APART_EFFECT,
    quiet_effects: Mapping[tuple[str, str], Sequence[float]] | None = None,
    slowdowns: Mapping[str, float] | None = None,
) -> Apart:
    """Compare each operation and arm that both records have; `again`, a second new session, confirms SLOWER.

    slowdowns: the least effect of cases that name their own.
    """
    rule = Rule(min_effect, spent=(0.01,))
    known = _Known(quiet_effects or {}, slowdowns or {})
    evidence, left_out = _all(base, new, rule, known)
    verdicts = decide(evidence, rule)
    if again is not None:
        verdicts = confirmed(verdicts, decide(_all(base, again, rule, known)[0], rule))
    return Apart(verdicts, left_out)


def _all(
    base: TimingRecord, new: TimingRecord, rule: Rule, known: _Known
) -> tuple[list[Evidence], list[tuple[str, str]]]:
    evidence: list[Evidence] = []
    left_out: list[tuple[str, str]] = []
    before, after = base.timings(), new.timings()
    for key in before.keys() | after.keys():
        name = f"{key[0]} {key[1]}"
        if key not in after or key not in before:
            left_out.append((name, "is in one of the records only"))
        elif before[key].case_digest != after[key].case_digest:
            left_out.append((name, "the case itself has changed"))
        elif not (pairs := list(_pairs(before[key], after[key]))):
            left_out.append((name, "the records have no arm in common"))
        else:
            case = key[0].partition("[")[0]
            own = replace(rule, min_effect=known.slowdowns.get(case, rule.min_effect))
            stored = known.quiet_effects.get((case, key[1]), ())
            evidence += [_evidence(before[key], after[key], *pair, own, stored) for pair in pairs]
    return sorted(evidence, key=lambda one: (one.key, one.candidate)), sorted(left_out)


def _pairs(base: Timing, new: Timing) -> Iterator[tuple[str, str]]:
    """Yield the arms to compare: those of one name, or the only one of each."""
    sides = [[arm.name for role in (Role.BASELINE, Role.CANDIDATE) for arm in one.of(role)] for one in (base, new)]
    common = [name for name in sides[0] if name in sides[1]]
    if common:
        yield from ((name, name) for name in common)
    elif len(sides[0]) == len(sides[1]) == 1:
        yield sides[0][0], sides[1][0]


def _evidence(base: Timing, new: Timing, arm: str, new_arm: str, rule: Rule, quiet: Sequence[float]) -> Evidence:
    arms, new_arms = by_round(base), by_round(new)
    anchored = [_anchored(one, name) for one, name in ((base, arm), (new, new_arm))]
    controls = [found for one in (base, new) if (found := _control(one, rule)) is not None]
    barred, detail = _barred(base, new, arm, new_arm, controls, rule)
    seen = Interval(0.0, -math.inf, math.inf, 1.0, 0)
    if anchored[0] is not None and anchored[1] is not None:
        seen = unpaired_interval(anchored[0], anchored[1], 1 - rule.error)
    control = max(controls, key=lambda one: abs(one.effect), default=None)
    effects = [*quiet, *(abs(one.effect) for one in controls)]
    stated = math.log1p(rule.min_effect)
    return Evidence(
        *key_of(new),
        new.case_digest,
        arm,
        new_arm,
        min(len(side.numbers) if side else 0 for side in (arms.get(arm), new_arms.get(new_arm))),
        seen.clusters,
        1,
        spread(arms[arm].call_ns) if arm in arms else None,
        spread(new_arms[new_arm].call_ns) if new_arm in new_arms else None,
        seen,
        control,
        stated,
        max(stated, float(np.quantile(effects, 0.975))) if effects else stated,
        seen.p,
        spark(new_arms[new_arm].call_ns) if new_arm in new_arms else "",
        barred,
        detail,
        interleaved=False,
    )


def _canary(timing: Timing) -> Rounds | None:
    arms = by_round(timing)
    return next((arms[arm.name] for arm in timing.of(Role.CANARY) if arm.name in arms), None)


def _anchored(timing: Timing, arm: str) -> Floats | None:
    canary, arms = _canary(timing), by_round(timing)
    if canary is None or arm not in arms:
        return None
    return cluster_medians(*round_effects(canary, arms[arm]))


def _control(timing: Timing, rule: Rule) -> Interval | None:
    arms = by_round(timing)
    names = [arm.name for role in (Role.BASELINE, Role.CONTROL) for arm in timing.of(role) if arm.name in arms]
    return interval(*round_effects(arms[names[0]], arms[names[1]]), 1 - rule.error) if len(names) == 2 else None


def _barred(
    base: Timing, new: Timing, arm: str, new_arm: str, controls: list[Interval], rule: Rule
) -> tuple[Reason | None, str]:
    wrong = dict(new.wrong).get(new_arm)
    if wrong is not None:
        return Reason.WRONG_ANSWER, wrong
    for timing, name in ((new, new_arm), (base, arm)):
        if name in dict(timing.failed):
            return Reason.ERRORED, dict(timing.failed)[name]
    if arm in dict(base.wrong):
        return Reason.WRONG_BASELINE, dict(base.wrong)[arm]
    for timing, name, label in ((base, arm, "base"), (new, new_arm, "new")):
        rounds = by_round(timing).get(name)
        count, sets = (len(rounds.numbers), len(set(rounds.sets.tolist()))) if rounds else (0, 0)
        if count < rule.least_rounds or sets < rule.least_sets:
            least = f"{rule.least_rounds} rounds in {rule.least_sets} sets of processes"
            return Reason.FEW_ROUNDS, f"the {label} record has {count} rounds in {sets}; it takes {least}"
    for control in controls:
        if control.excludes_zero and abs(control.effect) > math.log1p(rule.min_effect) / 2:
            return Reason.CONTROL_ARM_MOVED, "two copies of one thing differ within a record"
    return _by_canary(_canary(base), _canary(new))


def _by_canary(base: Rounds | None, new: Rounds | None) -> tuple[Reason | None, str]:
    if base is None or new is None:
        return Reason.CANARY_MISSING, "without a canary in both records, a slower machine looks like slower code"
    levels = [float(np.median(canary.call_ns)) for canary in (base, new)]
    ratio = max(drift(base), drift(new), max(levels) / min(levels))
    if ratio > CANARY_RATIO:
        return Reason.CANARY_DRIFTED, f"fixed work took {ratio:.2f} times as long at one time as at another"
    return None, ""
