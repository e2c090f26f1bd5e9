"""From a case to its instances: ids, order, `where`, names, alternatives, arithmetic, digests."""

from __future__ import annotations

import itertools
import json
import operator
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.case.expand import combinations
from harness.case.load import case_name, load_file
from harness.errors import CaseFileError
from harness.kinds.ring.schema import RingCase

if TYPE_CHECKING:
    from pathlib import Path

    from harness.case.expand import Instance

BASE: dict[str, Any] = {
    "assay": 1,
    "kind": "ring",
    "title": "A title",
    "why": "A reason",
    "given": {"window": 4, "head_dim": 64},
    "steps": [{"append": 7}],
    "check": ["visible"],
}


def load(folder: Path, text: str = "", **keys: Any) -> list[Instance]:
    """Load a case: `text` in YAML, on top of a valid one with `keys` changed."""
    path = folder / "cases" / "ring" / "one.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**BASE, **(yaml.safe_load(text) or {}), **keys}
    # JSON is YAML, and has no aliases.
    path.write_text(json.dumps(content, ensure_ascii=False))
    return load_file(path)


def ids(instances: list[Instance]) -> list[str]:
    return [instance.id for instance in instances]


def ring(instance: Instance) -> RingCase:
    assert isinstance(instance.case, RingCase)
    return instance.case


def words(instance: Instance) -> list[str]:
    return [step.text() for step in ring(instance).steps]


def test_without_a_matrix_the_id_is_the_name(tmp_path: Path) -> None:
    assert ids(load(tmp_path)) == ["ring/one"]


def test_ids_are_pinned(tmp_path: Path) -> None:
    # Known failures and records name instances by these ids: a change here breaks other people's files.
    text = """
    matrix:
      window: [none, 4]
      storage: [plain, affine8x32]
      tokens: [1, window_or + 1]
      window_or: [9]
      more: {nothing: [], "two of them": [{append: 1}, {decode: 2}]}
    steps: [append: tokens, more]
    """.replace('"two of them"', "two-of-them")
    assert ids(load(tmp_path, text)) == [
        "ring/one[window=none,storage=plain,tokens=1,window_or=9,more=nothing]",
        "ring/one[window=none,storage=plain,tokens=1,window_or=9,more=two-of-them]",
        "ring/one[window=none,storage=plain,tokens=window_or+1,window_or=9,more=nothing]",
        "ring/one[window=none,storage=plain,tokens=window_or+1,window_or=9,more=two-of-them]",
        "ring/one[window=none,storage=affine8x32,tokens=1,window_or=9,more=nothing]",
        "ring/one[window=none,storage=affine8x32,tokens=1,window_or=9,more=two-of-them]",
        "ring/one[window=none,storage=affine8x32,tokens=window_or+1,window_or=9,more=nothing]",
        "ring/one[window=none,storage=affine8x32,tokens=window_or+1,window_or=9,more=two-of-them]",
        "ring/one[window=4,storage=plain,tokens=1,window_or=9,more=nothing]",
        "ring/one[window=4,storage=plain,tokens=1,window_or=9,more=two-of-them]",
        "ring/one[window=4,storage=plain,tokens=window_or+1,window_or=9,more=nothing]",
        "ring/one[window=4,storage=plain,tokens=window_or+1,window_or=9,more=two-of-them]",
        "ring/one[window=4,storage=affine8x32,tokens=1,window_or=9,more=nothing]",
        "ring/one[window=4,storage=affine8x32,tokens=1,window_or=9,more=two-of-them]",
        "ring/one[window=4,storage=affine8x32,tokens=window_or+1,window_or=9,more=nothing]",
        "ring/one[window=4,storage=affine8x32,tokens=window_or+1,window_or=9,more=two-of-them]",
    ]


def test_labels_are_pinned() -> None:
    values = ["2 * window", [1, 0, 3], [[1, 2], 3], [], None, True, False, -1, 1.5]
    labels = ["2*window", "1-0-3", "1-2-3", "none", "None", "yes", "no", "-1", "1.5"]
    assert [found.suffix for found in combinations({"matrix": {"x": values}})] == [f"[x={label}]" for label in labels]


def test_the_first_key_changes_slowest_and_values_keep_their_order(tmp_path: Path) -> None:
    found = ids(load(tmp_path, matrix={"seed": [9, 1, 5], "rows": [2, 1]}))
    pairs = [(9, 2), (9, 1), (1, 2), (1, 1), (5, 2), (5, 1)]
    assert found == [f"ring/one[seed={seed},rows={rows}]" for seed, rows in pairs]


