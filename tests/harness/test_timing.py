"""Visits are long enough and alike, inputs rotate, rounds are interleaved, and every kind says what it moves."""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_cases
from harness.errors import SubjectMissingError
from harness.kinds import get_kind
from harness.kinds.base import Timed
from harness.subjects.outputs import OutputError, force, poison, take
from harness.subjects.protocol import Answer, PlainArrays
from harness.subjects.reference import Reference
from harness.timing.driver import Watcher, measure, measure_again
from harness.timing.plan import TURNS, ArmLimits, ArmSpec, Plan, arms_of
from harness.timing.process import ArmProcess
from harness.timing.samples import Arm, Role
from harness.timing.visit import OVERHEAD_FACTOR, Operation, least_visit_ns, overhead_ns, visit_in_rounds

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases"


def of(call: Any, **kwargs: Any) -> Timed:
    return Timed(call, lambda *_: None, **kwargs)


def test_a_quick_call_is_repeated_until_a_visit_is_long() -> None:
    numbers: list[int] = []
    output = np.zeros(4)

    def call(number: int) -> Any:
        numbers.append(number)
        return output

    rounds = visit_in_rounds("nothing", lambda: of(call))
    assert len(rounds.round_ns) == 16
    assert rounds.calls > 100
    goal = least_visit_ns()
    assert goal >= OVERHEAD_FACTOR * overhead_ns()
    assert sorted(rounds.round_ns)[8] > goal / 4, "a noisy machine may calibrate too high, not far too low"
    assert numbers == list(range(len(numbers))), "the running number rotates the inputs"


@pytest.mark.parametrize(("seconds", "expected"), [(0.005, 3 + 2 * (2 + 3)), (0.025, 2 + 3)])
def test_a_slow_call_is_made_once_a_visit(seconds: float, expected: int) -> None:
    calls = 0

    def slow(_number: int) -> Any:
        nonlocal calls
        calls += 1
        time.sleep(seconds)
        return np.zeros(1)

    rounds = visit_in_rounds("slow", lambda: of(slow), rounds=3)
    assert rounds.calls == 1
    # Three to warm up, two visits to calibrate, three rounds; each visit is primed. Long calls are warm after one, and
    # say themselves how long they are.
    assert calls == expected
    assert all(1e9 * seconds <= each < 2e9 * seconds for each in rounds.round_ns), "priming is not on the clock"


def test_an_operation_tells_how_many_cores_it_keeps_busy() -> None:
    def busy(_number: int) -> Any:
        return np.full(1, sum(range(300_000)))

    def idle(_number: int) -> Any:
        time.sleep(0.01)
        return np.zeros(1)

    shares = []
    for call in (busy, idle):
        operation = Operation(lambda call=call: of(call))  # type: ignore[misc]  # bound now
        operation.visit(3)
        shares.append(operation.cores)
    assert shares[1] < 0.3 < shares[0] <= 1.2


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system can't keep a process to a core")
def test_an_arm_keeps_all_its_threads_to_a_core() -> None:
    arm = ArmProcess(ArmSpec(Arm("one", Role.CANARY), ""), ArmLimits())
    every = os.sched_getaffinity(0)
    try:
        arm.hello()
        for cores in ({min(every)}, every):
            arm.request("keeping", "keep_to", cores=sorted(cores))
            assert arm.answer() == {}
            threads = [int(path.name) for path in Path(f"/proc/{arm.process.pid}/task").iterdir()]
            assert len(threads) > 1, "the one that watches its parent"
            assert all(os.sched_getaffinity(thread) == cores for thread in threads)
    finally:
        arm.stop()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system can't keep a process to a core")
