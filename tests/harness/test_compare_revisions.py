"""`assay compare --rev` and `--baseline` as people call them, on a small project with a subject of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harness.timing.record import read_timing_record

if TYPE_CHECKING:
    from pathlib import Path

SUBJECT = """
import numpy as np
from harness.baseline import affine as baseline
from harness.subjects.protocol import Affine, Subject
LOOPS = 20000
class Mine(Subject, Affine):
    name = "mine"
    def affine(self):
        return self
    def dequantize(self, planes):
        found = baseline.dequantize(planes.packed, planes.scales, planes.biases, planes.group_size, planes.bits)
        return found.astype(planes.scales.dtype)
    def timed(self, operation, x, planes, *, transpose):
        def call(number):
            for _ in range(LOOPS):
                pass
            return self.dequantize(planes)
        return call
"""
CASE = """
assay: 1
kind: affine
title: Planes are read back
why: >
  The test wants something to time.
given: {dtype: float32, bits: 4, group: 32, outputs: 8, inputs: 64, seed: 1}
check: [decode]
time: [dequantize]
"""
REVISIONS = {
    "plain": SUBJECT,
    "comment": SUBJECT.replace("LOOPS = 20000", "LOOPS = 20000  # as far as it counts"),
    "slower": SUBJECT.replace("LOOPS = 20000", "LOOPS = 80000"),
    "wrong": SUBJECT.replace("found.astype", "(found + 1).astype"),
    "broken": SUBJECT.replace("import numpy as np", "import numpy_of_another_world"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("project")
    git(place, "init", "-q", "-b", "main")
    (place / "cases" / "affine").mkdir(parents=True)
    (place / "cases" / "affine" / "reading.yaml").write_text(CASE, encoding="utf-8")
    for name, text in REVISIONS.items():
        (place / "mine.py").write_text(text, encoding="utf-8")
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", name)
        git(place, "tag", name)
    return place


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)  # noqa: S607


def assay(root: Path, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "TMPDIR": str(root.parent)}
    command = [sys.executable, "-P", "-m", "metal_assay.command", "compare", "--subject", "mine.py:Mine", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def compare(root: Path, base: str, new: str, *more: str) -> tuple[int, dict[str, Any], str]:
    found = root.parent / "found.json"
    found.unlink(missing_ok=True)
    revisions = ["--rev", base, "--rev", new, "--processes", "4", "--seed", "1", "--json", str(found)]
    code, text = assay(root, *revisions, *more)
    return code, json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}, text


def left_behind(root: Path) -> list[Path]:
    return list(root.parent.glob("assay-*"))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_comment_is_no_regression(root: Path) -> None:
    record = root.parent / "samples.jsonl"
    code, found, text = compare(root, "plain", "comment", "--advisory", "--record", str(record))
    assert code == 0, text
    assert [one["id"] for one in found["verdicts"]] == ["affine/reading"]
    assert found["verdicts"][0]["verdict"] in ("SAME", "AMBIGUOUS"), text
    kept = read_timing_record(record)
    assert kept.footer is not None
    assert set(kept.header["revisions"]) == {"base", "new"}
    assert not left_behind(root)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_revision_that_counts_four_times_as_far_is_slower(root: Path) -> None:
    code, found, text = compare(root, "plain", "slower", "--no-check")
    (one,) = found["verdicts"]
    assert one["ratio"] > 2, text
    if code == 4:
        # Too busy a machine must say so, and nothing else.
        assert one["reason"] in ("canary-drifted", "control-arm-moved"), text
    else:
        assert (code, one["verdict"], one["confirmed"]) == (3, "SLOWER", True), text


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_wrong_answer_is_worth_no_time(root: Path) -> None:
    code, found, text = compare(root, "plain", "wrong")
    assert (code, found["verdicts"]) == (1, []), text
    assert found["wrong"][0]["id"] == "affine/reading"
    code, found, text = compare(root, "plain", "wrong", "--no-check")
    assert code == 1, text
    assert "decode" in found["wrong"][0]["why"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_side_that_does_not_load(root: Path) -> None:
    code, found, text = compare(root, "plain", "broken")
    assert code == 1, text
    assert "numpy_of_another_world" in found["wrong"][0]["why"]
    code, _, text = compare(root, "broken", "plain", "--no-check")
    assert code == 4, text
    assert "can't be measured" in text
    assert not left_behind(root)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_ctrl_c_leaves_nothing_behind(root: Path) -> None:
    import signal
    import time

    command = [sys.executable, "-P", "-m", "metal_assay.command", "compare", "--subject", "mine.py:Mine", "--no-check"]
    environment = {**os.environ, "TMPDIR": str(root.parent)}
    record = root.parent / "stopped.jsonl"
    with subprocess.Popen(
        [*command, "--rev", "plain", "--rev", "comment", "--record", str(record)],
        cwd=root, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        while not record.exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert left_behind(root)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert not left_behind(root)
    assert read_timing_record(record).footer is None


def test_what_does_not_exist_is_bad_usage(root: Path) -> None:
    code, text = assay(root, "--rev", "plain", "--rev", "no-such")
    assert code == 2, text
    assert "--rev no-such: is no commit" in text
    assert "Traceback" not in text
    code, text = assay(root, "--rev", "plain", "--rev", "comment", "--subject", "refrence")
    assert code == 2, text
    assert "reference" in text


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_baseline_is_stored_and_compared_with(root: Path) -> None:
    git(root, "checkout", "-q", "plain")
    options = ["--baselines", str(root.parent / "baselines"), "--processes", "4", "--seed", "1"]
    code, text = assay(root, "--baseline", *options)
    assert code == 4, text
    assert "--save-baseline" in text
    code, text = assay(root, "--save-baseline", *options)
    assert code == 0, text
    (stored,) = (root.parent / "baselines").glob("*/*.jsonl")
    assert read_timing_record(stored).footer is not None
    code, text = assay(root, "--baseline", "--advisory", *options)
    assert code == 0, text
    assert "weak evidence" in text
    git(root, "checkout", "-q", "wrong")
    before = stored.read_bytes()
    code, text = assay(root, "--save-baseline", *options)
    assert code == 4, text
    assert stored.read_bytes() == before, "the old one stays"
    git(root, "checkout", "-q", "slower")
    gate = ["--benchmark", "--benchmark-gate=confirmed", f"--benchmark-baselines={root.parent / 'baselines'}"]
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-rA",
        "--assay-subject=mine.py:Mine",
        *gate,
        "cases",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "slower than its baseline" in done.stdout or "AMBIGUOUS" in done.stdout, done.stdout
    assert done.returncode == ("slower than its baseline" in done.stdout), done.stdout
