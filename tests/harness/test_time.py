"""`assay time` and `assay machine`: tables, records that are gone on with, rates, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.fingerprint import fingerprint
from harness.timing import machine as machine_module
from harness.timing import rates as rates_module
from harness.timing.machine import Machine, best_of, known_machine
from harness.timing.rates import Rates, measure_rates
from harness.timing.record import read_timing_record

if TYPE_CHECKING:
    from collections.abc import Mapping

ASSAY = [sys.executable, "-m", "metal_assay.command"]
CHEATS = Path(__file__).parents[1] / "fakes" / "cheats.py"
CASE = """\
assay: 1
kind: affine
title: t
why: w
matrix:
  outputs: [32, 64]
given: {bits: 4, group: 64, dtype: bfloat16, inputs: 256, data: integers}
check: [decode]
time: [dequantize]
"""
BY_SIZE = ((1 << 16, 5e10), (1 << 20, 4e10), (1 << 28, 1e10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one case, whose machine was measured already."""
    path = tmp_path / "cases" / "affine" / "rows.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(CASE)
    return tmp_path


def kept_machine(folder: Path, monkeypatch: pytest.MonkeyPatch, **rates: Any) -> Mapping[str, str]:
    """Let a machine be known; return the environment in which it is."""
    monkeypatch.setenv("METAL_ASSAY_CACHE", str(folder / "kept"))
    found = {"copied": BY_SIZE, "read": BY_SIZE, "operations": {"float32": 1e12}, **rates}
    path = machine_module._cache_path()
    path.parent.mkdir()
    about = {"version": 1, "identity": fingerprint(), "device": "d", "backends": {"cpu": "runs"}, "measured": "then"}
    path.write_text(json.dumps({**about, "clock_ns": 40, "overhead_ns": 5000, "rates": found}))
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def assay(folder: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ASSAY, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_table_a_record_and_no_time_of_a_wrong_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = kept_machine(folder, monkeypatch)
    subjects = ("--subject", "mlx", "--subject", f"{CHEATS}:ReturnsTheFirstOutput")
    rounds = ("--rounds", "4", "--processes", "2", "--seed", "3", "--record", "out.jsonl")
    done = assay(folder, environment, "time", *subjects, *rounds, "--select", "*outputs=32*", "-q")
    assert done.returncode == 1, done.stderr
    assert "affine/rows[outputs=32]  dequantize" in done.stdout
    assert "a timed call was wrong" in done.stdout
    assert "1 timings, seed 3; an empty evaluation takes" in done.stdout
    record = read_timing_record(folder / "out.jsonl")
    assert record.header["subjects"] == ["mlx", f"{CHEATS}:ReturnsTheFirstOutput"]
    ((_, timing),) = record.parts
    assert timing.moved_bytes == 32 * 256 // 2 + 32 * 4 * 4 + 32 * 256 * 2
    assert {visit.arm for visit in timing.visits} == {"mlx", "mlx again", "canary"}
    assert record.footer


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_record_is_gone_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = kept_machine(folder, monkeypatch)
    rounds = ("--subject", "mlx", "--rounds", "4", "--processes", "2")
    path = folder / "out.jsonl"
    assert assay(folder, environment, "time", *rounds, "--record", "out.jsonl").returncode == 0
    header, first, *_ = path.read_text().splitlines()
    path.write_text(f"{header}\n{first}\n")
    other = assay(folder, environment, "time", *rounds[:2], "--resume", "out.jsonl")
    assert other.returncode == 2
    assert "was measured otherwise (rounds: 4 and 16; processes: 2 and 8); start a new record" in other.stderr
    done = assay(folder, environment, "time", *rounds, "--resume", "out.jsonl", "--amortized")
    assert done.returncode == 2
    done = assay(folder, environment, "time", *rounds, "--resume", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("dequantize") == 2
    lines = path.read_text().splitlines()
    assert lines[1] == first, "what was finished is kept"
    assert len(read_timing_record(path).parts) == 2


@pytest.mark.slow
@pytest.mark.exhaustive
def test_impossible_times_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crawling = ((1 << 16, 1.0), (1 << 28, 1.0))
    environment = kept_machine(folder, monkeypatch, copied=crawling, read=crawling)
    # A machine of one byte a second is measured again before anything is said, and then all is well.
    done = assay(folder, environment, "time", "--subject", "mlx", "--rounds", "4", "--processes", "2")
    assert done.returncode == 0, done.stdout
    assert known_machine().rates.copied[0][1] > 1e8


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--processes", "8", "--rounds", "4"], 2, "at most one set of processes a round, and there are 4"),
        (["--record", "a", "--resume", "cases/affine/rows.yaml"], 2, "give one of them"),
        (["--select", "*nothing*"], 4, "matches no instance"),
        (["--subject", "nobody"], 2, "no subject 'nobody'"),
    ],
)
def test_bad_usage(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str) -> None:
    done = assay(folder, kept_machine(folder, monkeypatch), "time", *arguments)
    assert done.returncode == code, done.stdout
    assert words in done.stderr


def test_nothing_to_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "cases" / "affine" / "rows.yaml"
    path.write_text(CASE.replace("time: [dequantize]\n", ""))
    done = assay(folder, kept_machine(folder, monkeypatch), "time")
    assert done.returncode == 4
    assert "none of the 2 chosen instances has `time:`" in done.stderr


def test_the_machine_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = kept_machine(folder, monkeypatch)
    done = assay(folder, environment, "machine")
    assert done.returncode == 0, done.stderr
    for words in (str(fingerprint()["chip"]), "cpu  runs", "40 ns a reading; 5.0 µs", "64 KiB   50.0", "float32 1000"):
        assert words in done.stdout
    shown = json.loads(assay(folder, environment, "machine", "--json").stdout)
    assert shown["rates"]["copied"] == [list(pair) for pair in BY_SIZE]


def test_rates_are_measured_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "SIZES", (1 << 16, 1 << 20))
    monkeypatch.setattr(rates_module, "TRIES", 2)
    monkeypatch.setattr(rates_module, "PEAK_SECONDS", 0.0)
    found = measure_rates()
    assert [size for size, _ in found.copied] == [size for size, _ in found.read] == [1 << 16, 1 << 20]
    # Between a slow bus and far beyond any cache.
    assert all(1e8 < rate < 1e14 for _, rate in (*found.copied, *found.read))
    assert set(found.operations) == {"float32", "float16", "bfloat16"}
    assert found.operations["float32"] > 1e8


def test_the_better_of_two_measurements() -> None:
    one = Machine({}, "", {}, 1, 1, Rates(((1, 5.0), (2, 1.0)), ((1, 1.0),), {"a": 3.0}))
    two = Machine({}, "", {}, 1, 1, Rates(((1, 4.0), (2, 2.0), (4, 9.0)), ((1, 2.0),), {"a": 2.0}))
    assert asdict(best_of(one, two))["rates"] == {
        "copied": ((1, 5.0), (2, 2.0), (4, 9.0)),
        "read": ((1, 2.0),),
        "operations": {"a": 3.0},
    }
