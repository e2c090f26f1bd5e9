"""The JSON Schema that editors check case files with: committed, true of every shipped case, not of mistakes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from harness.case.json_schema import schema, schema_text
from harness.case.load import case_files, shipped_root
from harness.kinds import KIND_NAMES

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SCHEMA = schema()
RING = """
assay: 1
kind: ring
title: A title
why: A reason
given: {window: 4, head_dim: 64}
steps:
  - append: 7
check: [visible]
"""
TRELLIS = """
assay: 1
kind: trellis
title: A title
why: A reason
given: {bits: 3, state_bits: 12, rows: 2, columns: 512}
check: [decode]
"""
AFFINE = """
assay: 1
kind: affine
title: A title
why: A reason
given: {bits: 4, group: 32, dtype: float32}
check: [encode]
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(SCHEMA)
    return Draft202012Validator(SCHEMA)


def test_the_committed_file_is_what_assay_schema_writes() -> None:
    committed = files("harness.case").joinpath("case.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(), "run: assay schema --write harness/case/case.schema.json"


def test_every_shipped_case_is_valid() -> None:
    paths = case_files([shipped_root()])
    assert len(paths) > 50
    # Trying every kind on every case takes ten times as long; that kinds exclude each other is tested below.
    kinds = {kind: Draft202012Validator({**SCHEMA, "oneOf": [_branch(kind)]}) for kind in KIND_NAMES}
    for path in paths:
        case = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 - a safe one
        errors = [error.message for error in kinds[case["kind"]].iter_errors(case)]
        assert not errors, f"{path}: {errors}"


def test_a_case_is_of_one_kind_alone(validator: Draft202012Validator) -> None:
    for kind in KIND_NAMES:
        path = next(path for path in case_files([shipped_root()]) if path.parent.name == kind)
        case = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert [error.message for error in validator.iter_errors(case)] == []
        others = [other for other in KIND_NAMES if other != kind]
        assert not any(Draft202012Validator({**SCHEMA, "oneOf": [_branch(other)]}).is_valid(case) for other in others)


def _branch(kind: str) -> dict[str, Any]:
    definitions = SCHEMA["$defs"]
    return next(
        branch
        for branch in SCHEMA["oneOf"]
        if definitions[branch["$ref"].rpartition("/")[2]]["properties"]["kind"]["const"] == kind
    )


def test_every_kind_is_an_alternative() -> None:
    definitions = SCHEMA["$defs"]
    kinds = {
        definitions[branch["$ref"].rpartition("/")[2]]["properties"]["kind"]["const"] for branch in SCHEMA["oneOf"]
    }
    assert kinds == set(KIND_NAMES)


@pytest.mark.parametrize("text", [RING, TRELLIS, AFFINE], ids=["ring", "trellis", "affine"])
def test_what_loads_is_valid(validator: Draft202012Validator, text: str) -> None:
    assert validator.is_valid(yaml.safe_load(text))
    # What the matrix gives need not stand in `given`, and its names may stand for values, lists and steps.
    case = yaml.safe_load(text)
    given = case.pop("given")
    assert validator.is_valid({**case, "matrix": {key: [value] for key, value in given.items()}})


@pytest.mark.parametrize(
    "steps",
    [
        "[append: n + 1, more, check, check: [stored]]",
        "[append: 3, begin: round, append: n, rollback: {keep: keeps}]",
        "[append: 3, begin: round, append: 1, rollback: {keep: 1}]",
        "[append: 3, begin: round, commit]",
        "[prepare: {lengths: [3, n]}, chunk: 3, finalize]",
        "[append: {tokens: 3}, {trim: 1, expect: refused}]",
        "[append: 3, save-load, copy: deep, donor: {window: 3}]",
        "[merge: {rows: [[append: 3], [], some-steps]}]",
        "[merge: {rows: all-rows}, extend: {rows: [[{append: n + 1}, {trim: 1}]]}]",
    ],
)
def test_steps_that_load_are_valid(validator: Draft202012Validator, steps: str) -> None:
    assert validator.is_valid({**yaml.safe_load(RING), "steps": yaml.safe_load(steps)})


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (RING, {"chekc": ["visible"]}),
        (RING, {"kind": "rnig"}),
        (RING, {"kind": "trellis"}),
        (RING, {"assay": 2}),
        (RING, {"assay": True}),
        (RING, {"title": ""}),
        (RING, {"title": "x" * 121}),
        (RING, {"check": []}),
        (RING, {"check": "visible"}),
        (RING, {"check": ["visble"]}),
        (RING, {"time": ["decde"]}),
        (RING, {"given": {"windw": 4}}),
        (RING, {"given": {"window": 0}}),
        (RING, {"given": {"window": True}}),
        (RING, {"given": {"window": 4, "dtype": "float"}}),
        (RING, {"given": {"window": 4, "storage": "affine9x64"}}),
        (RING, {"steps": []}),
        (RING, {"steps": [{"apend": 7}]}),
        (RING, {"steps": [{"append": 0}]}),
        (RING, {"steps": [{"append": 1.5}]}),
        (RING, {"steps": [{"append": 3, "trim": 1}]}),
        (RING, {"steps": [{"append": 3, "expect": "refusd"}]}),
        (RING, {"steps": [{"begin": "rond"}]}),
        (RING, {"steps": [7]}),
        (RING, {"matrix": {}}),
        (RING, {"matrix": {"rows": []}}),
        (RING, {"matrix": {"rows": 3}}),
        (RING, {"where": 1}),
        (RING, {"limits": {"second": 1}}),
        (RING, {"limits": {"seconds": 0}}),
        (TRELLIS, {"steps": [{"append": 7}]}),
        (TRELLIS, {"check": ["visible"]}),
        (AFFINE, {"given": {"bits": 7, "group": 32, "dtype": "float32"}}),
        (AFFINE, {"check": ["decod"]}),
    ],
)
def test_typical_mistakes_are_not(validator: Draft202012Validator, text: str, change: dict[str, Any]) -> None:
    assert not validator.is_valid({**yaml.safe_load(text), **change})


@pytest.mark.parametrize("key", ["assay", "kind", "title", "why", "steps", "check"])
def test_missing_keys_are_not(validator: Draft202012Validator, key: str) -> None:
    case = yaml.safe_load(RING)
    del case[key]
    assert not validator.is_valid(case)
