"""Revisions of a project side by side: each exported from git and made importable, the working tree left alone.

The cases and the harness are those that run now; a revision brings the code under test. A revision that declares the
same dependencies as the working tree shares this environment, which takes no time; any other gets one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import harness
from harness.errors import NothingRanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKING_TREE = "."
# These are the harness that runs now, not the one of the revision.
_OURS = ("harness", "metal_assay")
# These packages are made of Python alone when nothing else is said; others compile something.
_PLAIN_BACKENDS = ("setuptools", "hatchling", "flit_core", "poetry", "pdm", "uv_build")
_SOURCE_ROOTS = ("", "src")
INSTALL_SECONDS = 1800


@dataclass(frozen=True)
class Revision:
    """A revision as asked for and as git names it; commit is "" for the working tree."""

    asked: str
    commit: str
    title: str = ""

    @property
    def label(self) -> str:
        """Name it for people."""
        if not self.commit:
            return "working tree"
        short = self.commit[:10]
        return short if self.commit.startswith(self.asked) else f"{self.asked} ({short})"


@dataclass(frozen=True)
class Environment:
    """How to start Python with a revision's code: the interpreter, what goes first on its path, the folder."""

    python: str
    path: tuple[str, ...]
    folder: Path

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a process of this revision."""
        before = [*self.path, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(before)}


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607 - git of the user
    except FileNotFoundError:
        raise UsageError("--rev needs git, which is not installed") from None


def repository(start: Path) -> Path:
    """Return the root of the repository around `start`; raises UsageError outside of one."""
    found = _git(start, "rev-parse", "--show-toplevel")
    if found.returncode:
        raise UsageError(f"{start}: is in no git repository, and --rev compares revisions of one")
    return Path(found.stdout.strip())


def resolve(root: Path, asked: str) -> Revision:
    """Return what git makes of a name; raises UsageError for one that is no commit. `.` is the working tree."""
    if asked == WORKING_TREE:
        return Revision(asked, "", "with what is not committed")
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{asked}^{{commit}}")
    commit = found.stdout.strip()
    if found.returncode or not commit:
        shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        hint = "; this clone is shallow: fetch it whole (actions/checkout: fetch-depth: 0)" if shallow else ""
        raise UsageError(f"--rev {asked}: is no commit of {root}{hint}; `.` is the working tree")
    return Revision(asked, commit, _git(root, "log", "-1", "--format=%s", commit).stdout.strip())


def uncommitted(root: Path) -> list[str]:
    """Return the tracked files that differ from HEAD."""
    return _git(root, "diff", "--name-only", "HEAD").stdout.split("\n")[:-1]


@contextmanager
def environments(
    root: Path, revisions: tuple[Revision, ...], *, install: bool = False, note: Callable[[str], None] = lambda _: None
) -> Iterator[list[Environment]]:
    """Export and prepare revisions; everything is gone afterwards, also after an interruption.

    install: give each an environment of its own even where dependencies agree. Raises NothingRanError with what pip
    said when a revision can't be installed.
    """
    with TemporaryDirectory(prefix="assay-compare-") as temporary:
        current = _project(root)
        found = []
        for number, revision in enumerate(revisions):
            place = Path(temporary) / f"{number}"
            place.mkdir()
            folder = root if not revision.commit else _export(root, revision, place / "project")
            why = "--install" if install else _own_environment(_project(folder), current, folder)
            if why:
                note(f"{revision.label}: gets an environment of its own ({why})")
                found.append(_installed(folder, place, revision))
            else:
                found.append(Environment(sys.executable, (str(_overlay(folder, place / "path")),), folder))
        yield found


def _export(root: Path, revision: Revision, folder: Path) -> Path:
    # An export, not a worktree: nothing of it is left in the repository, whatever ends this process.
    folder.mkdir()
    command = ["git", "-C", str(root), "archive", "--format=tar", revision.commit]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603 - git of the user
        assert process.stdout is not None  # noqa: S101 - asked for above
        assert process.stderr is not None  # noqa: S101 - asked for above
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, filter="tar")
        except tarfile.ReadError:
            said = process.stderr.read().decode("utf-8", "replace").strip()
            raise NothingRanError(f"--rev {revision.asked}: git can't export it: {said}") from None
    return folder


def _project(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def _own_environment(project: dict[str, Any], current: dict[str, Any], folder: Path) -> str:
    """Say why a revision can't share this environment; "" when it can."""
    mine, theirs = project.get("project", {}), current.get("project", {})
    for key in ("dependencies", "requires-python"):
        if key == "dependencies" and sorted(mine.get(key, ())) != sorted(theirs.get(key, ())):
            return "other dependencies"
        if key == "requires-python" and mine.get(key) != theirs.get(key):
            return "another Python"
    backend = project.get("build-system", {}).get("build-backend", "setuptools.build_meta")
    if not backend.startswith(_PLAIN_BACKENDS):
        return f"{backend} builds more than Python"
    setup = folder / "setup.py"
    if setup.is_file() and "ext_modules" in setup.read_text(encoding="utf-8", errors="replace"):
        return "setup.py compiles extensions"
    return ""


def _overlay(folder: Path, place: Path) -> Path:
    """Make a folder that has a revision's top-level packages and modules, but not its harness."""
    place.mkdir()
    for root in _SOURCE_ROOTS:
        for entry in sorted((folder / root).iterdir()) if (folder / root).is_dir() else ():
            named = entry.stem if entry.suffix == ".py" else entry.name
            module = entry.suffix == ".py" or (entry.is_dir() and _has_python(entry))
            if module and named.isidentifier() and named not in _OURS and not (place / entry.name).exists():
                (place / entry.name).symlink_to(entry)
    return place


def _has_python(folder: Path) -> bool:
    # A namespace package has none of its own.
    return any(folder.glob("*.py")) or any(folder.glob("*/*.py"))


def _installed(folder: Path, place: Path, revision: Revision) -> Environment:
    venv = place / "venv"
    python = venv / "bin" / "python"
    extras = "[cpu]" if _project(folder).get("project", {}).get("name") == "metal-assay" else ""
    # What the harness itself needs comes with its own release's requirements.
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(python), "-m", "pip", "install", "-q", f"{folder}{extras}", *_harness_requirements()],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)  # noqa: S603 - pip of the user
        if done.returncode:
            said = "\n".join(done.stderr.strip().splitlines()[-8:])
            raise NothingRanError(f"{revision.label}: can't be installed:\n{said}")
    ours = place / "harness-of-now"
    ours.mkdir()
    package = Path(harness.__file__).parent
    (ours / "harness").symlink_to(package)
    entry = package / "entry"
    if entry.is_dir():
        (ours / "metal_assay").symlink_to(entry)
    return Environment(str(python), (str(ours),), folder)


def _harness_requirements() -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        return [line for line in requires("metal-assay") or [] if ";" not in line]
    except PackageNotFoundError:
        return []


def subject_in(environment: Environment, root: Path, subject: str) -> str:
    """Return a subject's name for a revision: `file.py:Class` names the file of that revision, where it has one."""
    file, colon, name = subject.rpartition(":")
    if not colon:
        return subject
    path = Path(file).resolve()
    if path.is_relative_to(root):
        path = environment.folder / path.relative_to(root)
    return f"{path}:{name}"
