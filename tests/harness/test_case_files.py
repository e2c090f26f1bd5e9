"""Broken case files: every mistake gets its own place, key and words, quickly, and several are told together."""

from __future__ import annotations

import errno
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.case.load import case_files, load_cases, load_file
from harness.case.source import MAX_DEPTH
from harness.errors import CaseFileError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

# Lines 1 to 4, 5, 6 and 7, 8 of a valid case.
HEAD = "assay: 1\nkind: ring\ntitle: A title\nwhy: A reason\n"
GIVEN = "given: {window: 4, head_dim: 64}\n"
STEPS = "steps:\n  - append: 7\n"
CHECK = "check: [visible]\n"
VALID = HEAD + GIVEN + STEPS + CHECK


def steps(*items: str) -> str:
    """Items stand on lines 7, 8, ..."""
    return HEAD + GIVEN + "steps:\n" + "".join(f"  - {item}\n" for item in items) + CHECK


def ring(text: str) -> str:
    """Stand on line 5, as `given`."""
    return HEAD + f"given: {{{text}}}\n" + STEPS + CHECK


def head(text: str) -> str:
    """Stand on line 5, before everything that is needed."""
    return HEAD + text + GIVEN + STEPS + CHECK


def matrix(text: str, *items: str, where: str = "") -> str:
    """Stand on line 7, `where` on line 8."""
    more = "".join(f"  - {item}\n" for item in items or ["append: 7"])
    return HEAD + GIVEN + f"matrix:\n  {text}\n" + (f"where: {where}\n" if where else "") + "steps:\n" + more + CHECK


BOMB = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
# Thirty doublings: a billion steps if names were put into names without end.
NESTED = matrix(
    "s0: {x: [s1]}\n  " + "\n  ".join(f"s{n}: {{x: [s{n + 1}, s{n + 1}]}}" for n in range(1, 30)) + "\n  s30: [1]", "s0"
)

