"""Records of timings: nothing is lost on the way to a file and back, and two of them are compared with care."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RecordError
from harness.regress_records import MachinesDifferError, compare_records, same_machine
from harness.timing.record import (
    MACHINE_KEYS,
    TimingRecord,
    TimingWriter,
    different,
    from_json,
    machine_slug,
    merged,
    quiet_effects,
    read_timing_record,
    to_json,
)
from harness.timing.samples import Arm, Role, Timing, Visit
from harness.verdict import Call, Reason
from tests.bench.verdict_simulation import QUIET, Machine, sample

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = {"chip": "Apple M4 Max", "cores": 16, "memory_gib": 64, "system": "Darwin 25", "mlx": "0.32.4"}
STILL = Machine("still", drift=0.0, jitter=0.0005, spikes=0.0, steps=0.0, bias=0.0005)
ARMS = (
    Arm("a", Role.BASELINE, "what it is"),
    Arm("a#", Role.CONTROL),
    Arm('é "|"', Role.CANDIDATE),
    Arm("canary", Role.CANARY),
)

counts = st.integers(0, 2**53)
timings = st.builds(
    Timing,
    st.text(),
    st.text(),
    st.text(),
    st.booleans(),
    st.just(ARMS),
    st.lists(st.builds(Visit, st.sampled_from([arm.name for arm in ARMS]), *[counts] * 6)).map(tuple),
    counts,
    counts,
    st.none() | counts,
    st.none() | counts,
    st.lists(st.tuples(st.text(), st.text())).map(tuple),
)


@given(timings)
def test_a_timing_survives_json(timing: Timing) -> None:
    assert from_json(json.loads(json.dumps(to_json(timing)))) == timing


def test_a_record_without_turns_is_one_of_one_turn_a_round() -> None:
    line = to_json(drawn())
    del line["visits"]["turn"]
    assert from_json(line) == drawn()


def drawn(change: float = 0.0, seed: int = 1, machine: Machine = STILL, name: str = "ring/x[n=1]") -> Timing:
    return sample(machine, np.random.default_rng(seed), change, rounds=16, sets=4, name=name)


def slower(timing: Timing, factor: float, arms: set[str]) -> Timing:
    visits = (replace(v, took_ns=int(v.took_ns * factor)) if v.arm in arms else v for v in timing.visits)
    return replace(timing, visits=tuple(visits))


ALL = {"base", "base again", "new", "canary"}


def record(*timings: Timing, **machine: Any) -> TimingRecord:
    return TimingRecord({"fingerprint": {**MACHINE, **machine}}, [(0, timing) for timing in timings])


def test_a_record_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "time.jsonl"
    first, second, third = drawn(seed=1), drawn(seed=2), drawn(seed=3, name="ring/y")
    writer = TimingWriter.create(path, {"fingerprint": MACHINE})
    writer.timing(first)
    writer.timing(third, session=1)
    writer.close(None)
    with path.open("ab") as file:
        file.write(b'{"id":"ring/z","dig')
    assert read_timing_record(path).footer is None
    again = TimingWriter.resume(path)
    again.timing(second)
    again.close({"timed": 2})
    found = read_timing_record(path)
    assert found.fingerprint == MACHINE
    assert found.footer is not None
    assert found.timings(0) == {("ring/x[n=1]", "work", False): merged(first, second)}
    assert found.timings(1) == {("ring/y", "work", False): third}


def test_other_files_are_left_alone_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"assay_record":1}\n', encoding="utf-8")
    with pytest.raises(RecordError, match="no record of ours"):
        TimingWriter.create(path, {})
    with pytest.raises(RecordError, match=r"other\.jsonl:1: is no record.*assay time --record"):
        read_timing_record(path)
    line = to_json(drawn())
    line["visits"]["round"].pop()
    path.write_text('{"assay_timing":1}\n' + json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"other\.jsonl:2: is no timing"):
        read_timing_record(path)
    path.write_text('{"assay_timing":9}\n', encoding="utf-8")
    with pytest.raises(RecordError, match="version 9"):
        read_timing_record(path)


def test_machines_differ_by_what_times_depend_on() -> None:
    assert not different(MACHINE, {**MACHINE, "python": "3.13.1"})
    for key in MACHINE_KEYS:
        assert different(MACHINE, {**MACHINE, key: "else"}), key
        assert machine_slug(MACHINE) != machine_slug({**MACHINE, key: "else"})
    assert machine_slug(MACHINE).startswith("apple-m4-max-16-64gib-")
    with pytest.raises(MachinesDifferError, match="switches: unknown and MLX_ENABLE_TF32=0") as raised:
        same_machine(record(), record(switches="MLX_ENABLE_TF32=0"), ("a.jsonl", "b.jsonl"))
    assert raised.value.exit_code == 4
    assert "--across-machines" in str(raised.value)


def test_records_are_compared_by_their_canaries() -> None:
    base = record(drawn(seed=1))
    (arm, candidate) = compare_records(base, record(slower(drawn(seed=2), 1.2, ALL))).verdicts
    assert {arm.call, candidate.call} == {Call.SAME}, "the whole machine was slower"
    (arm, candidate) = compare_records(base, record(slower(drawn(seed=2), 1.2, {"new"}))).verdicts
    assert (arm.call, candidate.call) == (Call.SAME, Call.SLOWER)
    assert candidate.evidence.interval.effect == pytest.approx(math.log(1.2), abs=0.01)
    assert not candidate.is_regression, "one session is not enough"
    assert not candidate.evidence.interleaved


def test_only_a_second_session_makes_it_a_regression() -> None:
    base, new = record(drawn(seed=1)), record(slower(drawn(seed=2), 1.2, {"new"}))
    (_, held) = compare_records(base, new, again=record(slower(drawn(seed=3), 1.2, {"new"}))).verdicts
    assert held.is_regression
    (_, gone) = compare_records(base, new, again=record(drawn(seed=3))).verdicts
    assert (gone.call, gone.reason, gone.is_regression) == (Call.AMBIGUOUS, Reason.UNCONFIRMED, False)


def test_apart_a_small_change_says_nothing() -> None:
    base = record(drawn(seed=1))
    (_, candidate) = compare_records(base, record(slower(drawn(seed=2), 1.06, {"new"}))).verdicts
    assert candidate.call is Call.SAME
    (_, candidate) = compare_records(base, record(slower(drawn(seed=2), 1.06, {"new"})), min_effect=0.03).verdicts
    assert candidate.call is Call.SLOWER


def reasons(base: Timing, new: Timing) -> list[Reason]:
    return [verdict.reason for verdict in compare_records(record(base), record(new)).verdicts]


def test_reasons_for_having_no_verdict() -> None:
    one, two = drawn(seed=1), drawn(seed=2)
    assert reasons(one, slower(two, 1.5, ALL)) == [Reason.CANARY_DRIFTED] * 2
    assert reasons(one, slower(two, 1.2, {"base again"})) == [Reason.CONTROL_ARM_MOVED] * 2
    assert reasons(one, replace(two, visits=tuple(v for v in two.visits if v.round < 15))) == [Reason.FEW_ROUNDS] * 2
    bare = replace(two, visits=tuple(v for v in two.visits if v.arm != "canary"))
    assert reasons(one, bare) == [Reason.CANARY_MISSING] * 2
    wrong = replace(two, wrong=(("new", "differs"),), visits=tuple(v for v in two.visits if v.arm != "new"))
    assert reasons(one, wrong) == [Reason.CLEAR, Reason.WRONG_ANSWER]
    assert reasons(wrong, one) == [Reason.CLEAR, Reason.WRONG_BASELINE]


def test_what_is_not_the_same_work_is_listed() -> None:
    base = record(drawn(name="a"), drawn(name="b"), drawn(name="c"))
    new = record(replace(drawn(name="a"), case_digest="1"), drawn(name="c"), drawn(name="d"))
    done = compare_records(base, new)
    assert {verdict.evidence.instance for verdict in done.verdicts} == {"c"}
    assert done.left_out == [
        ("a work", "the case itself has changed"),
        ("b work", "is in one of the records only"),
        ("d work", "is in one of the records only"),
    ]


def test_stored_runs_tell_what_this_machine_makes_of_no_change() -> None:
    moved = record(slower(drawn(machine=QUIET), 1.07, {"base again"}))
    moved.parts.append((1, slower(drawn(seed=9), 1.02, {"base again"})))
    found = quiet_effects([moved])
    assert list(found) == [("ring/x", "work")]
    assert found["ring/x", "work"] == pytest.approx([math.log(1.07), math.log(1.02)], abs=0.01)
