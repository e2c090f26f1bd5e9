"""The real command line: exit codes, words and places, help, start-up time, pipes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from harness.case.json_schema import schema_text
from harness.cli import cli, main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ASSAY = [sys.executable, "-m", "metal_assay.command"]
HEAD = "assay: 1\nkind: ring\ntitle: A title\nwhy: A reason\n"
BODY = "given: {window: 4, head_dim: 64}\nsteps:\n  - append: 7\ncheck: [visible]\n"
CASES = {
    "good.yaml": HEAD + "matrix:\n  rows: [1, 2]\n" + BODY,
    "other.yaml": HEAD.replace("A title", "Another title") + BODY,
}
FAILS = """
from harness.subjects.protocol import Subject

class Fails(Subject):
    def ring(self, spec):
        raise ValueError("not today")
"""
BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)

ALLOWED = "whole numbers, names, + - * // %, comparisons, `and`, `or`, `not`, `min(a, b)` and `max(a, b)` can be used"

# file name: (content, what `assay run` says of it, line by line, behind the name)
BROKEN: dict[str, tuple[str | bytes, list[str]]] = {
    "key.yaml": (HEAD + BODY + "chekc: 1\n", [":9:1: chekc: unknown key; did you mean 'check'?"]),
    "tab.yaml": (HEAD + "given:\n\twindow: 4\n", [":6:1: a tab can't indent YAML; use spaces"]),
    "kind.yaml": (HEAD.replace("ring", "rnig"), [":2:7: kind: 'rnig' is no kind; did you mean 'ring'?"]),
    "bomb.yaml": (HEAD + BOMB, [":5:4: case files have no anchors and aliases: write the value out"]),
    "latin.yaml": ("# caf\xe9\n".encode("latin-1"), [":1:6: is not UTF-8 (byte 0xe9); save the file as UTF-8"]),
    "empty.yaml": ("", [":1:1: is empty; `assay: 1` and `kind:` come first"]),
    "list.yaml": ("- a\n", [":1:1: must be a mapping that starts with `assay: 1` and `kind:`"]),
    "version.yaml": (
        HEAD.replace("assay: 1", "assay: 2") + BODY,
        [":1:8: assay: this version is not known to this release; it reads `assay: 1`"],
    ),
    "large.yaml": (
        HEAD + BODY + "#" * (2 << 20),
        [":1:1: is larger than 256 KiB, which is the most that a case file may have"],
    ),
    "step.yaml": (
        HEAD + BODY.replace("append: 7", "append: 7\n  - commit"),
        [":8:5: steps[1]: can't follow: no round is open; put `- begin: round` before it"],
    ),
    "import.yaml": (
        HEAD + BODY.replace("7", "__import__('os')"),
        [f":7:13: steps[0].append: '__import__('os')' has no value: only {ALLOWED}"],
    ),
    "where.yaml": (
        HEAD + "matrix:\n  rows: [1, 2]\nwhere: rows > 2\n" + BODY,
        [":7:8: where: keeps no combination of the matrix: no instance would run"],
    ),
    "several.yaml": (
        HEAD + BODY.replace("window: 4", "windw: 4").replace("append: 7", "append: 0").replace("visible", "visble"),
        [
            ":5:9: given.windw: unknown key; did you mean 'window'?",
            ":7:13: steps[0].append: must be 1 or more, not 0",
            ":8:9: check[0]: 'visble' is not valid here; did you mean 'visible'?",
        ],
    ),
}


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


def assay(*arguments: str, cwd: Path) -> Answer:
    done = subprocess.run([*ASSAY, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr + done.stdout
    return Answer(done.returncode, done.stdout, done.stderr)


def together(commands: Sequence[Sequence[str]], cwd: Path) -> list[Answer]:
    """Run several commands side by side: each takes half a second of start-up alone."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda arguments: assay(*arguments, cwd=cwd), commands))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good cases in `cases/mine`, broken ones in `broken`, an empty folder, a record, and a file that is none."""
    root = tmp_path_factory.mktemp("project")
    for name in ("cases/mine", "broken", "empty"):
        (root / name).mkdir(parents=True)
    for name, text in CASES.items():
        (root / "cases" / "mine" / name).write_text(text)
    for name, (content, _) in BROKEN.items():
        (root / "broken" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (root / "mine.py").write_text(FAILS)
    (root / "notes.txt").write_text("these are\nmy notes\n")
    old = {"assay_record": 1, "versions": {"reference": {"metal-assay": "0.0.1"}}, "benchmark": False}
    (root / "old.jsonl").write_text(json.dumps(old, separators=(",", ":")) + "\n")
    return root


@pytest.mark.slow
def test_every_broken_file_is_told_in_one_go_and_nothing_runs(folder: Path) -> None:
    answers = together([("run", name) for name in BROKEN], folder / "broken")
    for (name, (_, lines)), answer in zip(BROKEN.items(), answers, strict=True):
        assert answer == Answer(2, "", "".join(f"{name}{line}\n" for line in lines))
    assert sorted(path.name for path in (folder / "broken").iterdir()) == sorted(BROKEN), "no record was begun"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("run nowhere.yaml", 2, "error: nowhere.yaml: no such file or folder\n"),
        ("run empty", 2, "error: empty: holds no case file (a YAML file with `assay: 1` at the top)\n"),
        ("list empty", 2, "error: empty: holds no case file (a YAML file with `assay: 1` at the top)\n"),
        ("run --subject mlx-ml", 2, "error: no subject 'mlx-ml'; did you mean 'mlx-lm'?"),
        ("run --subject gone.py:Mine", 2, "error: subject 'gone.py:Mine': there is no file gone.py\n"),
        ("run --kind rnig", 2, "error: no kind 'rnig'; did you mean 'ring'?\n"),
        ("run --select mine/goood", 4, "error: 'mine/goood' matches no instance; did you mean 'mine/good'?\n"),
        ("list --select mine/good[rows=3]", 4, "did you mean 'mine/good[rows=2]'?\n"),
        ("run --select zzzzz*", 4, "'zzzzz*' matches no instance; `assay list` shows what there is\n"),
        ("run --kind trellis", 4, "error: no instance is left to run; `assay list` shows what there is\n"),
        ("show mine/goood", 4, "error: 'mine/goood' matches no instance; did you mean 'mine/good'?\n"),
        ("run --resume notes.txt", 2, "error: notes.txt:1: is no record: the first line must be the header"),
        ("run --resume gone.jsonl", 2, "'gone.jsonl' does not exist"),
        ("run --record a --resume old.jsonl", 2, "error: --record starts a record and --resume goes on"),
        ("run --subjct x", 2, "'--subject'"),
        ("run -j 0", 2, "0 is not in the range x>=1"),
        ("rnu", 2, "No such command 'rnu'"),
        ("schema --write empty/no/such.json", 2, "error: empty/no/such.json: can't be written: No such file"),
    ],
)
def test_what_does_not_exist(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    code: int,
    words: str,
) -> None:
    # In this process: eighteen more would take ten seconds.
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["assay", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (code, "")
    assert words in said.err
    assert said.err.count("error") <= 1, "one error, once"


def test_the_schema_on_stdout_and_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli(["schema"], standalone_mode=False)
    assert capsys.readouterr().out == schema_text()
    cli(["schema", "--write", str(tmp_path / "s.json")], standalone_mode=False)
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == schema_text()


@pytest.mark.slow
def test_what_a_worker_has_to_be_asked_for(folder: Path) -> None:
    (folder / "cases" / "known").mkdir()
    known = folder / "cases" / "known" / "reference.yaml"
    known.write_text("assay-known: 1\nfailures:\n  - {instances: gone, reason: r}\n")
    resumed, refused, judged = together(
        [("run", "--resume", "old.jsonl"), ("run", "cases", "--record", "notes.txt"), ("run", "--record", "new.jsonl")],
        folder,
    )
    known.unlink()
    assert {resumed.code, refused.code, judged.code} == {2}
    assert resumed.err.startswith("error: old.jsonl: was made with metal-assay 0.0.1, and this is")
    assert refused.err.startswith("error: notes.txt: exists and is no record of ours; it is left alone")
    assert judged.err.startswith(f"{known}:3:17: failures[0].instances: 'gone' matches no instance; remove the entry")
    assert (folder / "notes.txt").read_text() == "these are\nmy notes\n"
    assert (folder / "old.jsonl").read_text().count("\n") == 1


def test_what_there_is(folder: Path) -> None:
    listed, instances, shown, subjects, version = together(
        [
            ("list",),
            ("list", "cases", "--instances", "--select", "mine/good"),
            ("show", "mine/good[rows=2]"),
            ("subjects",),
            ("--version",),
        ],
        folder,
    )
    assert {answer.code for answer in (listed, instances, shown, subjects, version)} == {0}
    assert [line.split() for line in listed.out.splitlines()[2:4]] == [
        ["mine/good", "2", "A", "title"],
        ["mine/other", "1", "Another", "title"],
    ]
    assert listed.out.endswith("\n2 cases, 3 instances\n")
    assert instances.out == "mine/good[rows=1]\nmine/good[rows=2]\n"
    assert shown.out.startswith("mine/good[rows=2]\nA title\n\nA reason\n")
    assert shown.out.endswith("file: cases/mine/good.yaml\n")
    assert "append 7" in shown.out
    assert {"reference", "mlx-lm"} <= {line.partition(" ")[0] for line in subjects.out.splitlines()}
    assert version.out.startswith("metal-assay, version ")


def test_every_verb_has_help_with_examples(folder: Path) -> None:
    verbs = [(), *((name,) for name in cli.commands)]
    for verb, answer in zip(verbs, together([(*verb, "--help") for verb in verbs], folder), strict=True):
        assert (answer.code, answer.err) == (0, ""), verb
        name = " ".join(["assay", *verb])
        assert answer.out.startswith(f"Usage: {name} ")
        assert f"\n    {name}" in answer.out.partition("Example")[2], verb
        assert max(map(len, answer.out.splitlines())) <= 110, verb


def without_reader(command: Sequence[str], cwd: Path) -> tuple[int, str]:
    """Run a command whose stdout is closed as by `| head -1`, only surely before anything is written."""
    with subprocess.Popen([*ASSAY, *command], cwd=cwd, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    return process.returncode, said


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_changes_nothing(folder: Path) -> None:
    commands = {
        ("list", "--instances"): 0,
        ("schema",): 0,
        ("run", "-q", "-j", "1", "--record", "wrong.jsonl", "--subject", "mine.py:Fails"): 1,
    }
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda command: without_reader(command, folder), commands))
    assert found == [(code, "") for code in commands.values()]


def test_help_is_quick_and_imports_nothing_heavy(folder: Path) -> None:
    def median_seconds(*command: str) -> float:
        # Processor time: other processes of a busy machine don't count.
        times = []
        for _ in range(5):
            before = os.times()
            subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)
            after = os.times()
            times.append(sum(after[2:4]) - sum(before[2:4]))
        return statistics.median(times)

    assert median_seconds(*ASSAY[1:], "--help") < median_seconds("-c", "pass") + 0.25
    program = "import harness.cli, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    heavy = {"mlx", "numpy", "pydantic", "rich", "scipy", "yaml", "tabulate", "psutil", "hypothesis", "impl"}
    assert "click" in loaded
    assert not loaded & heavy