# name: (file, line, column, key, a telling part of the message)
BROKEN: dict[str, tuple[str | bytes, int, int, str, str]] = {
    # keys
    "wrong key": (HEAD + GIVEN + STEPS + "chekc: [visible]\n", 8, 1, "chekc", "unknown key; did you mean 'check'?"),
    "wrong key of given": (ring("windw: 4"), 5, 9, "given.windw", "unknown key; did you mean 'window'?"),
    "key of nobody": (head("zzz: 1\n"), 5, 1, "zzz", "unknown key; write one of: assay, check"),
    "number as key": (head("7: 1\n"), 5, 1, "7", "unknown key; write one of: assay"),
    "key that YAML reads as true": (head("yes: 1\n"), 5, 1, "yes", "put it in quotes"),
    "key that YAML reads as nothing": (head("~: 1\n"), 5, 1, "~", "put it in quotes"),
    "list as key": (head("? [a, b]\n: c\n"), 5, 3, "", "a key must be a plain word"),
    "duplicate key": (HEAD + GIVEN + GIVEN + STEPS + CHECK, 6, 1, "given", "it stands on line 5 already"),
    "duplicate inner key": (ring("window: 4, window: 5"), 5, 20, "given.window", "it stands on line 5 already"),
    "missing key": (HEAD + GIVEN + STEPS, 1, 1, "", "the key 'check' is missing"),
    "missing inner key": (ring("rows: 2"), 5, 8, "given", "the key 'window' is missing"),
    "missing given": (HEAD + STEPS + CHECK, 1, 1, "", "the key 'given.window' is missing"),
    "missing argument": (
        steps("append: 3", "begin: round", "rollback: {}"), 9, 15, "steps[2].rollback", "the key 'keep' is missing",
    ),
    "number as key of given": (ring("window: 4, 7: 1"), 5, 20, "given.7", "unknown key; write one of:"),
    # the frame
    "version 2": (VALID.replace("assay: 1", "assay: 2"), 1, 8, "assay", "it reads `assay: 1`"),
    "version as text": (VALID.replace("assay: 1", 'assay: "1"'), 1, 8, "assay", "it reads `assay: 1`"),
    "version true": (VALID.replace("assay: 1", "assay: true"), 1, 8, "assay", "it reads `assay: 1`"),
    "version 1.0": (VALID.replace("assay: 1", "assay: 1.0"), 1, 8, "assay", "it reads `assay: 1`"),
    "version missing": (VALID.replace("assay: 1\n", ""), 1, 1, "", "write `assay: 1` at the top"),
    "unknown kind": (VALID.replace("ring", "rnig"), 2, 7, "kind", "'rnig' is no kind; did you mean 'ring'?"),
    "kind as list": (VALID.replace("ring", "[ring]"), 2, 7, "kind", "must be one word"),
    "kind missing": (VALID.replace("kind: ring\n", ""), 1, 1, "", "the key 'kind' is missing; write one of:"),
    "title as number": (VALID.replace("A title", "12"), 3, 8, "title", "must be text, not 12"),
    "title too long": (VALID.replace("A title", "x" * 121), 3, 8, "title", "at most 120 characters"),
    "title empty": (VALID.replace("A title", "''"), 3, 8, "title", "must not be empty"),
    "why with nothing": (VALID.replace("why: A reason", "why:"), 4, 5, "why", "must be text, not nothing"),
    "list at the top": ("- assay: 1\n- kind: ring\n", 1, 1, "", "must be a mapping that starts with `assay: 1`"),
    "text at the top": ("hello\n", 1, 1, "", "must be a mapping that starts with `assay: 1`"),
    "given as list": (HEAD + "given: [window]\n" + STEPS + CHECK, 5, 8, "given", "must be a mapping with keys such as"),
    "limit in words": (head("limits: {seconds: soon}\n"), 5, 19, "limits.seconds", "must be a number, not 'soon'"),
    "limit without end": (head("limits: {seconds: .inf}\n"), 5, 19, "limits.seconds", "must be a number, not inf"),
    "limit of nothing": (head("limits: {seconds: 0}\n"), 5, 19, "limits.seconds", "must be more than 0"),
    # bytes and YAML
    "empty file": ("", 1, 1, "", "is empty; `assay: 1` and `kind:` come first"),
    "only comments": ("# one\n# two\n", 1, 1, "", "is empty"),
    "tab": (HEAD + "given:\n\twindow: 4\n" + STEPS + CHECK, 6, 1, "", "a tab can't indent YAML; use spaces"),
    "not UTF-8": (head("source: caf\xe9\n").encode("latin-1"), 5, 12, "", "byte 0xe9); save the file as UTF-8"),
    "UTF-16": (VALID.encode("utf-16"), 1, 1, "", "is UTF-16; save the file as UTF-8"),
    "NUL": (head("source: a\0b\n"), 5, 10, "", "the character 0x00, which YAML does not allow"),
    "2 MiB": (VALID + f"#{'x' * (2 << 20)}\n", 1, 1, "", "is larger than 256 KiB"),
    "long text": (head(f"source: {'x' * 4001}\n"), 5, 9, "source", "has 4001 characters; 4000 are allowed"),
    "two documents": (VALID + "---\n" + VALID, 9, 1, "", "write one case a file"),
    "colon in a title": (VALID.replace("A title", "One: two"), 3, 11, "", "put a text that holds one in quotes"),
    "open bracket": (HEAD + "given: {window: 4\n" + STEPS + CHECK, 6, 6, "", "is not YAML: expected ',' or '}'"),
    "open quote": (HEAD + "source: 'abc\n" + GIVEN, 5, 9, "", "unexpected end of stream while scanning a quoted"),
    "thousands of brackets": (head(f"source: {'[' * 5000}\n"), 5, 9 + MAX_DEPTH, "", "more than 40 levels deep"),
    "thousands of dashes": (head("source:\n" + "- " * 5000 + "a\n"), 6, 2 * MAX_DEPTH + 1, "", "more than 40 levels"),
    "alias bomb": (head(BOMB), 5, 5, "", "case files have no anchors and aliases: write the value out"),
    "alias": (head("source: *a\n"), 5, 9, "", "case files have no anchors and aliases"),
    "merge key": (ring("<<: {window: 4}"), 5, 9, "given.<<", "no merge keys: write the keys out"),
    "Python tag": (head("source: !!python/name:os.system x\n"), 5, 9, "source", "case files have no tags"),
    "set": (head("source: !!set {a}\n"), 5, 9, "source", "case files have no tags"),
    "date": (head("source: 2024-12-05\n"), 5, 9, "source", "YAML reads this as a date; put it in quotes"),
    "date that can't be": (head("source: 2024-13-45\n"), 5, 9, "source", "YAML reads this as a date"),
    "bool that is none": (head("limits: !!bool perhaps\n"), 5, 9, "", "is not valid"),
    "number without digits": (ring("window: 0x_"), 5, 17, "", "is not valid"),
    # given
    "window yes": (ring("window: yes"), 5, 17, "given.window", "arithmetic such as `window + 1`, not true"),
    "window as list": (ring("window: [4]"), 5, 17, "given.window", "not [4]; or write none"),
    "window None": (ring("window: None"), 5, 17, "given.window", "did you mean 'none'?"),
    "window 0": (ring("window: 0"), 5, 17, "given.window", "must be 1 or more, not 0; or write none"),
    "window nan": (ring("window: .nan"), 5, 17, "given.window", "not nan"),
    "rows inf": (ring("window: 4, rows: .inf"), 5, 26, "given.rows", "not inf"),
    "wrong dtype": (ring("window: 4, dtype: float"), 5, 27, "given.dtype", "did you mean 'float32'?"),
    "storage of 7 bits": (ring("window: 4, storage: affine7x64"), 5, 29, "given.storage", "bits are 1, 2, 3, 4, 5, 6"),
    "storage misspelled": (ring("window: 4, storage: plian"), 5, 29, "given.storage", "write plain, or affine<bits>x"),
    "half a group": (
        ring("window: 4, storage: affine4x64, value_dim: 64, head_dim: 96"),
        5, 66, "given.head_dim", "multiple of the group size 64",
    ),
    "too many sinks": (ring("window: 4, sinks: 4"), 5, 27, "given.sinks", "must be fewer than the window (4)"),
    # matrix and where
    "empty matrix": (head("matrix: {}\n"), 5, 9, "matrix", "at least one key with a list of values"),
    "matrix of nothing": (head("matrix:\n"), 5, 8, "matrix", "at least one key with a list of values"),
    "no values": (matrix("rows: []"), 7, 3, "matrix.rows", "is empty: no instance would run"),
    "one value": (matrix("rows: 3"), 7, 3, "matrix.rows", "must be a list of values"),
    "values twice": (matrix("rows: [1, 2, 1]"), 7, 3, "matrix.rows", "has the value 1 twice"),
    "values alike in ids": (matrix("rows: [1, '1']"), 7, 3, "matrix.rows", "has the value 1 twice"),
    "value with a comma": (matrix("x: ['a,y=b']", "x"), 7, 3, "matrix.x", "name the value: `x: {a-name: ...}`"),
    "steps without a name": (matrix("x: [[{append: 1}]]", "x"), 7, 3, "matrix.x", "name the value"),
    "key used nowhere": (matrix("tokns: [1, 2]"), 7, 3, "matrix.tokns", "is used nowhere"),
    "key named in words only": (matrix("reason: [1, 2]"), 7, 3, "matrix.reason", "is used nowhere"),
    "a million combinations": (
        matrix(f"rows: {list(range(1, 1001))}\n  seed: {list(range(1000))}"),
        6, 1, "matrix", "has 1000000 combinations; 5000 are allowed",
    ),
    "names in names": (NESTED, 7, 12, "matrix.s0.x[0]", "is no step"),
    "thousands of steps": (
        matrix(f"x: {{a: [{', '.join(['{append: 1}'] * 100)}]}}", *["x"] * 51), 8, 1, "steps", "more than 5000 steps",
    ),
    "wrong value": (matrix("rows: [1, -2, 3]"), 7, 13, "matrix.rows[1]", "must be 1 or more, not -2 (in [rows=-2])"),
    "values wrong in many": (
        matrix("n: [1, 2, 3]", "append: n - 3"), 9, 13, "steps[0].append", "not -2 (in [n=1], and 2 more)",
    ),
    "wrong step of an alternative": (
        matrix("more: {good: [{append: 1}], bad: [{append: 1}, {append: 0}]}", "append: 1", "more"),
        7, 59, "matrix.more.bad[1].append", "must be 1 or more, not 0 (in [more=bad])",
    ),
    "matrix breaks given": (
        matrix("seed: [1]\n  sinks: [1, 4]"),
        8, 14, "matrix.sinks[1]", "must be fewer than the window (4) (in [seed=1,sinks=4])",
    ),
    "where not boolean": (matrix("n: [1, 2]", "append: n", where="n"), 8, 8, "where", "'n' is no condition"),
    "where as number": (matrix("n: [1, 2]", "append: n", where="1"), 8, 8, "where", "must be a condition"),
    "where true": (matrix("n: [1, 2]", "append: n", where="true"), 8, 8, "where", "must be a condition"),
    "where of nothing": (matrix("n: [1]", "append: n", where="[]"), 8, 8, "where", "must be a condition"),
    "where keeps nothing": (matrix("n: [1, 2]", "append: n", where="n > 2"), 8, 8, "where", "no instance would run"),
    "where misspelled": (matrix("n: [1, 2]", "append: n", where="windo > n"), 8, 8, "where", "did you mean 'window'?"),
    "where with =": (matrix("n: [1, 2]", "append: n", where="n = 2"), 8, 8, "where", "write `==` to compare"),
    "where without matrix": (head("where: window > 2\n"), 5, 1, "where", "combinations of a `matrix`, and there is"),
    # steps
    "no steps": (HEAD + GIVEN + "steps: []\n" + CHECK, 6, 8, "steps", "must not be empty"),
    "steps as text": (HEAD + GIVEN + "steps: append 7\n" + CHECK, 6, 8, "steps", "must be a list, not 'append 7'"),
    "step misspelled": (steps("apend: 7"), 7, 5, "steps[0]", "'apend' is no step; did you mean 'append'?"),
    "bare step misspelled": (steps("append: 7", "comit"), 8, 5, "steps[1]", "did you mean 'commit'?"),
    "step without argument": (steps("append"), 7, 5, "steps[0]", "needs its argument"),
    "step as number": (steps("7"), 7, 5, "steps[0]", "7 is no step; write for example `- append: 3`"),
    "two steps in one": (steps("{append: 3, trim: 1}"), 7, 5, "steps[0]", "make them two items"),
    "step with a wrong key": (steps("{append: 3, rows: 1}"), 7, 17, "steps[0].rows", "unknown key"),
    "step expects nonsense": (
        steps("append: 3", "{trim: 1, expect: refusd}"), 8, 23, "steps[1].expect", "did you mean 'refused'?",
    ),
    "commit with argument": (steps("append: 3", "begin: round", "commit: 3"), 9, 13, "steps[2].commit", "takes no val"),
    "append 0": (steps("append: 0"), 7, 13, "steps[0].append", "must be 1 or more, not 0"),
    "append -1": (steps("append: -1"), 7, 13, "steps[0].append", "must be 1 or more, not -1"),
    "append true": (steps("append: true"), 7, 13, "steps[0].append", "not true"),
    "append 1.5": (steps("append: 1.5"), 7, 13, "steps[0].append", "not 1.5"),
    "append nothing": (steps("append:"), 7, 12, "steps[0].append", "not nothing"),
    "5000 digits": (steps(f"append: {'9' * 5000}"), 7, 13, "steps[0].append", "5000 characters; 40 are allowed"),
    "unknown name": (steps("append: windw + 1"), 7, 13, "steps[0].append", "did you mean 'window'?"),
    "division by zero": (steps("append: window // 0"), 7, 13, "steps[0].append", "division or modulo by zero"),
    "fraction": (steps("append: window / 2"), 7, 13, "steps[0].append", "`/` gives fractions; write `//`"),
    "tower of powers": (steps("append: 9 ** 9 ** 9 ** 9"), 7, 13, "steps[0].append", "only whole numbers, names"),
    "huge shift": (steps("append: 1 << 99999999999"), 7, 13, "steps[0].append", "only whole numbers, names"),
    "huge product": (steps("append: 9999999 * 9999999"), 7, 13, "steps[0].append", "out of all proportion"),
    "text without end": (steps("\"append\": \"'a' * 9999999999\""), 7, 15, "steps[0].append", "'a' is no whole number"),
    "import": (steps("append: __import__('os')"), 7, 13, "steps[0].append", "only whole numbers, names"),
    "attribute": (steps("append: window.real"), 7, 13, "steps[0].append", "only whole numbers, names"),
    "method": (steps("append: \"'a'.ljust(9999999999)\""), 7, 13, "steps[0].append", "only whole numbers, names"),
    "long expression": (steps(f"append: {'1 + ' * 100}1"), 7, 13, "steps[0].append", "longer than 200 characters"),
    # the order of steps
    "commit without begin": (steps("append: 3", "commit"), 8, 5, "steps[1]", "no round is open; put `- begin: round`"),
    "chunk without prepare": (steps("append: 3", "chunk: 2"), 8, 12, "steps[1].chunk", "no prefill is open"),
    "finalize twice": (
        steps("prepare: {lengths: [3]}", "chunk: 3", "finalize", "finalize"), 10, 5, "steps[3]", "no prefill is open",
    ),
    "begin twice": (
        steps("append: 3", "begin: round", "begin: round", "commit"), 9, 12, "steps[2].begin", "round is open already",
    ),
    "trim too much": (steps("append: 3", "trim: 4"), 8, 11, "steps[1].trim", "only 3 tokens are held here"),
    "open round": (steps("append: 3", "begin: round", "append: 1"), 7, 3, "steps", "end in an open round"),
    "append in a prefill": (
        steps("prepare: {lengths: [3]}", "append: 3", "finalize"), 8, 13, "steps[1].append", "write `- chunk: 3`",
    ),
    "chunks that don't fit": (
        steps("prefill: {lengths: [3, 4], chunks: [3, 2]}"), 7, 40, "steps[0].prefill.chunks", "padded width",
    ),
    # check and time
    "unknown check": (HEAD + GIVEN + STEPS + "check: [visble]\n", 8, 9, "check[0]", "did you mean 'visible'?"),
    "no check": (HEAD + GIVEN + STEPS + "check: []\n", 8, 8, "check", "must not be empty"),
    "check as text": (HEAD + GIVEN + STEPS + "check: visible\n", 8, 8, "check", "must be a list, not 'visible'"),
    "unknown time": (VALID + "time: [decde]\n", 9, 8, "time[0]", "did you mean 'decode'?"),
}  # fmt: skip


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "broken.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def broken(path: Path) -> CaseFileError:
    with pytest.raises(CaseFileError) as caught:
        load_file(path)
    return caught.value


