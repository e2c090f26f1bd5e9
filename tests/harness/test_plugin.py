"""The pytest plugin, through real pytest runs in projects of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "fakes" / "bad_subjects.py"
CASE = """
assay: 1
kind: ring
title: Two blocks
why: A small case for a test of the plugin.
matrix:
  window: [4, 64, 8, 16, 32]
given: {head_dim: 32}
steps: [{append: 2}, {append: 3}]
check: [visible]
time: [decode]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "two-blocks.yaml").write_text(CASE)
    return tmp_path


def run_pytest(project: Path, *arguments: str, module: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest"] if module else [str(Path(sys.executable).parent / "pytest")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    if any("fakes" in argument for argument in arguments):
        # Fakes import the project's own test helpers.
        environment["PYTHONPATH"] = str(ROOT)
    command += ["-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=environment)


def test_it_collects_a_sample_and_says_so(project: Path) -> None:
    done = run_pytest(project, "-v")
    assert done.returncode == 0, done.stdout
    assert "metal-assay: on reference, a fixed sample of 2 instances a case" in done.stdout
    assert "two-blocks.yaml::two-blocks[window=4] PASSED" in done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("module", [True, False])
def test_it_works_as_command_and_as_module(project: Path, *, module: bool) -> None:
    done = run_pytest(
        project, "--benchmark", "cases", "--assay-sample", "1", "--assay-subject", "reference", module=module
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two-blocks[window=4]:decode" in done.stdout


def test_every_instance_on_request(project: Path) -> None:
    assert "5 tests collected" in run_pytest(project, "--assay-sample", "all", "--collect-only").stdout
    (project / "pytest.ini").write_text("[pytest]\nassay_sample = 3\n")
    assert "3 tests collected" in run_pytest(project, "--collect-only").stdout


def test_an_instance_outside_the_sample_can_be_named(project: Path) -> None:
    names = {
        line.rpartition("::")[2]
        for line in run_pytest(project, "--collect-only", "-q").stdout.splitlines()
        if "::" in line
    }
    left_out = ({f"two-blocks[window={w}]" for w in (4, 64, 8, 16, 32)} - names).pop()
    assert "1 passed" in run_pytest(project, f"cases/two-blocks.yaml::{left_out}").stdout


def test_a_failure_shows_evidence_and_no_traceback(project: Path) -> None:
    done = run_pytest(project, "--assay-subject", f"{FAKES}:WrongShape")
    assert done.returncode == 1
    assert "shape, step 1 (append 2): keys" in done.stdout
    assert "again: assay run" in done.stdout
    assert "runtest" not in done.stdout


def test_a_crash_fails_its_own_items_only(project: Path) -> None:
    (project / "cases" / "two-blocks.yaml").write_text(CASE.replace("[4, 64, 8, 16, 32]", "[4, 64]"))
    done = run_pytest(
        project, "--assay-subject", f"{FAKES}:Crashes", "--assay-subject", "reference", "--assay-sample", "all"
    )
    assert "the worker was killed by SIGSEGV" in done.stdout
    assert "1 failed, 3 passed" in done.stdout, "window 64 passes on the fake, and everything on the reference"


def test_nothing_is_timed_without_the_flag(project: Path) -> None:
    done = run_pytest(project, "--benchmark-json=out.json")
    assert done.returncode == 0
    assert "decode" not in done.stdout
    assert not (project / "out.json").exists() or not json.loads((project / "out.json").read_text())["benchmarks"]


def test_rounds_reach_pytest_benchmark(project: Path) -> None:
    done = run_pytest(project, "--benchmark", "--benchmark-json=out.json", "--benchmark-autosave", "cases")
    assert done.returncode == 0, done.stdout
    benchmarks = json.loads((project / "out.json").read_text())["benchmarks"]
    assert len(benchmarks) == 2
    first = benchmarks[0]
    assert first["name"] == "two-blocks[window=4]:decode"
    assert first["fullname"] == "cases/two-blocks.yaml::two-blocks[window=4]:decode"
    assert first["group"] == "ring:decode"
    assert len(first["stats"]["data"]) == first["stats"]["rounds"] == 16
    assert first["extra_info"]["subject"] == "reference"
    again = run_pytest(project, "cases", "--benchmark", "--benchmark-compare")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "(0001_" in again.stdout, "the saved run stands beside the new one"
    tool = Path(sys.executable).parent / "pytest-benchmark"
    compared = subprocess.run([tool, "compare", "out.json"], cwd=project, capture_output=True, text=True, check=False)
    assert compared.returncode == 0
    assert "two-blocks[window=4]:decode" in compared.stdout


def test_timings_are_not_taken_side_by_side(project: Path) -> None:
    done = run_pytest(project, "cases", "-n", "auto", "--benchmark", "--benchmark-json=out.json", "--assay-sample", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((project / "out.json").read_text())["benchmarks"]) == 1


def test_benchmark_only_and_skip_know_timed_items(project: Path) -> None:
    (project / "test_other.py").write_text("def test_other():\n    pass\n")
    only = run_pytest(project, "--benchmark", "--benchmark-only", "--assay-sample", "1")
    assert "1 passed, 1 skipped" in only.stdout
    skip = run_pytest(project, "--benchmark", "--benchmark-skip", "--collect-only")
    assert skip.returncode == 0


def test_the_private_parts_of_pytest_benchmark_are_as_expected() -> None:
    from types import SimpleNamespace

    from pytest_benchmark.stats import Metadata

    names = ("name", "fullname", "group", "param", "params", "extra_info", "cprofile_stats", "has_error")
    stats = Metadata(SimpleNamespace(**dict.fromkeys(names)), iterations=4, options={})
    stats.update(8.0)
    assert stats.stats.data == [2.0], "a round is divided by its calls"


def test_a_yaml_file_of_somebody_else_is_left_alone(project: Path) -> None:
    texts = [
        "name: not ours\nkey: 1\n",
        "assay: gold\nlab: 7\n",
        "- assay: 1\n",
        "lab:\n  assay: 1\n",
        "{: broken\n",
        "",
    ]
    for number, text in enumerate(texts):
        (project / "cases" / f"theirs-{number}.yaml").write_text(text)
    done = run_pytest(project)
    assert done.returncode == 0
    assert "theirs" not in done.stdout


def test_a_broken_case_is_an_error_in_words(project: Path) -> None:
    (project / "cases" / "broken.yaml").write_text(CASE.replace("window:", "windw:"))
    done = run_pytest(project)
    assert done.returncode == 2
    assert "broken.yaml:7:3: matrix.windw: is used nowhere" in done.stdout
    assert "did you mean 'window'?" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_foreign_package_named_harness_switches_it_off(project: Path) -> None:
    (project / "harness").mkdir()
    (project / "harness" / "__init__.py").write_text("raise RuntimeError('imported by accident')\n")
    (project / "test_own.py").write_text("def test_own():\n    pass\n")
    done = run_pytest(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 warning" in done.stdout
    assert done.stdout.count("metal-assay's pytest plugin is off: this project has its own package 'harness'") == 1


def test_it_is_off_without_harm_where_warnings_are_errors(project: Path) -> None:
    (project / "harness").mkdir()
    (project / "harness" / "__init__.py").write_text("")
    (project / "test_own.py").write_text("def test_own():\n    pass\n")
    done = run_pytest(project, "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "metal-assay's pytest plugin is off" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--assay-subject", "referense"], "did you mean 'reference'?"),
        (["--assay-sample", "0"], "--assay-sample takes a number of 1 or more, or `all`"),
        (["--assay-sample", "few"], "--assay-sample takes a number of 1 or more, or `all`"),
    ],
)
def test_wrong_options_are_refused_in_words(project: Path, arguments: list[str], message: str) -> None:
    done = run_pytest(project, *arguments)
    assert done.returncode == 4
    assert message in done.stderr
    assert "Traceback" not in done.stderr
