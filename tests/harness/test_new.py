"""`assay new` through the real command line: what it writes runs green, and what it says is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml
from pydantic import TypeAdapter

from harness.case.load import load_file
from harness.kinds import KIND_NAMES, get_kind
from harness.kinds.recurrent.steps import OPERATIONS as RECURRENT_OPERATIONS
from harness.kinds.recurrent.steps import AnyStep as AnyRecurrentStep
from harness.kinds.ring.steps import OPERATIONS, AnyStep
from harness.new import TEMPLATES, new_case, template

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

KINDS = sorted(KIND_NAMES)


def assay(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "metal_assay.command", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_case_runs_green_as_it_stands(kind: str, tmp_path: Path) -> None:
    done = assay("new", f"cases/{kind}/my-behavior.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"wrote cases/{kind}/my-behavior.yaml, a case of kind {kind} that passes as it stands"
    assert lines[2] == f"  assay run cases/{kind}/my-behavior.yaml"
    instances = load_file(tmp_path / "cases" / kind / "my-behavior.yaml")
    assert {(i.kind, i.case_name, i.case.title) for i in instances} == {(kind, f"{kind}/my-behavior", "My behavior")}
    assert 1 < len(instances) <= 12, "several, and quick"
    ran = assay(*lines[2].split()[1:], "-q", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{len(instances)} instances in" in ran.stdout
    assert f": {len(instances)} passed\n" in ran.stdout


def test_the_kind_is_the_folders_unless_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected: dict[tuple[str | None, str | None], tuple[str, str]] = {
        (None, None): ("cases/ring/my-behavior.yaml", "ring"),
        (None, "trellis"): ("cases/trellis/my-behavior.yaml", "trellis"),
        ("cases/affine/one-thing.yaml", None): ("cases/affine/one-thing.yaml", "affine"),
        ("cases/affine/other-thing", "ring"): ("cases/affine/other-thing.yaml", "ring"),
        ("my.project/two-things.yml", None): ("my.project/two-things.yml", "ring"),
    }
    for (path, kind), (written, its_kind) in expected.items():
        new_case(Path(path) if path else None, kind)
        assert load_file(Path(written))[0].kind == its_kind
    (tmp_path / "affine").mkdir()
    monkeypatch.chdir(tmp_path / "affine")
    new_case(Path("here.yaml"), None)
    assert load_file(Path("here.yaml"))[0].kind == "affine"


@pytest.mark.parametrize(
    "name", ["yes", "null", "12", "1e3", "0x1f", "off-by-one", "größer-als-32", "2001-01-01", "a" * 200]
)
def test_any_name_becomes_a_title(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new_case(Path(name), None)
    (title,) = {instance.case.title for instance in load_file(Path(f"{name}.yaml"))}
    assert title == (name.replace("-", " ")[0].upper() + name.replace("-", " ")[1:])[:120]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    (tmp_path / "link.yaml").symlink_to("nowhere.yaml")
    for name in ("mine.yaml", "mine", "link.yaml"):
        done = assay("new", name, cwd=tmp_path)
        shown = name.removesuffix(".yaml") + ".yaml"
        words = f"error: {shown}: exists already and is left alone; choose another name\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", words)
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "mine.yaml"]


def test_what_cannot_be_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "file").write_text("")
    expected = {
        ("--kind", "rign"): "error: no kind 'rign'; did you mean 'ring'?\n",
        ("cases",): "error: cases: is a folder; name a file in it, such as cases/my-behavior.yaml\n",
        ("a.json",): "error: a.json: a case file ends in .yaml; write a.yaml\n",
        ("cases/Two Words.yaml",): (
            "error: cases/Two Words.yaml: a case is named by lower-case words joined by hyphens; "
            "write cases/two-words.yaml\n"
        ),
        ("cases/---.yaml",): (
            "error: cases/---.yaml: a case is named by lower-case words joined by hyphens; "
            "write cases/my-behavior.yaml\n"
        ),
        ("file/a.yaml",): "error: file/a.yaml: can't be written: file is no folder\n",
        ("file/b/a.yaml",): "error: file/b/a.yaml: can't be written: Not a directory\n",
        ("b" * 300 + ".yaml",): f"error: {'b' * 300}.yaml: can't be written: File name too long\n",
    }
    for arguments, words in expected.items():
        done = assay("new", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith(words), arguments
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cases", "file"]


def test_a_path_with_spaces_is_quoted_in_what_is_to_be_typed(tmp_path: Path) -> None:
    done = assay("new", "my cases/one-thing.yaml", cwd=tmp_path)
    assert "  assay run 'my cases/one-thing.yaml'\n" in done.stdout


def test_every_template_is_of_a_kind_that_exists() -> None:
    assert {path.stem for path in TEMPLATES.iterdir()} == set(KIND_NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_comments_name_every_key_check_and_timed_operation(kind: str) -> None:
    model = get_kind(kind).model
    fields = model.model_fields
    text = template(kind)
    given: Any = fields["given"].annotation
    words = [*fields, *given.model_fields, *_choices(fields["check"].annotation)]
    words += _choices(fields["time"].annotation) if "time" in fields else ()
    # `requires`, `limits` and `pins` are for those who read the documentation.
    missing = [w for w in words if not re.search(rf"\b{w}\b", text) and w not in ("requires", "limits", "pins")]
    assert not missing


def _choices(annotation: Any) -> Iterator[str]:
    """Find the words that a list of a Literal may hold."""
    for argument in get_args(annotation):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _choices(argument)


@pytest.mark.parametrize(
    ("kind", "step", "operations"),
    [("ring", AnyStep, OPERATIONS), ("recurrent", AnyRecurrentStep, RECURRENT_OPERATIONS)],
)
def test_every_step_of_the_table_can_be_uncommented(kind: str, step: Any, operations: tuple[str, ...]) -> None:
    lines = [line[1:] for line in template(kind).splitlines() if line.startswith("#  - ")]
    shown = [TypeAdapter(step).validate_python(item).operation for item in yaml.safe_load("\n".join(lines))]
    assert sorted(shown) == sorted(operations)


@pytest.mark.parametrize("kind", KINDS)
def test_optional_lines_can_be_uncommented(kind: str, tmp_path: Path) -> None:
    text = re.sub(r"^# (source|where|time):", r"\1:", template(kind), flags=re.MULTILINE)
    assert text.count("\nsource:") == text.count("\nwhere:") == 1
    assert text.count("\ntime:") == ("time" in get_kind(kind).model.model_fields)
    path = tmp_path / "case.yaml"
    path.write_text(text.replace("$title", "A title"))
    assert load_file(path)
