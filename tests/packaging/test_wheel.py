"""The built wheel: it holds the cases and both packages, and runs from a folder that is not the project."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a clean copy and unpack it, as an installer would."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],  # noqa: S607 - git, wherever it is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    (source / "dist").mkdir()
    made = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    wheel = source / "dist" / made.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def python(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def test_it_holds_every_case_and_package(installed: Path) -> None:
    ours = {path.relative_to(ROOT / "cases") for path in (ROOT / "cases").rglob("*.yaml")}
    cases = installed / "metal_assay/cases"
    assert {path.relative_to(cases) for path in cases.rglob("*.yaml")} == ours
    # What `assay new` writes, and the kernels and preludes that are compiled where the package is used.
    for pattern in ("harness/**/*.yaml", "impl/**/*.metal", "impl/**/*.h", "impl/**/*.cpp", "impl/**/*.json"):
        there = {path.relative_to(ROOT) for path in ROOT.glob(pattern)}
        assert there
        assert {path.relative_to(installed) for path in installed.glob(pattern)} == there, pattern
    for package in ("harness", "impl"):
        there = {p.relative_to(ROOT) for p in (ROOT / package).rglob("*.py") if p.parent.name != "entry"}
        assert {p.relative_to(installed) for p in (installed / package).rglob("*.py")} >= there
    assert (installed / "harness/py.typed").is_file()
    assert (installed / "harness/case/case.schema.json").is_file()


def test_it_runs_its_own_cases_elsewhere(installed: Path, tmp_path: Path) -> None:
    code = "import harness; print(harness.__file__)"
    assert python(installed, tmp_path, "-c", code).stdout.startswith(str(installed))
    arguments = ["-m", "metal_assay.command", "run", "--select", "ring/window-of-one", "-q"]
    done = python(installed, tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "18 passed" in done.stdout
    assert (tmp_path / ".assay").is_dir(), "no reports/ folder is made in a stranger's project"


def test_its_pytest_plugin_collects_a_strangers_cases(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    text = (ROOT / "cases/ring/window-of-one.yaml").read_text()
    (tmp_path / "cases" / "mine.yaml").write_text(text)
    (tmp_path / "cases" / "config.yaml").write_text("name: something else\n")
    done = python(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
