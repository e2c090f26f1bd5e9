"""Workflows that people copy: every command, option, path, extra and version in them exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from harness.cli import cli
from tests.subjects.faults import PINNED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = (ROOT / ".github/workflows/assay.yml").read_text(encoding="utf-8")
TIMING = (ROOT / ".github/workflows/timing.yml").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The one for a project with a cache of its own: its paths are that project's.
SNIPPET = next(text for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "runs-on:" in text)


def jobs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return found


def commands(text: str) -> Iterator[list[str]]:
    """Yield every command of every `run:`, what GitHub puts in replaced by a word."""
    for job in jobs(text).values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                yield shlex.split(re.sub(r"\$\{\{.*?\}\}", "x", line))


def ours(text: str, program: str) -> list[list[str]]:
    return [words[1:] for words in commands(text) if words[0] == program]


@cache
def pytest_options() -> set[str]:
    done = subprocess.run([sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", done.stdout))


@pytest.mark.parametrize("text", [WORKFLOW, SNIPPET, TIMING], ids=["workflow", "readme", "timing"])
def test_every_assay_command_is_one_and_is_accepted(text: str) -> None:
    used = ours(text, "assay")
    assert used
    for verb, *arguments in used:
        # The real parser, short of running: an unknown verb, option or value raises.
        command = cli.get_command(click.Context(cli), verb)
        assert command, verb
        context = command.make_context(verb, arguments)
        for path in context.params.get("paths", ()):
            assert (ROOT / path).exists(), path


def test_every_pytest_command_is_accepted() -> None:
    used = ours(WORKFLOW, "pytest")
    assert [] in used
    assert ["-m", "", "tests/subjects"] in used
    for words in used:
        for word in words:
            name = word.partition("=")[0]
            assert name in pytest_options() if word.startswith("-") else (ROOT / word).exists(), word


def test_what_is_installed_exists() -> None:
    for words in (*ours(WORKFLOW, "pip"), *ours(SNIPPET, "pip"), *ours(TIMING, "pip")):
        for word in words[1:]:
            if word.startswith("-"):
                assert word in {"-e", "-q"}
            elif word.startswith(".["):
                assert (ROOT / "pyproject.toml").exists()
                assert Requirement(f"metal-assay{word[1:]}").extras <= set(PROJECT["optional-dependencies"])
            elif Requirement(word).name == PROJECT["name"]:
                assert Requirement(word).extras <= set(PROJECT["optional-dependencies"])


def test_the_pinned_mlx_lm_is_the_one_of_the_tests() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert set(re.findall(r"mlx-lm==([\d.]+)", WORKFLOW + README + script)) == {PINNED}


def test_machines_and_pythons() -> None:
    built = jobs(WORKFLOW)
    assert [job["runs-on"].partition("-")[0] for job in built.values()] == ["ubuntu", "macos"]
    for job in built.values():
        for version in job["strategy"]["matrix"]["python"]:
            assert isinstance(version, str), "3.10 without quotes is the number 3.1"
            assert version in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("text", [WORKFLOW, SNIPPET], ids=["workflow", "readme"])
def test_the_record_is_what_is_uploaded_also_after_a_failure(text: str) -> None:
    for job in jobs(text).values():
        upload = next(step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
        assert upload["if"] == "${{ !cancelled() }}"
        assert upload["with"]["if-no-files-found"] == "error"
        runs = [step["run"] for step in job["steps"] if step.get("run", "").startswith("assay run")]
        assert [run.partition("--record ")[2] for run in runs] == [upload["with"]["path"]]


def test_the_timing_workflow_compares_a_merge_with_where_it_goes_and_always_shows_a_summary() -> None:
    for job in jobs(TIMING).values():
        checkout = next(step for step in job["steps"] if "checkout" in step.get("uses", ""))
        assert checkout["with"]["fetch-depth"] == 2, "HEAD^1 must be there"
        (words,) = [shlex.split(s["run"]) for s in job["steps"] if s.get("run", "").startswith("assay compare")]
        context = cli.get_command(click.Context(cli), "compare")
        assert context is not None
        given = context.make_context("compare", words[2:]).params
        assert given["revisions"] == ("HEAD^1", "HEAD")
        assert str(given["markdown"]) == "$GITHUB_STEP_SUMMARY"
        upload = next(step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
        assert upload["with"]["path"] == str(given["record"])
        assert upload["if"] == "${{ !cancelled() }}"


def test_what_was_not_seen_is_said() -> None:
    for text in (WORKFLOW, README, TIMING):
        assert re.search(
            r"macOS job .{0,60}not\s+(been|yet been)\s+seen\s+running", text.replace("\n# ", " "), re.DOTALL
        )
