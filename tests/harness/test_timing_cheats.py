"""Subjects that cheat the clock are named as wrong, and the honest way along the same path is not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from harness.case.load import load_file
from harness.kinds import get_kind
from harness.timing.driver import MEMORY_RATIO, Watcher, measure
from harness.timing.machine import Machine
from harness.timing.physical import Bounds, impossible
from harness.timing.plan import Plan, arms_of
from harness.timing.rates import Rates
from harness.timing.samples import Arm, Role, Timing, Visit
from harness.timing.visit import Operation, WrongError, least_visit_ns, visit_in_rounds
from tests.fakes import cheats

if TYPE_CHECKING:
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.subjects.protocol import Subject

CASE = """\
assay: 1
kind: affine
title: t
why: w
given: {{bits: 4, group: 64, dtype: bfloat16, outputs: {outputs}, inputs: 256, data: integers, seed: 3}}
check: [decode]
time: [dequantize]
"""
VISITS, CALLS = 6, 6


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return instance_of(tmp_path, 64)


def instance_of(folder: Path, outputs: int) -> Instance:
    path = folder / "cases" / "affine" / f"rows-{outputs}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CASE.format(outputs=outputs))
    return load_file(path)[0]


def operation(instance: Instance, subject: Subject, *, amortized: bool = False) -> Operation:
    return Operation(partial(get_kind("affine").timed, instance.case, subject, "dequantize", 1), amortized=amortized)


def visited(instance: Instance, subject: Subject, *, amortized: bool = False) -> Operation:
    timed = operation(instance, subject, amortized=amortized)
    for _ in range(VISITS):
        assert timed.visit(CALLS) > 0
    timed.compare()
    return timed


@pytest.mark.parametrize("amortized", [False, True])
@pytest.mark.parametrize("honest", [cheats.Honest, cheats.Evaluates, cheats.FillsAnArray])
def test_honest_ways_are_right(instance: Instance, honest: type[Subject], amortized: bool) -> None:
    assert visited(instance, honest(), amortized=amortized).compared == 2 * VISITS


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (cheats.ReturnsTheFirstOutput, "a timed call was wrong"),
        (cheats.KnowsTheFirstInput, "a timed call was wrong"),
        (cheats.WritesHalf, "a timed call was wrong"),
        (cheats.FillsLater, "a timed call was wrong"),
        (cheats.TiresAfterTheCheck, "a timed call was wrong"),
        (cheats.Promises, "returned a _Promise; a timed call returns arrays"),
        (cheats.ReturnsNothing, "returned no array"),
    ],
)
def test_wrong_outputs_of_timed_calls(instance: Instance, cheat: type[Subject], reason: str) -> None:
    with pytest.raises(WrongError, match=reason):
        visited(instance, cheat())


def test_what_is_not_written_holds_no_earlier_answer(instance: Instance) -> None:
    with pytest.raises(WrongError, match=r"got (nan|-?\d)"):
        visited(instance, cheats.WritesHalf())


def test_promised_work_is_done_on_the_clock(tmp_path: Path) -> None:
    large = instance_of(tmp_path, 2048)
    lazy, eager = (operation(large, one) for one in (cheats.Honest(), cheats.Evaluates()))
    took = [min(one.visit(2) for _ in range(5)) for one in (lazy, eager)]
    assert took[0] > took[1] / 3, "as long as evaluating it, but for noise"


def test_remembered_answers_come_faster_the_second_time(tmp_path: Path) -> None:
    large = instance_of(tmp_path, 2048)
    assert max(operation(large, cheats.Remembers()).remembers() for _ in range(2)) > MEMORY_RATIO
    assert min(operation(large, cheats.Honest()).remembers() for _ in range(3)) < MEMORY_RATIO


def test_answers_computed_ahead_move_impossibly_much(tmp_path: Path) -> None:
    large = instance_of(tmp_path, 4096)
    timings = []
    for subject in (cheats.Honest(), cheats.ComputesAhead()):
        timed = operation(large, subject)
        took = [timed.visit(3) for _ in range(4)]
        timed.compare()
        timings.append(a_timing(took, 3, timed.timed.work.moved_bytes))
    honest, ahead = timings
    assert honest.moved_bytes == 4096 * 256 // 2 + 4096 * 4 * 4 + 4096 * 256 * 2
    # A machine that could just copy twice as fast as the honest subject writes.
    rate = 2 * honest.moved_bytes / min(visit.call_ns for visit in honest.visits) * 1e9
    assert impossible(a_machine(rate), honest) == ""
    assert impossible(a_machine(rate), ahead).startswith("mine: ")
    assert "cached, elided or mis-declared bytes" in impossible(a_machine(rate), ahead)


def a_machine(bytes_s: float) -> Machine:
    rates = Rates(((1 << 20, bytes_s), (1 << 30, bytes_s)), ((1 << 20, bytes_s), (1 << 30, bytes_s)), {"float32": 1e15})
    return Machine({}, "", {}, 50, 5000, rates)


def a_timing(took: list[int], calls: int, moved_bytes: int | None, operations: int | None = None) -> Timing:
    visits = tuple(Visit("mine", number, number, 0, calls, each) for number, each in enumerate(took))
    arms = (Arm("mine", Role.BASELINE), Arm("canary", Role.CANARY))
    return Timing("x", "d", "o", False, arms, visits, 5000, 0, moved_bytes, operations)


def test_bounds_follow_size_and_are_measured_again_before_they_say_no() -> None:
    rates = Rates(((1 << 16, 100e9), (1 << 20, 50e9), (1 << 28, 10e9)), ((1 << 16, 90e9), (1 << 28, 12e9)), {"f": 1e12})
    machine = Machine({}, "", {}, 50, 5000, rates)
    assert machine.copied_s(1 << 17) == 50e9
    assert machine.copied_s(1 << 30) == 10e9
    assert machine.most_moved_s(1 << 28) == 12e9
    assert machine.most_moved_s(1 << 18) == 100e9
    assert machine.most_moved_s(1 << 34) == 12e9
    fast = a_timing([1_000_000] * 4, 1, 30_000_000)  # 30 GB/s of 30 MB
    asked = []

    def again() -> Machine:
        asked.append(1)
        return a_machine(bytes_s=25e9)

    assert impossible(machine, fast)
    bounds = Bounds(machine, again)
    assert bounds(fast) == ""
    assert bounds(a_timing([1_000_000] * 4, 1, 90_000_000)).startswith("mine: 90 GB/s are 360 %")
    assert asked == [1]
    assert "operations" in impossible(machine, a_timing([1000] * 4, 1, None, 2_000_000))
    assert not impossible(machine, a_timing([1000] * 4, 1, None, 1_400_000))


def test_rounds_of_a_cheat_are_not_kept(instance: Instance) -> None:
    prepare = partial(get_kind("affine").timed, instance.case, cheats.ReturnsTheFirstOutput(), "dequantize", 1)
    with pytest.raises(WrongError, match="a timed call was wrong"):
        visit_in_rounds("dequantize", prepare, rounds=4)


def measured(instance: Instance, names: list[str], rounds: int = 4, processes: int = 2) -> tuple[Timing, list[str]]:
    notes: list[str] = []
    subjects = [f"{cheats.__file__}:{name}" for name in names]
    plan = Plan((instance,), arms_of(subjects), rounds=rounds, processes=processes, seed=5)
    (timing,) = measure(plan, watcher=Watcher(note=notes.append))
    return timing, notes


def test_the_driver_names_the_cheat_and_keeps_honest_times(instance: Instance) -> None:
    timing, _ = measured(instance, ["PrintsLines", "WrongAfterTiming", "SleepsInWarmUp"])
    (baseline,), wrong = timing.of(Role.BASELINE), {name.rpartition(":")[2]: why for name, why in timing.wrong}
    assert list(wrong) == ["WrongAfterTiming"]
    assert wrong["WrongAfterTiming"].startswith("was right before timing, not after")
    arms = {visit.arm for visit in timing.visits}
    assert {arm.rpartition(":")[2] for arm in arms} == {"PrintsLines", "PrintsLines again", "SleepsInWarmUp", "canary"}
    assert {visit.round for visit in timing.visits if visit.arm == baseline.name} == {0, 1, 2, 3}
    # What looked long in the warm-up was visited with more calls when it turned out to be short.
    slept = [visit for visit in timing.visits if visit.arm.endswith("SleepsInWarmUp")]
    assert all(visit.took_ns > least_visit_ns() / 4 and visit.calls > 2 for visit in slept)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_cheat_beside_an_honest_baseline(tmp_path: Path) -> None:
    wanted = {
        "Evaluates": "",
        "FillsAnArray": "",
        "ReturnsTheFirstOutput": "a timed call was wrong",
        "KnowsTheFirstInput": "a timed call was wrong",
        "WritesHalf": "a timed call was wrong",
        "Promises": "returned a _Promise",
        "FillsLater": "a timed call was wrong",
        "TiresAfterTheCheck": "a timed call was wrong",
        "WrongAfterTiming": "was right before timing, not after",
        "Remembers": "it remembers answers",
        "Crashes": "ended with exit code 3 while",
    }
    # With so many arms a round has few turns, and the first calls of those that count calls are right.
    timing, _ = measured(instance_of(tmp_path, 2048), ["Honest", *wanted], rounds=8, processes=2)
    # A crash is no wrong answer; its times are worth as little.
    assert [name.rpartition(":")[2] for name, _ in timing.failed] == ["Crashes"]
    wrong = {name.rpartition(":")[2]: why for name, why in (*timing.wrong, *timing.failed)}
    assert {name for name in wanted if wanted[name]} == set(wrong)
    for name, why in wrong.items():
        assert wanted[name] in why, (name, why)
    assert not {visit.arm for visit in timing.visits} & {name for name, _ in (*timing.wrong, *timing.failed)}
