"""From measuring to verdicts: look, look again where nothing can be said yet, confirm what got slower."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from harness.regress import decide, examine
from harness.timing.record import key_of, merged
from harness.verdict import DEFAULT_RULE, Call, Reason, Rule, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from harness.timing.record import Key
    from harness.timing.samples import Timing


class Measure(Protocol):
    """Measures what is wanted (None: everything) for some rounds, in fresh processes.

    session 0 is the first and what adds to it, 1 the independent one that confirms; part counts the parts of a
    session. Both belong into the seed. Every timing is yielded as soon as it is known.
    """

    def __call__(self, wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterable[Timing]:
        """Yield the timings."""


@dataclass(frozen=True)
class Context:
    """What judging needs beside the samples.

    quiet_effects: |log ratio| of control and baseline in stored runs on such a machine, by case and operation.
    slowdowns: the least change that counts, of cases that say so themselves (`limits.slowdown`).
    impossible: says why a timing can't be true, "" where it can. kept: is told every part of a session as it comes.
    seconds: measuring may take in a session; a further look that would take longer is not begun.
    """

    rule: Rule = DEFAULT_RULE
    quiet_effects: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    impossible: Callable[[Timing], str] = lambda _timing: ""
    seconds: float = math.inf
    kept: Callable[[Timing, int, int], None] = lambda _timing, _session, _part: None
    note: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True)
class Judged:
    """The verdicts of a report and the samples of its first session."""

    verdicts: list[Verdict]
    timings: list[Timing]


def case_of(instance: str) -> str:
    """Return the name of an instance's case."""
    return instance.partition("[")[0]


def judge(timings: Iterable[Timing], looks: Mapping[Key, int], context: Context) -> list[Verdict]:
    """Return the verdicts on all candidates of a report; looks: how often each was looked at, at least once."""
    evidence = []
    for timing in timings:
        case = case_of(timing.instance)
        quiet = context.quiet_effects.get((case, timing.operation), ())
        rule = replace(context.rule, min_effect=max(context.rule.min_effect, context.slowdowns.get(case, 0.0)))
        look = looks.get(key_of(timing), 1)
        evidence += examine(timing, rule, look=look, quiet_effects=quiet, impossible=context.impossible(timing))
    return decide(evidence, context.rule)


def in_looks(measure: Measure, context: Context, *, wanted: Sequence[Key] | None = None, session: int = 0) -> Judged:
    """Measure, judge, and measure more of what is ambiguous, until the rule's looks are spent."""
    timings: dict[Key, Timing] = {}
    looks: dict[Key, int] = {}
    verdicts: list[Verdict] = []
    begun, each_s = time.monotonic(), 0.0
    for part in range(len(context.rule.spent)):
        for timing in measure(wanted, rounds=context.rule.least_rounds, session=session, part=part):
            context.kept(timing, session, part)
            key = key_of(timing)
            timings[key] = merged(timings[key], timing) if key in timings else timing
            looks[key] = looks.get(key, 0) + 1
        verdicts = judge(timings.values(), looks, context)
        wanted = _unsettled(verdicts)
        if not wanted or part + 1 == len(context.rule.spent):
            break
        spent_s = time.monotonic() - begun
        each_s = each_s or spent_s / len(timings)
        if spent_s + len(wanted) * each_s > context.seconds:
            context.note(f"{len(wanted)} can't be told apart yet, and `--minutes` leaves no time to look at them again")
            break
        context.note(f"{len(wanted)} can't be told apart yet: {context.rule.least_rounds} more rounds of these")
    return Judged(verdicts, list(timings.values()))


def _unsettled(verdicts: Iterable[Verdict]) -> list[Key]:
    return list(dict.fromkeys(verdict.evidence.key for verdict in verdicts if verdict.may_pass))


def with_confirmation(measure: Measure, context: Context) -> Judged:
    """Judge, then measure again, in a session of its own, what got slower: only what is slower twice counts."""
    first = in_looks(measure, context)
    slower = list(dict.fromkeys(v.evidence.key for v in first.verdicts if v.call is Call.SLOWER))
    if not slower:
        return first
    context.note(f"{len(slower)} got slower: a second session shows whether that holds")
    again = in_looks(measure, context, wanted=slower, session=1)
    return Judged(confirmed(first.verdicts, again.verdicts), first.timings)


def confirmed(first: Sequence[Verdict], again: Sequence[Verdict]) -> list[Verdict]:
    """Return the first verdicts, those of SLOWER marked with what an independent session says."""
    second = {(*verdict.evidence.key, verdict.evidence.candidate): verdict for verdict in again}
    return list(_confirmed(first, second))


def _confirmed(first: Sequence[Verdict], second: Mapping[tuple[str, str, bool, str], Verdict]) -> Iterator[Verdict]:
    for verdict in first:
        other = second.get((*verdict.evidence.key, verdict.evidence.candidate))
        if verdict.call is not Call.SLOWER or other is None:
            yield verdict
        elif other.call is Call.SLOWER:
            yield replace(verdict, confirmed=True)
        elif other.reason is Reason.WRONG_ANSWER:
            yield replace(other, confirmed=False)
        else:
            detail = f"a second session says {other.call}"
            yield replace(verdict, call=Call.AMBIGUOUS, reason=Reason.UNCONFIRMED, detail=detail, confirmed=False)