def test_case_names_are_paths_below_cases(tmp_path: Path) -> None:
    assert case_name(tmp_path / "cases" / "ring" / "a" / "b.yaml") == "ring/a/b"
    assert case_name(tmp_path / "cases" / "old" / "cases" / "c.yml") == "c"
    assert case_name(tmp_path / "x" / "folder" / "b.yaml") == "folder/b"


def test_a_key_of_given_sets_it_and_any_other_is_a_name(tmp_path: Path) -> None:
    first, second = load(tmp_path, "matrix: {window: [8, 16], n: [3]}\nsteps: [append: n]")
    assert ring(first).given.window == 8
    assert ring(second).given.window == 16
    assert words(first) == words(second) == ["append 3"]


def test_values_of_given_may_use_names_and_expressions_may_use_them(tmp_path: Path) -> None:
    text = "given: {window: n, head_dim: 32 * n}\nmatrix: {n: [2, 3]}\nsteps: [append: window + head_dim]"
    assert [(ring(i).given.window, ring(i).given.head_dim, *words(i)) for i in load(tmp_path, text)] == [
        (2, 64, "append 66"),
        (3, 96, "append 99"),
    ]


def test_values_of_the_matrix_are_arithmetic_over_each_other(tmp_path: Path) -> None:
    text = "matrix: {a: [b + 1], b: [2 * c], c: [window, 1]}\nsteps: [append: a, append: 'max(a, b * 3)']"
    assert [words(instance) for instance in load(tmp_path, text)] == [
        ["append 9", "append 24"],
        ["append 3", "append 6"],
    ]


def test_values_that_need_each_other_have_no_value(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="'b \\+ 1' has no value"):
        load(tmp_path, "matrix: {a: [b + 1], b: [a + 1]}\nsteps: [append: a]")


def test_alternatives_are_put_in_place_of_their_name(tmp_path: Path) -> None:
    text = """
    matrix:
      n: [5]
      middle: {none: [], some: [{append: n}, check, {decode: n - 3}]}
    steps: [append: 1, middle, trim: 1]
    check: [visible]
    """
    short, long = load(tmp_path, text)
    assert words(short) == ["append 1", "trim 1"]
    assert words(long) == ["append 1", "append 5", "check", "decode 2", "trim 1"]


def test_alternatives_may_have_names_with_dashes_and_stand_twice(tmp_path: Path) -> None:
    (instance,) = load(tmp_path, "matrix: {a-round: {x: [append: 1]}}\nsteps: [a-round, append: 2, a-round]")
    assert words(instance) == ["append 1", "append 2", "append 1"]


def test_a_list_stands_where_a_list_may_stand(tmp_path: Path) -> None:
    text = "matrix: {keeps: [[0], [1, 2]]}\nsteps: [append: 3, begin: round, append: 2, rollback: {keep: keeps}]"
    kept = ["rollback {keep: [0]}", "rollback {keep: [1, 2]}"]
    assert [words(instance)[-1] for instance in load(tmp_path, text)] == kept
    inside = "matrix: {keeps: [[0], [1, 2]], end: {x: [rollback: {keep: keeps}]}}\n"
    inside += "steps: [append: 3, begin: round, append: 2, end]"
    assert [words(instance)[-1] for instance in load(tmp_path, inside)] == kept


def test_where_keeps_what_fulfills_every_condition(tmp_path: Path) -> None:
    text = """
    matrix: {n: [1, 2, 3, 4, 5], window: [2, none]}
    where: ["window == 'none' or n > window", "not n == 4"]
    steps: [append: n]
    """
    kept = [(1, "none"), (2, "none"), (3, 2), (3, "none"), (5, 2), (5, "none")]
    assert ids(load(tmp_path, text)) == [f"ring/one[n={n},window={window}]" for n, window in kept]


def test_a_combination_that_where_drops_need_not_be_valid(tmp_path: Path) -> None:
    assert len(load(tmp_path, "matrix: {n: [0, 1]}\nwhere: n > 0\nsteps: [append: n]")) == 1


def test_a_used_matrix_key_is_one_that_changes_something(tmp_path: Path) -> None:
    # Only through another key's values, only in `where`, only as an item of `steps`.
    load(tmp_path, "matrix: {n: [1, 2], m: [n + 1]}\nsteps: [append: m]")
    load(tmp_path, "matrix: {n: [1, 2], seed: [1, 2]}\nwhere: n == seed")
    for silent in ("title", "why", "source"):
        with pytest.raises(CaseFileError, match="is used nowhere"):
            load(tmp_path, matrix={"unused": [1, 2]}, **{silent: "unused"})
    with pytest.raises(CaseFileError, match="is used nowhere"):
        load(tmp_path, "matrix: {n: [n + 1, n + 2]}")


