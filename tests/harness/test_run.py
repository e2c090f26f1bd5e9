"""Runs with subjects that misbehave: each instance gets the right outcome and reason, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.case.load import load_cases
from harness.errors import SubjectMissingError, UsageError
from harness.outcome import Outcome, Result
from harness.pool import Limits
from harness.record import read_record
from harness.run import Options, run

pytestmark = pytest.mark.slow

FAKES = Path(__file__).parents[1] / "fakes" / "bad_subjects.py"
CASE = """
assay: 1
kind: ring
title: Two blocks
why: Fakes misbehave in the second block, unless the window is 64.
matrix:
  window: [4, 64]
given: {head_dim: 32}
steps: [{append: 2}, {append: 3}]
check: [visible]
"""


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "two-blocks.yaml").write_text(CASE)
    return folder


def results(cases: Path, name: str, **options: object) -> dict[str, Result]:
    limits = Limits(seconds=1.0 if name == "Hangs" else 30.0, memory_mib=400)
    done = run(load_cases([cases]), [f"{FAKES}:{name}"], Options(limits=limits, **options))  # type: ignore[arg-type]  # whatever the test gives
    return {key.partition("window=")[2].rstrip("]"): result for key, result in done.subjects[0].results.items()}


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("Crashes", Outcome.ERRORED, "the worker was killed by SIGSEGV"),
        ("Hangs", Outcome.ERRORED, "no answer within 1 s (the time limit)"),
        ("EatsMemory", Outcome.ERRORED, "used more than 400 MiB of memory (the limit)"),
        ("Prints", Outcome.ERRORED, "printed to stdout: 'debug: second block'; a subject may print to stderr only"),
        ("PrintsFromBelow", Outcome.ERRORED, "printed to stdout: 'from below'; a subject may print to stderr only"),
        ("WrongShape", Outcome.FAILED, "shape: step 1 (append 2): keys"),
        ("Raises", Outcome.ERRORED, "step 2 (append 3) raised ValueError: operands could not be broadcast"),
        ("Exits", Outcome.ERRORED, "the worker ended by itself with exit code 3"),
    ],
)
def test_misbehavior_is_named_and_the_run_goes_on(cases: Path, name: str, outcome: Outcome, reason: str) -> None:
    found = results(cases, name)
    assert found["4"].outcome is outcome
    assert found["4"].reason.startswith(reason)
    if name != "WrongShape":
        assert found["64"].outcome is Outcome.PASSED, "an instance without the fault ran in a fresh worker"


def test_the_output_of_a_crash_is_evidence(cases: Path) -> None:
    output = results(cases, "Crashes")["4"].output
    assert "about to read address 0" in output
    assert "misbehave" in output, "faulthandler shows where it happened"


def test_results_keep_the_order_of_the_cases(cases: Path) -> None:
    (cases / "two-blocks.yaml").write_text(CASE.replace("[4, 64]", "[4, 64, 8, 3]"))
    assert list(results(cases, "WrongShape", jobs=3)) == ["4", "64", "8", "3"]


def test_two_subjects_side_by_side(cases: Path) -> None:
    done = run(load_cases([cases]), ["reference", f"{FAKES}:WrongShape"])
    assert [part.counts()[Outcome.PASSED] for part in done.subjects] == [2, 0]
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("subject", "error", "message"),
    [
        (f"{FAKES}:Missing", SubjectMissingError, "has no 'Missing'"),
        (f"{FAKES}:NoKinds", SubjectMissingError, "offers no kind"),
        (f"{FAKES}:NotASubject", SubjectMissingError, "must be a subclass of harness.subjects.protocol.Subject"),
        ("nowhere.py:X", SubjectMissingError, "there is no file nowhere.py"),
        ("referense", UsageError, "did you mean 'reference'?"),
        ("mine.txt:X", UsageError, "write path/to/file.py:ClassName"),
        (f"{FAKES}:a b", UsageError, "'a b' is no class name"),
    ],
)
def test_a_subject_that_does_not_load(cases: Path, subject: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r".*") as caught:
        run(load_cases([cases]), [subject])
    assert message in str(caught.value)


def test_a_subject_whose_file_raises(cases: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nothing_like_this\n")
    with pytest.raises(SubjectMissingError, match="ModuleNotFoundError: No module named 'nothing_like_this'"):
        run(load_cases([cases]), [f"{path}:Mine"])


def test_a_case_may_set_its_own_limits(cases: Path) -> None:
    text = CASE.replace("check:", "limits: {seconds: 0.3}\ncheck:")
    (cases / "two-blocks.yaml").write_text(text)
    assert results(cases, "Hangs")["4"].reason == "no answer within 0.3 s (the time limit)"


def test_a_wrong_answer_after_timing_stores_no_time(cases: Path) -> None:
    text = CASE.replace("check: [visible]", "check: [positions]\ntime: [decode]").replace("[4, 64]", "[64]")
    (cases / "two-blocks.yaml").write_text(text)
    result = results(cases, "RightUntilTimed", benchmark=True)["64"]
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("was right before timing, not after")
    assert result.rounds == ()


def test_rounds_are_recorded(cases: Path, tmp_path: Path) -> None:
    (cases / "two-blocks.yaml").write_text(CASE.replace("check: [visible]", "check: [visible]\ntime: [decode, append]"))
    path = tmp_path / "run.jsonl"
    done = run(load_cases([cases]), ["reference"], Options(benchmark=True, record=path))
    stored = read_record(path)
    for key, result in done.subjects[0].results.items():
        assert stored.results["reference", key].rounds == result.rounds
        assert [r.operation for r in result.rounds] == ["decode", "append"]
        assert all(len(r.round_ns) == 16 and min(r.round_ns) > 0 and r.calls >= 1 for r in result.rounds)


def test_kill_9_loses_nothing_and_resume_finishes(cases: Path, tmp_path: Path) -> None:
    (cases / "two-blocks.yaml").write_text(CASE.replace("[4, 64]", f"[{', '.join(map(str, range(65, 125)))}]"))
    record = tmp_path / "run.jsonl"
    subject = f"{FAKES}:Slow"
    command = [sys.executable, "-m", "metal_assay.command", "run", str(cases), "--subject", subject, "-j", "1"]
    process = subprocess.Popen(
        [*command, "--record", str(record)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up and (not record.exists() or record.read_bytes().count(b"\n") < 6):
        time.sleep(0.02)
    worker = _children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # The line that was being written when the power went.
    with record.open("ab") as file:
        file.write(b'{"id":"two-bl')
    before = read_record(record)
    assert 5 <= len(before.results) < 60
    assert before.footer is None
    resumed = subprocess.run([*command[:-4], "--resume", str(record)], capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert f"({len(before.results)} of them from the record)" in resumed.stdout
    after = read_record(record)
    assert len(after.results) == 60
    assert after.footer is not None
    assert after.footer["counts"] == {"passed": 60}
    ids = [json.loads(line)["id"] for line in record.read_bytes().splitlines() if b'"id"' in line]
    assert len(ids) == len(set(ids)) == 60, "nothing ran twice"
    assert not any(_alive(pid) for pid in worker), "a worker leaves when its parent is gone"


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]


def _alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_interrupt_keeps_what_was_finished(cases: Path, tmp_path: Path) -> None:
    (cases / "two-blocks.yaml").write_text(CASE.replace("[4, 64]", f"[{', '.join(map(str, range(65, 125)))}]"))
    record = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "metal_assay.command", "run", str(cases), "--subject", f"{FAKES}:Slow", "-j", "1"]
    process = subprocess.Popen(
        [*command, "--record", str(record)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background, a shell has switched this signal off for everything below it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs here
    )
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up and (not record.exists() or record.read_bytes().count(b"\n") < 4):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"go on with: assay run --resume {record}" in said
    assert "Traceback" not in said
    assert 3 <= len(read_record(record).results) < 60
