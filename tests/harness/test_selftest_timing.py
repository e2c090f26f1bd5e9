"""The selftest counts what verdicts say of nothing and of planted delays, keeps its samples, and goes on with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.errors import RecordError
from harness.report.selftest import markdown
from harness.selftest_timing import SAME_ARMS, Settings, calibrate, run
from harness.timing import planted
from harness.timing.samples import Timing, Visit
from harness.verdict import Call
from tests.bench.verdict_simulation import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.timing.plan import Plan
    from harness.timing.record import Key

STILL = Machine("still", drift=0.0, jitter=0.001, spikes=0.0, steps=0.0, bias=0.001)
LOOPS = {0.0: 1000, 0.05: 1050, 0.10: 1100}


def measuring(plan: Plan, asked: list[int]) -> Any:
    """Draw samples in which an arm takes as long as it was told to count."""
    rng = np.random.default_rng(plan.seed)

    def measure(wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
        del part
        asked.append(session)
        specs = plan.all_arms()
        for instance in plan.instances:
            if wanted is not None and (instance.id, "dequantize", False) not in wanted:
                continue
            visits = []
            for number in range(rounds):
                noise = STILL.course(rng, len(specs))
                for place, spec in enumerate(specs):
                    loops = int(dict(spec.environment).get(planted.LOOPS_VARIABLE, "1000"))
                    took = int(1000 * loops * np.exp(noise[place]))
                    visits.append(Visit(spec.arm.name, number, number, place, 1, took))
            arms = tuple(spec.arm for spec in specs)
            yield Timing(instance.id, instance.digest, "dequantize", False, arms, tuple(visits), 100, plan.seed)

    return measure


def test_it_counts_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.selftest_timing.calibrate", lambda _instance: LOOPS)
    monkeypatch.setattr("harness.selftest_timing.CHUNK", 2)
    settings = Settings(sorts=5)
    asked: list[int] = []
    found = run(settings, tmp_path, note=lambda _text: None, measure=lambda plan: measuring(plan, asked))
    assert [count.compared for count in found.counts] == [5 * SAME_ARMS, 5, 5]
    nothing, five, ten = found.counts
    assert [look[Call.SAME] for look in nothing.looks] == [5 * SAME_ARMS] * 3
    assert five.last[Call.SLOWER] == ten.last[Call.SLOWER] == 5
    assert five.alarms == {"pytest-benchmark median:5%": five.alarms["pytest-benchmark median:5%"],
                           "pytest-benchmark median:10%": 0}  # fmt: skip
    assert ten.alarms["pytest-benchmark median:5%"] == 5
    assert ten.ratios == pytest.approx([1.1] * 5, abs=0.005)
    assert asked == [0, 0, 0], "planted delays are not confirmed"
    (tmp_path / "001.jsonl").unlink()
    again = run(settings, tmp_path, note=lambda _text: None, measure=lambda plan: measuring(plan, asked))
    assert (again.resumed, again.chunks) == (2, 3)
    assert asked == [0] * 4
    assert [count.compared for count in again.counts] == [5 * SAME_ARMS, 5, 5]
    with pytest.raises(RecordError, match="another selftest"):
        run(replace(settings, sets=8), tmp_path, note=lambda _text: None, measure=lambda plan: measuring(plan, asked))
    text = markdown(again, settings, {"chip": "M4"})
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[4][:3]] == ["+10 %", "5", "100.0 %"]
    assert "100.0 % / 100.0 % / 100.0 %" in rows[4][6]
    assert "chip M4" in text


def test_what_a_later_look_settles_counts_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.selftest_timing.calibrate", lambda _instance: LOOPS)

    def measure(plan: Plan) -> Any:
        honest = measuring(plan, [])

        def rough_at_first(wanted: Sequence[Key] | None, **how: Any) -> Iterator[Timing]:
            # Too many rounds for the trimming of one look, and few enough for that of two.
            off = {0: 1.5, 1: 1 / 1.5} if how["part"] == 0 else {}
            for timing in honest(wanted, **how):
                yield replace(timing, visits=tuple(
                    replace(v, took_ns=int(v.took_ns * off.get(v.round % 4, 1.0))) if v.arm == "slower 0.05" else v
                    for v in timing.visits
                ))  # fmt: skip

        return rough_at_first

    _, five, _ = run(Settings(sorts=2), tmp_path, note=lambda _text: None, measure=measure).counts
    assert [look[Call.SLOWER] for look in five.looks] == [0, 2, 2]
    assert [look[Call.AMBIGUOUS] for look in five.looks] == [2, 0, 0]


def test_a_false_alarm_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.selftest_timing.calibrate", lambda _instance: LOOPS)
    asked: list[int] = []

    def measure(plan: Plan) -> Any:
        honest = measuring(plan, asked)

        def lying(wanted: Sequence[Key] | None, **how: Any) -> Iterator[Timing]:
            for timing in honest(wanted, **how):
                slow = 1.2 if how["session"] == 0 else 1.0
                visits = (replace(v, took_ns=int(v.took_ns * slow)) if v.arm == "same 1" else v for v in timing.visits)
                yield replace(timing, visits=tuple(visits))

        return lying

    found = run(Settings(sorts=2), tmp_path, note=lambda _text: None, measure=measure)
    assert found.counts[0].last[Call.SLOWER] == 2
    assert found.counts[0].confirmed == 0
    assert asked == [0, 1]


def test_delays_are_shares_of_the_whole_call(tmp_path: Path) -> None:
    from harness.selftest_timing import _instances

    loops = calibrate(_instances(tmp_path, range(1))[0])
    assert loops[0.0] > 1000
    assert 0.05 < loops[0.05] / loops[0.0] - 1 < 0.10, "what is not counting gets its share as well"
    assert loops[0.10] - loops[0.0] == pytest.approx(2 * (loops[0.05] - loops[0.0]), abs=2)