def test_work_of_one_thread_is_visited_on_one_core_and_prepared_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []
    request = ArmProcess.request

    def noted(process: ArmProcess, doing: str, do: str, seconds: float | None = None, **arguments: Any) -> None:
        asked.append((do, arguments.get("cores", [])))
        request(process, doing, do, seconds, **arguments)

    monkeypatch.setattr(ArmProcess, "request", noted)
    every = sorted(os.sched_getaffinity(0))
    list(measure(a_plan("reference", rounds=4)))
    if len(every) > 1:
        kept = {tuple(cores) for do, cores in asked if do == "keep_to"}
        assert kept == {(every[0],), (every[1],), tuple(every)}, "another core in each of the two sets"
        last: list[int] = []
        for do, cores in asked:
            last = cores if do == "keep_to" else last
            assert do not in ("prepare", "finish") or last in ([], every)
            assert do != "visit" or len(last) == 1
    monkeypatch.setattr("harness.timing.driver.ONE_CORE", -1.0)
    asked.clear()
    list(measure(a_plan("reference", rounds=4)))
    assert "keep_to" not in [do for do, _ in asked], "work of many threads has all cores"


def test_what_builds_on_each_other_begins_anew_before_it_is_full() -> None:
    made: list[list[int]] = []

    def prepare() -> Timed:
        made.append([])

        def call(number: int) -> Any:
            made[-1].append(number)
            return np.zeros(1)

        return of(call, stateful=True, most_calls=8)

    operation = Operation(prepare)
    assert operation.most_calls == 7
    for _ in range(3):
        operation.visit(5)
    assert [len(calls) for calls in made] == [3, 6, 6, 6]
    made.clear()
    operation = Operation(prepare)
    for _ in range(3):
        operation.visit(1)
    assert [len(calls) for calls in made] == [3 + 2 + 2, 2]
    assert all(calls == list(range(len(calls))) for calls in made)


def test_what_was_returned_is_let_go_before_the_next_call() -> None:
    import weakref

    seen: list[Any] = []

    def call(_number: int) -> Any:
        assert not seen or seen[-1]() is None, "a cache could not write in place"
        output = np.zeros(8)
        seen.append(weakref.ref(output))
        return output

    Operation(lambda: of(call)).visit(10)
    assert len(seen) == 14


def test_outputs_are_arrays_and_nothing_behind_them() -> None:
    import mlx.core as mx

    lazy = mx.ones((3,)) + 1
    answer = Answer(PlainArrays(lazy), PlainArrays(np.ones(2)), "causal", None)  # type: ignore[arg-type]
    force(answer)
    taken, plain = take(answer), answer.values
    assert isinstance(plain, PlainArrays)
    assert isinstance(taken.keys.data, np.ndarray)
    assert taken.keys.data.tolist() == [2, 2, 2]
    assert taken.values.data is not plain.data
    nothings: list[Any] = [None, [], (None, 3.0)]
    for nothing in nothings:
        with pytest.raises(OutputError, match="returned no array"):
            force(nothing)
    for odd in ({"a": lazy}, np.ma.ones(3), object()):
        with pytest.raises(OutputError, match="arrays of MLX or NumPy themselves"):
            force(odd)


def test_poison_lies_where_outputs_will() -> None:
    sample = np.zeros(1 << 12)
    poison(sample)
    # The allocator keeps its own books in the first words of what was freed.
    assert max(np.isnan(np.empty(1 << 12)).mean() for _ in range(3)) > 0.9


TIMED = (
    "affine/a-block-of-keys",
    "attention/block-of-a-prompt",
    "donor/lending-costs",
    "kernel/product-of-a-layer",
    "recurrent/layer-of-a-model",
    "ring/decode-on-a-full-ring",
    "ring/layouts-cost",
    "trellis/projection-of-a-batch",
)


@cache
def timed_instances() -> tuple[Instance, ...]:
    return tuple(load_cases([CASES], wanted=lambda ids: {ids[0]}, named=lambda name: name in TIMED))


def test_every_timed_kind_answers_right_and_declares_its_work() -> None:
    operations = Counter[str]()
    for instance in timed_instances():
        for word in instance.case.time:  # type: ignore[attr-defined]
            operation = Operation(partial(get_kind(instance.kind).timed, instance.case, Reference(), word, 1))
            operation.visit(2)
            operation.compare()
            assert operation.compared == 2, instance.id
            work = operation.timed.work
            assert word == "lend" or (work.moved_bytes and work.moved_bytes > 0), instance.id
            operations[f"{instance.kind}:{word}"] += 1
    assert len(operations) == 11


