"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_subject_runs(tmp_path: Path) -> None:
    example = next(block for block in blocks("python") if "class Mine(Subject)" in block)
    (tmp_path / "mine.py").write_text(example)
    command = [
        sys.executable,
        "-m",
        "metal_assay.command",
        "run",
        str(ROOT / "cases/ring"),
        "--subject",
        "mine.py:Mine",
    ]
    done = subprocess.run(
        [*command, "--select", "ring/trim-a-full-cache", "--select", "ring/decode-past-the-window", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    assert "only plain caches without a window" in done.stdout


def test_the_example_case_is_the_shipped_one() -> None:
    from harness.case.load import load_file
    from harness.case.source import read_source

    example = next(block for block in blocks("yaml") if block.startswith("# cases/ring/"))
    name = example.splitlines()[0].removeprefix("# ")
    assert len(load_file(ROOT / name)) > 1
    shown = re.sub(r" +#.*", "", example)
    for line in ("matrix:", "  over: [1, 2, window]", "given: {head_dim: 64, dtype: float32, seed: 15}"):
        assert line in shown
        assert line in (ROOT / name).read_text(encoding="utf-8")
    assert read_source(ROOT / name).value["steps"][0] == {"decode": "window + over"}


def test_every_verb_and_option_in_it_exists() -> None:
    from click.testing import CliRunner

    from harness.cli import cli

    used = re.findall(r"assay (run|kernel|new|list|show|subjects|schema)\b([^`\n]*)", README)
    assert {verb for verb, _ in used} >= {"run", "show", "schema"}
    for verb, rest in used:
        text = CliRunner().invoke(cli, [verb, "--help"]).output
        for option in re.findall(r"--[a-z]+", rest):
            assert option in text, (verb, option)


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_point_at_files(link: str) -> None:
    assert (ROOT / link).exists()
