"""Verdicts, the reasons for having none, looks, parts of sessions, and what only two sessions together may say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from harness.regress import decide, examine
from harness.regress_session import Context, in_looks, judge, with_confirmation
from harness.timing.record import key_of, merged
from harness.timing.samples import Role
from harness.verdict import DEFAULT_RULE, Call, Reason, Rule
from tests.bench.verdict_simulation import QUIET, ROUGH, SHARED, Machine, Simulated, sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.timing.record import Key
    from harness.timing.samples import Timing

STILL = Machine("still", drift=0.0, jitter=0.0005, spikes=0.0, steps=0.0, bias=0.0005)


def drawn(change: float, machine: Machine = STILL, *, rounds: int = 16, sets: int = 16, seed: int = 1) -> Timing:
    return sample(machine, np.random.default_rng(seed), change, rounds=rounds, sets=sets)


def scaled(timing: Timing, arm: str, factor: float, *, rounds: range = range(1000)) -> Timing:
    visits = [
        replace(v, took_ns=int(v.took_ns * factor)) if v.arm == arm and v.round in rounds else v for v in timing.visits
    ]
    return replace(timing, visits=tuple(visits))


def verdict(timing: Timing, **how: object) -> tuple[Call, Reason]:
    (found,) = decide(examine(timing, **how))  # type: ignore[arg-type]
    return found.call, found.reason


def test_a_clear_change_in_either_direction_and_none() -> None:
    assert verdict(drawn(0.05)) == (Call.SLOWER, Reason.CLEAR)
    assert verdict(drawn(-0.05)) == (Call.FASTER, Reason.CLEAR)
    assert verdict(drawn(0.0)) == (Call.SAME, Reason.CLEAR)


def test_a_certain_change_below_the_floor_is_the_same() -> None:
    (one,) = examine(drawn(0.02))
    assert one.interval.excludes_zero
    assert verdict(drawn(0.02)) == (Call.SAME, Reason.CLEAR)
    assert verdict(drawn(0.02), rule=Rule(min_effect=0.01)) == (Call.SLOWER, Reason.CLEAR)


def test_what_the_baseline_does_to_itself_raises_the_floor() -> None:
    assert verdict(drawn(0.05), quiet_effects=[0.001, 0.08]) == (Call.AMBIGUOUS, Reason.WIDE_INTERVAL)
    (one,) = examine(drawn(0.05), quiet_effects=[0.0] * 79 + [0.5])
    assert one.floor == pytest.approx(math.log1p(0.03)), "one in eighty is beyond the 97.5th percentile"


def test_few_rounds_or_few_sets_say_nothing() -> None:
    assert verdict(drawn(0.5, rounds=15, sets=15)) == (Call.AMBIGUOUS, Reason.FEW_ROUNDS)
    assert verdict(drawn(0.5, rounds=16, sets=3)) == (Call.AMBIGUOUS, Reason.FEW_ROUNDS)
    assert verdict(drawn(0.5, rounds=16, sets=4)) == (Call.SLOWER, Reason.CLEAR)


def test_noise_is_no_verdict() -> None:
    assert verdict(drawn(0.05, ROUGH, sets=4)) == (Call.AMBIGUOUS, Reason.WIDE_INTERVAL)


def test_no_verdict_where_two_copies_of_the_baseline_differ() -> None:
    for change in (-0.08, 0.0, 0.08):
        assert verdict(scaled(drawn(change), "base again", 1.03)) == (Call.AMBIGUOUS, Reason.CONTROL_ARM_MOVED)
    assert verdict(scaled(drawn(0.08), "base again", 1.01)) == (Call.SLOWER, Reason.CLEAR)
    assert verdict(scaled(drawn(0.5), "base again", 1.03)) == (Call.SLOWER, Reason.CLEAR), "that is not noise"
    assert verdict(scaled(drawn(0.5), "base again", 1.2)) == (Call.AMBIGUOUS, Reason.CONTROL_ARM_MOVED)
    alone = drawn(0.5)
    without = replace(alone, arms=tuple(arm for arm in alone.arms if arm.role is not Role.CONTROL))
    assert verdict(without) == (Call.AMBIGUOUS, Reason.CONTROL_ARM_MISSING)


def test_no_verdict_where_fixed_work_got_slower_on_the_way() -> None:
    assert verdict(scaled(drawn(0.5), "canary", 2.8, rounds=range(11, 16))) == (
        Call.AMBIGUOUS,
        Reason.CANARY_DRIFTED,
    )
    assert verdict(scaled(drawn(0.5), "canary", 2.8)) == (Call.SLOWER, Reason.CLEAR)
    assert verdict(scaled(drawn(0.5), "canary", 2.2, rounds=range(11, 16))) == (Call.SLOWER, Reason.CLEAR)


def test_no_verdict_on_the_clock_itself() -> None:
    visit_ns = 1_000_000
    assert verdict(replace(drawn(0.5), overhead_ns=visit_ns // 8)) == (Call.AMBIGUOUS, Reason.BELOW_OVERHEAD)
    many = drawn(0.5)
    many = replace(many, visits=tuple(replace(v, calls=100) for v in many.visits), overhead_ns=visit_ns // 100)
    assert verdict(many) == (Call.AMBIGUOUS, Reason.BELOW_OVERHEAD), "a synchronized call is all synchronization"
    assert verdict(replace(many, amortized=True)) == (Call.SLOWER, Reason.CLEAR)


def test_no_verdict_on_wrong_answers_and_impossible_times() -> None:
    wrong = replace(drawn(-0.5), wrong=(("new", "differs in row 3"),))
    (found,) = decide(examine(wrong))
    assert (found.call, found.reason, found.detail) == (Call.AMBIGUOUS, Reason.WRONG_ANSWER, "new: differs in row 3")
    assert verdict(replace(drawn(0.5), wrong=(("base", "x"),))) == (Call.AMBIGUOUS, Reason.WRONG_BASELINE)
    assert verdict(drawn(-0.5), impossible="140 % of what memory can do") == (Call.AMBIGUOUS, Reason.IMPOSSIBLE)


def test_each_look_has_its_own_share_of_the_error() -> None:
    timing = drawn(0.05, SHARED)
    first, second = (examine(timing, look=look)[0] for look in (1, 2))
    assert second.interval.high - second.interval.low > first.interval.high - first.interval.low
    assert first.p == pytest.approx(first.interval.p * 0.01 / 0.007)
    assert second.p == pytest.approx(second.interval.p * 0.01 / 0.0015)
    assert DEFAULT_RULE.error == pytest.approx(0.01)


def test_among_many_comparisons_a_doubtful_one_does_not_count() -> None:
    machine = Machine("some", drift=0.0, jitter=0.05, spikes=0.0, steps=0.0, bias=0.0)
    alone = next(t for s in range(200) if 0.002 < examine(t := drawn(0.06, machine, seed=s))[0].p < 0.01)
    assert verdict(alone) == (Call.SLOWER, Reason.CLEAR)
    report = [*examine(alone), *(one for seed in range(40) for one in examine(drawn(0.0, machine, seed=seed)))]
    assert decide(report)[0].reason is Reason.MANY_COMPARED


def test_parts_of_a_session_count_on_and_a_wrong_answer_in_any_part_is_one() -> None:
    first, more = drawn(0.0, rounds=16, sets=4), drawn(0.0, rounds=8, sets=2, seed=2)
    both = merged(first, more)
    assert len({(v.arm, v.round) for v in both.visits}) == 24 * 4
    assert {v.process for v in both.visits} == set(range(6))
    assert both.visits[: len(first.visits)] == first.visits
    wrong = merged(first, replace(more, visits=(), wrong=(("new", "wrong now"),)))
    assert dict(wrong.wrong) == {"new": "wrong now"}
    assert "new" not in {visit.arm for visit in wrong.visits}
    with pytest.raises(ValueError, match="different work"):
        merged(first, replace(more, case_digest="1"))


class Counted(Simulated):
    """Notes what was asked for."""

    def __call__(self, wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
        asked.append((None if wanted is None else [key[0] for key in wanted], session, part))
        yield from super().__call__(wanted, rounds=rounds, session=session, part=part)


asked: list[tuple[list[str] | None, int, int]] = []


def test_only_what_is_ambiguous_is_looked_at_again_and_only_what_is_slower_is_confirmed() -> None:
    asked.clear()
    kept: list[tuple[str, int, int]] = []

    def keep(timing: Timing, session: int, part: int) -> None:
        kept.append((timing.instance, session, part))

    measure = Counted(QUIET, np.random.default_rng(2), [0.0, 0.2, 0.027])
    done = with_confirmation(measure, Context(kept=keep))
    assert [v.call for v in done.verdicts][:2] == [Call.SAME, Call.SLOWER]
    assert done.verdicts[1].is_regression
    assert asked[0] == (None, 0, 0)
    assert (["work[n=2]"], 0, 1) in asked, "2.7 % on a floor of 3 % takes more rounds"
    assert (["work[n=1]"], 1, 0) in asked
    assert all("work[n=0]" not in (names or []) for names, _, _ in asked)
    assert len(kept) == 3 + sum(len(names or []) for names, _, _ in asked)
    by_instance = {timing.instance: timing for timing in done.timings}
    assert len({v.round for v in by_instance["work[n=0]"].visits}) == 16
    assert len({v.round for v in by_instance["work[n=2]"].visits}) > 16


def test_looks_end() -> None:
    asked.clear()
    done = in_looks(Counted(ROUGH, np.random.default_rng(4), [0.05]), Context())
    assert [part for _, _, part in asked] == [0, 1, 2]
    assert done.verdicts[0].evidence.rounds == DEFAULT_RULE.most_rounds


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_no_look_is_begun_that_takes_longer_than_allowed(seconds: float) -> None:
    asked.clear()
    notes: list[str] = []
    context = Context(seconds=seconds, note=notes.append)
    done = in_looks(Counted(ROUGH, np.random.default_rng(4), [0.05]), context)
    assert len(asked) == (3 if seconds else 1)
    assert done.verdicts[0].evidence.rounds == 16 * len(asked)
    assert ("leaves no time" in notes[0]) == (not seconds)


def test_what_can_never_be_told_is_not_measured_again() -> None:
    asked.clear()
    in_looks(Counted(QUIET, np.random.default_rng(4), [0.05]), Context(impossible=lambda _: "faster than memory"))
    assert len(asked) == 1


def test_stored_quiet_effects_are_those_of_the_case_and_operation() -> None:
    timing = replace(drawn(0.05), instance="ring/decode[rows=1]", operation="append")
    looks = {key_of(timing): 1}
    for key, call in ((("ring/decode", "append"), Call.AMBIGUOUS), (("ring/decode", "attention"), Call.SLOWER)):
        (found,) = judge([timing], looks, Context(quiet_effects={key: [0.1]}))
        assert found.call is call


def test_visits_of_arms_need_not_have_as_many_calls() -> None:
    timing = drawn(0.0)
    visits = tuple(replace(v, calls=3, took_ns=v.took_ns * 3) if v.arm == "new" else v for v in timing.visits)
    assert verdict(replace(timing, visits=visits)) == (Call.SAME, Reason.CLEAR)
