"""`assay kernel` on kernels as people write them: planted faults with their lines, and nothing about right ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

KERNELS = Path(__file__).parents[1] / "kernels"
FAULTY = sorted((KERNELS / "faulty").glob("*.yaml"))
CLEAN = sorted((KERNELS / "clean").glob("*.yaml"))
# `// fault: race` stands on the line that must be reported, `// fault: race with` on the earlier access of a race.
MARK = re.compile(r"// fault: (.+)$")
NO_LINE = {"unwritten-output": "unwritten output"}

pytestmark = pytest.mark.slow


def assay(*arguments: str | Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "metal_assay.command", "kernel", "-q", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def marks(path: Path) -> dict[str, int]:
    """Return which line of a kernel's text is marked with which fault."""
    text = yaml.safe_load(path.read_text())["given"]["source"]
    return {found[1]: number for number, line in enumerate(text.splitlines(), 1) if (found := MARK.search(line))}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Check all files in one go, as the command line does it, and return the findings by file."""
    out = tmp_path_factory.mktemp("checks") / "findings.json"
    done = assay(*FAULTY, *CLEAN, "-j", "2", "--json", out)
    assert done.returncode == 1
    assert f"{len(FAULTY) + len(CLEAN)} files: {len(FAULTY)} with findings" in done.stdout, done.stdout
    return {file["file"]: file for file in json.loads(out.read_text())["files"]}


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_planted_fault_is_found_with_its_line(path: Path, everything: dict[str, dict[str, Any]]) -> None:
    findings, marked = everything[str(path)]["findings"], marks(path)
    if path.stem in NO_LINE:
        assert [(found["fault"], found["places"]) for found in findings] == [(NO_LINE[path.stem], [])]
        assert not marked
        return
    fault = next(word for word in marked if not word.endswith(" with"))
    assert {found["fault"] for found in findings} == {fault}
    # Where two accesses race with each other and with themselves, each pair is a finding.
    lines = [[place["line"] for place in found["places"]] for found in findings]
    assert {line for pair in lines for line in pair} == set(marked.values())
    assert any(pair[0] == marked[fault] for pair in lines)
    assert all(len(pair) == (2 if fault == "race" else 1) for pair in lines)
    text = path.read_text().splitlines()
    for place in (place for found in findings for place in found["places"]):
        file, line, column = place["in"].rsplit(":", 2)
        assert file == str(path)
        # The line of the file is that line of the kernel, and the column is the same sign in both.
        assert text[int(line) - 1].endswith(place["text"])
        assert text[int(line) - 1][int(column) - 1 :] == place["text"][place["column"] - 1 :]


@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.stem)
def test_nothing_is_said_of_a_right_kernel(path: Path, everything: dict[str, dict[str, Any]]) -> None:
    file = everything[str(path)]
    assert file["findings"] == []
    assert all(one["checked"] and one["outcome"] == "passed" for one in file["instances"])
    assert all(len(one["orders"]) >= 4 for one in file["instances"])


def test_there_are_enough_of_both() -> None:
    assert len(FAULTY) >= 9
    assert len(CLEAN) >= 20


GIVEN = """
given:
  source: |
    uint i = thread_position_in_grid.x;
    BODY
  inputs: {x: {shape: [64]}}
  outputs: {y: {shape: [64]}}
  grid: [64]
  threadgroup: [32]
