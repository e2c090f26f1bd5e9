"""`assay new`: a small case that passes as it stands, with comments that say what else could be written."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import yaml

from harness.case.load import SUFFIXES
from harness.case.problem import nearest
from harness.errors import UsageError
from harness.kinds import KIND_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TITLE_CHARS = 120

# One file a kind. Every line of theirs is valid once its `#` is taken away; the tests do that.
TEMPLATES = Path(__file__).parent / "templates"
DESCRIPTION = Path(__file__).parent / "kinds" / "kernel" / "description.yaml"


def new_case(path: Path | None, kind: str | None) -> list[str]:
    """Write a case and return what to tell the user: where it is and what to do next.

    Without `kind`, the folder of `path` is taken for one if it is called so, else it is `ring`. Without `path`, it is
    `cases/<kind>/my-behavior.yaml`. Raises UsageError for a bad path or kind, and when the file exists.
    """
    if kind is None:
        folder = path.absolute().parent.name if path is not None else ""
        kind = folder if folder in KIND_NAMES else "ring"
    if kind not in KIND_NAMES:
        raise UsageError(f"no kind '{kind}'{nearest(kind, KIND_NAMES)}")
    path = Path("cases", kind, "my-behavior.yaml") if path is None else path
    with _told(path):
        path = _checked(path)
        _write(path, Template(template(kind)).substitute(title=_yaml_text(_title(path.stem))))
    shown = shlex.quote(str(path))
    return [
        f"wrote {path}, a case of kind {kind} that passes as it stands",
        "next: change it to say what you want to test; its comments tell what can be written. Then",
        f"  assay run {shown}",
        f"  assay run {shown} --subject path/to/mine.py:Mine",
    ]


def new_description(path: Path | None) -> list[str]:
    """Write a description of one kernel for `assay kernel`, and return what to tell the user; raises UsageError."""
    path = Path("my-kernel.yaml") if path is None else path
    with _told(path):
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; name a file in it, such as {path / 'my-kernel.yaml'}")
        path = path.with_suffix(SUFFIXES[0]) if not path.suffix else path
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: a description ends in .yaml; write {path.with_suffix('.yaml')}")
        _write(path, DESCRIPTION.read_text(encoding="utf-8"))
    return [
        f"wrote {path}, a kernel that is clean as it stands",
        "next: put your kernel, its inputs and its launch there; its comments tell what can be written. Then",
        f"  assay kernel {shlex.quote(str(path))}",
    ]


def template(kind: str) -> str:
    """Return the text of a new case of this kind, with `$title` where the title goes."""
    return (TEMPLATES / f"{kind}.yaml").read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made here or not at all: nobody's file is overwritten, also not one that appears this very moment.
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in words why a file can't be written; `path` may still lack its suffix."""
    try:
        yield
    except FileExistsError as error:
        if error.filename not in (str(path), str(path.with_suffix(SUFFIXES[0]))):
            raise UsageError(f"{path}: can't be written: {error.filename} is no folder") from None
        raise UsageError(f"{error.filename}: exists already and is left alone; choose another name") from None
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


def _checked(path: Path) -> Path:
    """Return the path with a suffix; raises UsageError for one that can't name a case well."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it, such as {path / 'my-behavior.yaml'}")
    if not path.suffix:
        path = path.with_suffix(SUFFIXES[0])
    # Ids, patterns and `--select` are easy to type with such names only.
    words = "-".join(re.findall(r"[^\W_]+", path.stem.lower()))
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: a case file ends in .yaml; write {path.with_suffix('.yaml')}")
    if path.stem != words:
        better = path.with_name(f"{words or 'my-behavior'}{path.suffix}")
        raise UsageError(f"{path}: a case is named by lower-case words joined by hyphens; write {better}")
    return path


def _title(name: str) -> str:
    """Make the beginning of a sentence of a file's name."""
    words = name.replace("-", " ")[:MAX_TITLE_CHARS].strip()
    return words[0].upper() + words[1:]


def _yaml_text(text: str) -> str:
    """Write a text that YAML reads as itself: `Yes` and `12` need quotes."""
    return text if yaml.safe_load(f"title: {text}") == {"title": text} else json.dumps(text, ensure_ascii=False)