@pytest.mark.parametrize("name", BROKEN)
def test_each_mistake_is_one_problem_with_its_place_and_words(tmp_path: Path, name: str) -> None:
    text, line, column, key, words = BROKEN[name]
    path = write(tmp_path, text)
    begun = time.process_time()
    error = broken(path)
    # None takes half a second here; the hostile ones, without what stops them, minutes.
    assert time.process_time() - begun < 5
    assert len(error.problems) == 1, str(error)
    (problem,) = error.problems
    assert (problem.line, problem.column, problem.key) == (line, column, key), str(problem)
    assert words in problem.message
    assert str(error) == f"{path}:{line}:{column}: {f'{key}: ' if key else ''}{problem.message}"
    assert "object at 0x" not in problem.message
    assert error.exit_code == 2


def test_the_base_of_all_these_is_valid(tmp_path: Path) -> None:
    (instance,) = load_file(write(tmp_path, VALID))
    assert instance.kind == "ring"


_NUMBERS = ["-1", "99999999999", "1e9", ".nan", "yes", "~", "2024-01-01", "''", "window + 1", "'a' * 9", "affine4x64"]
_NODES = ["[]", "{}", "[[]]", "{a: 1}", "*a", "&a x", "!!set {}", "<<: {}", "7: 1", "- x", "check"]
_SIGNS = ["? ", "| ", ": ", "]", '"', "#", "\t", "\0"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 250), st.integers(0, 12), st.sampled_from(_NUMBERS + _NODES + _SIGNS)),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_stands_in_a_file_is_told_in_words(tmp_path: Path, changes: list[tuple[int, int, str]]) -> None:
    text = matrix(
        "n: [1, 2]\n  more: {a: [{append: 1}]}", "append: n", "more", "{trim: 1, expect: refused}", where="n < 3"
    )
    for start, length, piece in changes:
        text = text[:start] + piece + text[start + length :]
    try:
        said = str(load_file(write(tmp_path, text)))
    except CaseFileError as error:
        said = str(error)
    for word in ("object at 0x", "pydantic", "Input should"):
        assert word not in said