"""
CASE = """
assay: 1
kind: kernel
title: t
why: w
check: [output]
"""


def test_exit_codes_and_words(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(GIVEN.replace("BODY", "y[i] = x[i];"))
    clean = assay(path)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert clean.stdout.startswith("clean: kernel in 1 instance, ")

    path.write_text(GIVEN.replace("BODY", "y[i] = x[i + 8];"))
    other = tmp_path / "other.yaml"
    other.write_text(GIVEN.replace("BODY", "y[i] = missing;"))
    found = assay(path, other)
    assert found.returncode == 1
    assert "source:2:8: out-of-bounds read: " in found.stdout
    assert "\n    2 | y[i] = x[i + 8];\n      |        ^\n" in found.stdout
    assert f"  --> {path}:5:12\n  help: guard it" in found.stdout
    assert f"{path}: 1 finding: kernel in 1 instance, " in found.stdout
    assert "source:2:8: does not compile: use of undeclared identifier 'missing'" in found.stdout
    assert found.stdout.splitlines()[-1] == "2 files: 2 with findings, 2 in all"

    path.write_text(GIVEN.replace("BODY", "texture2d<float> t; y[i] = x[i];"))
    uncovered = assay(path)
    assert uncovered.returncode == 4
    assert "not checked: " in uncovered.stdout
    assert uncovered.stdout.splitlines()[-1] == "nothing was checked"

    path.write_text(GIVEN.replace("threadgroup:", "threadgrop:"))
    bad = assay(path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert f"{path}:9:3: given.threadgrop: unknown key; did you mean 'threadgroup'?" in bad.stderr


def test_a_kernel_without_end_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(GIVEN.replace("BODY", "y[i] = x[i];\n    while (i < 64) { y[i] += 1; }"))
    done = assay(path, "--time-limit", "2", timeout_s=60)
    assert done.returncode == 1
    assert "source:3:" in done.stdout
    assert ": time limit: " in done.stdout


def test_a_case_is_compared_as_well(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    case = CASE + GIVEN.replace("outputs: {y: {shape: [64]}}", "outputs: {y: {shape: [64], expect: 2 * x}}")
    path.write_text(case.replace("BODY", "y[i] = 2 * x[i];"))
    right = assay(path)
    assert right.returncode == 0
    assert "answers compared" in right.stdout
    path.write_text(case.replace("BODY", "y[i] = 3 * x[i];"))
    wrong = assay(path)
    assert wrong.returncode == 1
    assert "wrong answer: y[0], in the check output" in wrong.stdout


def test_a_run_with_checks_fails_what_passes_without(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "k.yaml"
    body = "float v = x[i + 1]; y[i] = v == 12345.0f ? 0.0f : 2 * x[i];"
    expect = "outputs: {y: {shape: [64], expect: 2 * x}}"
    path.write_text(CASE + GIVEN.replace("outputs: {y: {shape: [64]}}", expect).replace("BODY", body))
    record = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "metal_assay.command", "run", "-q", str(path), "--record", str(record)]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stdout
    assert "kernels checked" not in plain.stdout
    checked = subprocess.run([*command, "--checks"], capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "kernel-checks, kernel, source:2:" in checked.stdout
    assert "launches of kernels checked: 1, findings: 1" in checked.stdout
    line = json.loads(record.read_text().splitlines()[1])
    assert line["findings"][0]["check"] == "kernel-checks"
    assert line["kernel_checks"]["faults"][0]["fault"] == "out-of-bounds read"
    resumed = [*command[:-2], "--resume", str(record)]
    refused = subprocess.run(resumed, capture_output=True, text=True, check=False)
    assert (refused.returncode, "was made with --checks" in refused.stderr) == (2, True)
    both = subprocess.run([*command, "--checks", "--benchmark"], capture_output=True, text=True, check=False)
    assert both.returncode == 2
    assert "leave out --benchmark and --against" in both.stderr


def test_the_readme_shows_a_true_example(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    section = readme.partition("## Check a Metal kernel")[2].partition("\n## ")[0]
    blocks = re.findall(r"```\w*\n(.*?)```", section, re.DOTALL)
    description = next(block for block in blocks if "given:" in block)
    shown = next(block for block in blocks if block.startswith("source:"))
    (tmp_path / "softmax.yaml").write_text(description)
    line = [sys.executable, "-m", "metal_assay.command", "kernel", "-q", "softmax.yaml"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == shown
