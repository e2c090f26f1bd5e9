"""Revisions side by side: what is exported, what is imported from where, and that nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import harness
from harness.errors import NothingRanError, UsageError
from harness.revisions import (
    Environment,
    Revision,
    environments,
    repository,
    resolve,
    subject_in,
    uncommitted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["numpy"]\n'


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout.strip()


def commit(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__dot__", ".").replace("__in__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a change")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "a project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    commit(place, pyproject__dot__toml=PROJECT, mine__dot__py="N = 1\n", src__in__deep__in____init____dot__py="M = 1\n")
    commit(place, mine__dot__py="N = 2\n", harness__in____init____dot__py="raise SystemExit('the wrong harness')\n")
    git(place, "tag", "second")
    return place


def says(environment: Environment, code: str) -> str:
    done = subprocess.run(
        [environment.python, "-c", code],
        env=environment.variables(),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return done.stdout.strip()


def test_a_name_becomes_a_commit_or_one_clear_message(root: Path) -> None:
    assert repository(root / "src") == root
    found = resolve(root, "second")
    assert found.commit == git(root, "rev-parse", "HEAD")
    assert found.label == f"second ({found.commit[:10]})"
    assert found.title == "a change"
    assert resolve(root, found.commit[:12]).label == found.commit[:10]
    assert resolve(root, ".") == Revision(".", "", "with what is not committed")
    for name in ("no-such", "--all", "HEAD~99", "HEAD:mine.py"):
        with pytest.raises(UsageError, match=f"--rev {name}: is no commit") as raised:
            resolve(root, name)
        assert raised.value.exit_code == 2


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no git repository"):
        repository(tmp_path)


def test_each_revision_imports_its_own_code_and_the_harness_of_now(root: Path) -> None:
    (root / "mine.py").write_text("N = 3\n", encoding="utf-8")
    wanted = (resolve(root, "HEAD~1"), resolve(root, "second"), resolve(root, "."))
    with environments(root, wanted) as found:
        for environment, number in zip(found, (1, 2, 3), strict=True):
            assert environment.python == sys.executable
            code = "import mine, deep, harness; print(mine.N, deep.M, harness.__file__)"
            assert says(environment, code) == f"{number} 1 {Path(harness.__file__)}"
        folders = [environment.folder for environment in found]
        assert (folders[0] / "mine.py").read_text(encoding="utf-8") == "N = 1\n"
        assert folders[2] == root
    assert not any(folder.exists() for folder in folders[:2])
    assert (root / "mine.py").read_text(encoding="utf-8") == "N = 3\n"
    assert git(root, "worktree", "list").count("\n") == 0
    assert uncommitted(root) == ["mine.py"]


def test_nothing_is_left_after_an_interruption(root: Path) -> None:
    places: list[Path] = []

    def interrupted() -> None:
        with environments(root, (resolve(root, "second"),)) as found:
            places.append(found[0].folder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not places[0].parent.parent.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda root: commit(root, pyproject__dot__toml=PROJECT.replace("numpy", "numpy>=1")), "other dependencies"),
        (
            lambda root: commit(root, pyproject__dot__toml=PROJECT + 'requires-python = ">=3.9"\n'),
            "another Python",
        ),
        (
            lambda root: commit(
                root, pyproject__dot__toml=PROJECT + '[build-system]\nbuild-backend = "scikit_build_core.build"\n'
            ),
            "builds more than Python",
        ),
        (lambda root: commit(root, setup__dot__py="setup(ext_modules=[])\n"), "compiles extensions"),
    ],
)
def test_what_this_environment_does_not_fit_gets_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], str], reason: str
) -> None:
    notes: list[str] = []
    asked: list[str] = []

    def installed(folder: Path, _place: Path, revision: Revision) -> Environment:
        asked.append(revision.asked)
        return Environment("python-of-its-own", (), folder)

    monkeypatch.setattr("harness.revisions._installed", installed)
    change(root)
    git(root, "checkout", "-q", "second")
    with environments(root, (resolve(root, "second"), resolve(root, "main")), note=notes.append) as found:
        assert [environment.python for environment in found] == [sys.executable, "python-of-its-own"]
    assert asked == ["main"]
    assert len(notes) == 1
    assert reason in notes[0]


def test_a_subject_in_a_file_is_that_of_the_revision(root: Path, tmp_path: Path) -> None:
    environment = Environment(sys.executable, (), tmp_path / "exported")
    assert subject_in(environment, root, f"{root}/src/x.py:Mine") == f"{tmp_path}/exported/src/x.py:Mine"
    assert subject_in(environment, root, "/elsewhere/x.py:Mine") == "/elsewhere/x.py:Mine"
    assert subject_in(environment, root, "reference") == "reference"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_revision_that_can_not_be_installed_says_what_pip_said(root: Path) -> None:
    commit(root, pyproject__dot__toml="[project]\nname = 'mine'\nversion = '1'\ndependencies = ['no such']\n")
    with (
        pytest.raises(NothingRanError, match="main") as raised,
        environments(root, (resolve(root, "main"),), install=True),
    ):
        pass
    assert raised.value.exit_code == 4