def test_salts_make_other_inputs() -> None:
    instance = next(one for one in timed_instances() if one.case_name == "affine/a-block-of-keys")
    kind, outputs = get_kind("affine"), []
    for salt in (1, 2, 1):
        timed = kind.timed(instance.case, Reference(), "dequantize", salt)
        outputs.append([take(timed.call(number)) for number in range(timed.turns)])
    assert all((one == other).all() for one, other in zip(outputs[0], outputs[2], strict=True))
    assert not any((one == other).all() for one in outputs[0] for other in outputs[1])
    assert len({one.tobytes() for one in outputs[0]}) == len(outputs[0]) == 8


def a_plan(*subjects: str, **changes: Any) -> Plan:
    instance = next(one for one in timed_instances() if one.case_name == "affine/a-block-of-keys")
    return Plan((instance,), arms_of(list(subjects)), **{"rounds": 6, "processes": 2, "seed": 9, **changes})


def test_rounds_visit_every_arm_in_shuffled_order_over_sets_of_processes() -> None:
    steps: list[tuple[int, int]] = []
    plan = a_plan("reference", "mlx")
    timings = list(measure(plan, watcher=Watcher(step=lambda _what, done, total: steps.append((done, total)))))
    assert steps == [(0, 2), (1, 2)]
    assert [timing.operation for timing in timings] == ["quantize", "dequantize"]
    for timing in timings:
        assert not timing.wrong
        assert [arm.role for arm in timing.arms] == [Role.BASELINE, Role.CONTROL, Role.CANDIDATE, Role.CANARY]
        assert timing.overhead_ns > 0
        assert timing.moved_bytes
        for number in range(6):
            own = [visit for visit in timing.visits if visit.round == number]
            assert {visit.arm for visit in own} == {arm.name for arm in timing.arms}
            assert {visit.process for visit in own} == {number // 3}
            turns = {visit.turn for visit in own}
            assert turns == set(range(len(turns)))
            assert 1 <= len(turns) <= TURNS
            for turn in turns:
                visits = [visit for visit in own if visit.turn == turn]
                assert {visit.arm for visit in visits} == {arm.name for arm in timing.arms}
                assert [visit.position for visit in visits] == [0, 1, 2, 3]
        orders = {tuple(v.arm for v in timing.visits if (v.round, v.turn) == (number, 0)) for number in range(6)}
        assert len(orders) > 2
        assert len({tuple(v.arm for v in timing.visits if (v.round, v.turn) == (0, turn)) for turn in turns}) > 1


def test_turns_are_as_many_as_asked_for_unless_visits_are_long() -> None:
    (timing, *_) = measure(a_plan("reference", rounds=4, turns=3))
    assert {visit.turn for visit in timing.visits} == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_another_session_has_another_order_and_only_what_is_wanted() -> None:
    plan = a_plan("reference", rounds=4)
    first, *_ = measure(plan)
    (again,) = measure_again(plan, [(first.instance, "quantize", False)])
    assert (first.operation, again.operation) == ("quantize", "quantize")
    assert [visit.arm for visit in again.visits] != [visit.arm for visit in first.visits]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_kind_that_a_subject_lacks_is_no_arm() -> None:
    instance = next(one for one in timed_instances() if one.kind == "ring")
    notes: list[str] = []
    watcher = Watcher(note=notes.append)
    plan = Plan((instance,), arms_of(["reference", "mlx"]), rounds=3, processes=3)
    (timing,) = measure(plan, watcher=watcher)
    assert {arm.name for arm in timing.arms} == {"reference", "reference again", "canary"}
    assert notes[0].endswith("mlx can't: does not offer kind ring")


def test_a_subject_that_does_not_load_is_an_error_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise RuntimeError('no such luck')\n")
    with pytest.raises(SubjectMissingError, match="no such luck"):
        list(measure(a_plan(f"{path}:Mine")))
