"""`--benchmark-gate`: an item fails by what two sessions agree on, judged by the limit of its own case."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_cases
from harness.case.model import Limits
from harness.errors import NothingRanError
from harness.fingerprint import fingerprint
from harness.pytest_gate import Gate
from harness.timing.baselines import baseline_path, read_baseline
from harness.timing.record import TimingWriter
from tests.bench.verdict_simulation import Machine, sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from harness.timing.record import Key
    from harness.timing.samples import Timing

STILL = Machine("still", drift=0.0, jitter=0.0005, spikes=0.0, steps=0.0, bias=0.0005)
BASE = 0


@dataclass(frozen=True)
class FakeCase:
    limits: Limits


@dataclass(frozen=True)
class FakeInstance:
    id: str
    case_name: str
    case: FakeCase


def drawn(name: str, change: float, seed: int) -> Timing:
    """Change baseline and control together: they are the subject, as it is now."""
    timing = sample(STILL, np.random.default_rng(seed), 0.0, rounds=16, sets=8, name=name)
    factor = {"base": 1 + change, "base again": 1 + change}
    visits = tuple(
        type(v)(v.arm, v.process, v.round, v.position, v.calls, int(v.took_ns * factor.get(v.arm, 1.0)))
        for v in timing.visits
        if v.arm != "new"
    )
    return type(timing)(**{**vars(timing), "visits": visits, "arms": tuple(a for a in timing.arms if a.name != "new")})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    writer = TimingWriter.create(baseline_path(tmp_path, fingerprint(), "mine"), {"fingerprint": fingerprint()})
    for name in ("ring/a", "ring/b"):
        writer.timing(drawn(name, 0.0, 1))
    writer.close({})
    return tmp_path


def lines(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[int, dict[str, float]],
    wanted: str,
    slowdown: float | None = None,
) -> tuple[list[str], list[str], list[tuple[Any, int]]]:
    asked: list[tuple[Any, int]] = []

    def measuring(plan: Any, *, quiet: bool) -> Any:
        assert quiet
        assert plan.all_arms()[-1].arm.role == "canary"

        def measure(chosen: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
            del rounds, part
            asked.append((chosen, session))
            names = [one.id for one in plan.instances] if chosen is None else [key[0] for key in chosen]
            yield from (drawn(name, changes[session].get(name, 0.0), 10 + session) for name in names)

        return measure

    monkeypatch.setattr("harness.compare_session.measuring", measuring)
    own = FakeCase(Limits(slowdown=slowdown))
    instances: Any = [FakeInstance(name, name, own) for name in ("ring/a", "ring/b", "ring/new")]
    gate = Gate(folder)
    found = gate.lines("mine", instances, wanted)
    gate.lines("mine", instances, "ring/b")
    assert sum(session == 0 for _, session in asked) == 1, "all items are measured once, together"
    return found.slower, found.others, asked


def test_what_two_sessions_call_slower_fails(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slower, _, asked = lines(stored, monkeypatch, {0: {"ring/a": 0.2}, 1: {"ring/a": 0.2}}, "ring/a")
    assert "slower than its baseline by +20" in slower[0]
    assert [session for _, session in asked] == [0, 1]
    assert asked[1][0] == [("ring/a", "work", False)]


def test_what_one_session_calls_slower_is_only_told(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slower, others, _ = lines(stored, monkeypatch, {0: {"ring/a": 0.2}, 1: {}}, "ring/a")
    assert not slower
    assert "AMBIGUOUS" in others[0]


def test_a_case_names_its_own_limit(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {0: {"ring/a": 0.2}, 1: {"ring/a": 0.2}}
    assert not lines(stored, monkeypatch, both, "ring/a", slowdown=0.3)[0]
    small = {0: {"ring/a": 0.06}, 1: {"ring/a": 0.06}}
    assert not lines(stored, monkeypatch, small, "ring/a")[0]
    assert lines(stored, monkeypatch, small, "ring/a", slowdown=0.04)[0]


def test_what_has_no_baseline_is_not_judged(stored: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slower, others, _ = lines(stored, monkeypatch, {0: {"ring/new": 9.0}}, "ring/new")
    assert not slower
    assert others == ["ring/new work: is in one of the records only, so it was not judged"]
    with pytest.raises(NothingRanError, match="assay compare --save-baseline"):
        read_baseline(tmp_path / "nowhere", fingerprint(), "mine")


def test_the_gate_needs_times() -> None:
    command = [sys.executable, "-m", "pytest", "--benchmark-gate=confirmed", "--collect-only", "-q", "-n", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "add --benchmark" in done.stderr


def test_the_key_is_one_of_the_case_format(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    text = "assay: 1\nkind: ring\ntitle: T\nwhy: W\ngiven: {window: 4, head_dim: 64}\nsteps:\n  - append: 7\n"
    path.write_text(text + "check: [visible]\nlimits: {slowdown: 0.2}\n", encoding="utf-8")
    assert load_cases([str(path)])[0].case.limits.slowdown == 0.2
    path.write_text(text + "check: [visible]\nlimits: {slowdown: 0}\n", encoding="utf-8")
    with pytest.raises(Exception, match="must be more than 0"):
        load_cases([str(path)])