@pytest.mark.parametrize("name", ["alias bomb", "2 MiB", "names in names", "text without end", "thousands of dashes"])
def test_hostile_files_cost_no_memory(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, BROKEN[name][0])
    broken(path)
    tracemalloc.start()
    try:
        broken(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


def test_several_mistakes_are_told_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
assay: 1
kind: ring
title: A title
given: {windw: 4, head_dim: -3, dtype: float8}
steps:
  - apend: 7
  - append: 0
  - {append: 3, trim: 1}
chekc: [visible]
time: [decode, encode]
"""
    places = [(problem.line, problem.column, problem.key) for problem in broken(write(tmp_path, text)).problems]
    assert places == [
        (1, 1, ""),
        (4, 9, "given.windw"),
        (4, 29, "given.head_dim"),
        (4, 40, "given.dtype"),
        (6, 5, "steps[0]"),
        (7, 13, "steps[1].append"),
        (8, 5, "steps[2]"),
        (9, 1, "chekc"),
        (10, 16, "time[1]"),
    ]


def test_two_steps_that_can_not_follow_are_both_told(tmp_path: Path) -> None:
    error = broken(write(tmp_path, steps("append: 2", "commit", "trim: 3", "begin: round")))
    assert [problem.key for problem in error.problems] == ["steps", "steps[1]", "steps[2].trim"]


def test_mistakes_of_the_matrix_hide_nothing_that_stands_for_itself(tmp_path: Path) -> None:
    text = matrix("nobody: [1]\n  rows: []").replace("why: A reason\n", "")
    messages = str(broken(write(tmp_path, text)))
    assert "is used nowhere" in messages
    assert "is empty" in messages
    assert "'why' is missing" in messages


def test_a_mistake_of_one_combination_names_it_and_one_of_all_does_not(tmp_path: Path) -> None:
    one = broken(write(tmp_path, matrix("n: [1, 2]", "append: 1", "trim: n")))
    assert [str(problem).partition(" (in ")[2] for problem in one.problems] == ["[n=2])"]
    every = broken(write(tmp_path, matrix("n: [1, 2]", "append: n", "apend: n")))
    assert [problem.message for problem in every.problems] == ["'apend' is no step; did you mean 'append'?"]


@pytest.mark.parametrize(
    "data",
    [
        VALID.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + VALID.encode(),
        b"\xef\xbb\xbf" + VALID.replace("\n", "\r\n").encode(),
        VALID.rstrip("\n").encode(),
        f"---\n{VALID}...\n".encode(),
    ],
    ids=["Windows line endings", "byte order mark", "both", "no newline at the end", "document marks"],
)
def test_files_of_every_editor_load_alike_also_from_a_folder(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    (digest,) = {instance.digest for instance in load_cases([tmp_path])}
    path.write_text(VALID)
    assert digest == load_file(path)[0].digest


def test_windows_line_endings_move_no_line(tmp_path: Path) -> None:
    (problem,) = broken(write(tmp_path, (HEAD + GIVEN + STEPS + "chekc: []\n").replace("\n", "\r\n"))).problems
    assert (problem.line, problem.column) == (8, 1)


def test_nesting_up_to_the_limit_is_a_matter_of_the_schema(tmp_path: Path) -> None:
    # The mapping and the list below `source` are two levels.
    inside = broken(write(tmp_path, head(f"source: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}\n")))
    assert "must be text" in str(inside)


def test_paths_that_are_no_case_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml: no such file or folder"):
        load_cases([tmp_path / "nowhere.yaml"])
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"folder\.yaml: holds no case file"):
        load_cases([folder])
    (problem,) = broken(folder).problems
    assert problem.message == "can't be read: Is a directory"
    (folder / "settings.yaml").write_text("assay-mode: on\nother: 1\n")
    with pytest.raises(UsageError, match="holds no case file"):
        load_cases([folder])


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = write(tmp_path, VALID)
    # Root, under which containers run tests, may read whatever its mode says.
    monkeypatch.setattr(type(path), "open", refuse)
    assert str(broken(path)) == f"{path}:1:1: can't be read: Permission denied"


def test_two_files_with_one_name(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(VALID)
    (tmp_path / "one.yml").write_text(VALID)
    with pytest.raises(CaseFileError) as caught:
        load_cases([tmp_path])
    (problem,) = caught.value.problems
    assert problem.path.endswith("one.yml")
    assert problem.message.startswith("has the name")
    assert problem.message.endswith("one.yaml has; rename one of them")


def test_a_file_named_twice_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, VALID)
    monkeypatch.chdir(tmp_path)
    assert len(case_files([".", path, "broken.yaml", tmp_path / ".." / tmp_path.name])) == 1


def test_mistakes_of_all_files_are_told(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(VALID.replace("visible", "visble"))
    (tmp_path / "good.yaml").write_text(VALID)
    with pytest.raises(CaseFileError) as caught:
        load_cases([tmp_path])
    assert [problem.path for problem in caught.value.problems] == [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