def digest(folder: Path, text: str = "", **keys: Any) -> str:
    (instance,) = load(folder, text, **keys)
    return instance.digest


def test_the_digest_is_pinned(tmp_path: Path) -> None:
    # `--resume` compares it with digests in records of other days and machines.
    assert digest(tmp_path) == "9258b928548b0cac"


@pytest.mark.parametrize(
    "keys",
    [{"title": "Another title"}, {"why": "Another reason"}, {"source": "https://example.com"}],
)
def test_what_only_people_read_leaves_the_digest(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert digest(tmp_path, **keys) == digest(tmp_path)


@pytest.mark.parametrize(
    "keys",
    [
        {"given": {"window": 5, "head_dim": 64}},
        {"given": {"window": 4, "head_dim": 64, "seed": 1}},
        {"steps": [{"append": 8}]},
        {"steps": [{"append": 7}, {"append": 7}]},
        {"steps": [{"decode": 7}]},
        {"check": ["stored"]},
        {"time": ["decode"]},
        {"limits": {"seconds": 3}},
        {"requires": ["sinks"]},
    ],
)
def test_what_an_instance_does_changes_the_digest(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert digest(tmp_path, **keys) != digest(tmp_path)


def test_the_digest_sees_what_names_stand_for(tmp_path: Path) -> None:
    one, two = load(tmp_path, "matrix: {n: [1, 2]}\nsteps: [append: n + 3]")
    assert one.digest != two.digest
    again = load(tmp_path, "matrix: {n: [2, 7]}\nsteps: [append: n + 3]")
    assert again[0].digest == two.digest, "other combinations of the matrix don't count"


def test_the_order_of_keys_leaves_the_digest(tmp_path: Path) -> None:
    assert digest(tmp_path, given={"head_dim": 64, "window": 4}) == digest(tmp_path)


_OPERATORS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
_numbers = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)
_alternatives = st.dictionaries(st.sampled_from(["a", "b-c"]), st.just([{"append": 1}]), min_size=1)
_sides = st.sampled_from(["n", "window", "seed", "3"])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(["n", "window", "seed", "more"]),
    numbers=st.fixed_dictionaries({"n": _numbers, "window": _numbers, "seed": _numbers}),
    more=_alternatives,
    conditions=st.lists(st.tuples(_sides, st.sampled_from(sorted(_OPERATORS)), _sides), min_size=1, max_size=2),
)
def test_instances_are_the_product_filtered_by_where(
    tmp_path: Path,
    order: list[str],
    numbers: dict[str, list[int]],
    more: dict[str, Any],
    conditions: list[tuple[str, str, str]],
) -> None:
    values_of: dict[str, Any] = {**numbers, "more": more}
    matrix = {key: values_of[key] for key in order}
    wanted = []
    for picks in itertools.product(*matrix.values()):
        values = dict(zip(order, picks, strict=True))
        if all(_OPERATORS[sign](values.get(left, 3), values.get(right, 3)) for left, sign, right in conditions):
            wanted.append(f"ring/one[{','.join(f'{key}={value}' for key, value in values.items())}]")
    where = [" ".join(condition) for condition in conditions]
    try:
        found = ids(load(tmp_path, matrix=matrix, where=where, steps=[{"append": "n"}, "more"]))
    except CaseFileError as error:
        found = [] if "keeps no combination" in str(error) else [str(error)]
    assert found == wanted


_texts = st.text(alphabet=st.sampled_from("ab=,[]{} \t'\"-1x/"), max_size=6)
_values = st.integers(-1, 12) | st.booleans() | st.none() | _texts | st.lists(st.integers(0, 1) | _texts, max_size=3)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({key: st.lists(_values, min_size=1, max_size=3) for key in ("a", "b")}))
def test_ids_are_unique_or_the_values_are_refused(tmp_path: Path, matrix: dict[str, list[Any]]) -> None:
    try:
        # `requires` takes any word, so both keys count as used.
        found = ids(load(tmp_path, matrix=matrix, requires=["a", "b"]))
    except CaseFileError as error:
        found = []
        refused = {problem.key for problem in error.problems}
    else:
        refused = set()
    assert refused <= {"matrix.a", "matrix.b"}
    assert refused or len(set(found)) == len(found) == len(matrix["a"]) * len(matrix["b"])
    assert all(id_.count("=") == 2 and id_.count(",") == 1 for id_ in found)
