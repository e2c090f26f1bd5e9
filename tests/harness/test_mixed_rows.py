"""Rows stored each in its own way, and what they lend: right fakes pass, wrong ones are caught, files are checked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.baseline.ring import Histories, Row
from harness.case.load import load_file
from harness.execute import execute
from harness.kinds import get_kind
from harness.outcome import Outcome
from tests.fakes.mixed import NaiveMixed, NaiveRows
from tests.fakes.mixed_mistakes import MIXED_MISTAKES

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases"


@cache
def instances(name: str) -> list[Instance]:
    return load_file(CASES / f"{name}.yaml")


def subject(ring: type[NaiveRows]) -> NaiveMixed:
    fake = NaiveMixed()
    fake.ring_class = ring  # type: ignore[misc]  # the class variable of this one object
    return fake


LONG = "a-long-batch-of-mixed-rows"
# Timed cases are large, and so is the long one; their behavior is that of smaller ones.
FILES = [
    f"{path.parent.name}/{path.stem}"
    for path in sorted([*CASES.glob("donor/*.yaml"), *CASES.glob("ring/*.yaml")])
    if "time:" not in path.read_text()
    and path.stem != LONG
    and ("layout" in path.read_text() or "crossing:" in path.read_text() or path.parent.name == "donor")
]


@pytest.mark.parametrize("name", FILES)
def test_a_right_batch_passes(name: str) -> None:
    every = instances(name)
    few = {item.id: item for item in (every[0], every[-1])}
    for instance in few.values():
        result = execute(instance, NaiveMixed())
        assert result.outcome is Outcome.PASSED, (instance.id, result)


@pytest.mark.parametrize("mistake", MIXED_MISTAKES)
def test_each_mistake_is_caught_by_the_case_made_for_it(mistake: str) -> None:
    ring, name = MIXED_MISTAKES[mistake]
    assert any(execute(instance, subject(ring)).outcome is Outcome.FAILED for instance in instances(name))


def test_a_row_lends_its_newest_tokens_and_one_fewer_only_where_the_last_update_left_none() -> None:
    histories = Histories(4, rows=[Row(), Row()])
    histories.append([[1, 2, 3, 4, 5], [11]])
    assert histories.lent(0, None) == [[2, 3, 4, 5]]
    assert histories.lent(0, 2) == [[4, 5]]
    assert histories.lent(1, None) == [[11]]
    histories.append([[6, 7], [12, 13]])
    histories.cut([6, 1])
    # Row 0 kept a token of its last update, row 1 kept none.
    assert histories.lent(0, None) == [[3, 4, 5, 6]]
    assert histories.lent(1, None) == [[11], [11]]
    histories.append([[], [14]])
    assert histories.lent(0, 9) == [[3, 4, 5, 6], [4, 5, 6]]
    assert histories.lent(0, 3) == [[4, 5, 6], [4, 5, 6]]
    histories.extract(0, 2)
    assert histories.lent(0, None) == [[5, 6], [5, 6]]


def complaints(kind: str, given: dict[str, Any] | None = None, **keys: Any) -> dict[tuple[str | int, ...], str]:
    content = {
        "assay": 1,
        "kind": kind,
        "title": "t",
        "why": "w",
        "steps": [{"append": 3}],
        "check": ["visible"],
        **keys,
    }
    case = get_kind(kind).model.model_validate({**content, "given": {"window": 4, **(given or {})}})
    return dict(get_kind(kind).complaints(case))


@pytest.mark.parametrize(
    ("kind", "given", "keys", "place", "words"),
    [
        ("ring", {"layout": "affine"}, {}, ("given", "layout"), "write for example `storage: affine4x64`"),
        ("ring", {"crossing": 4}, {}, ("given", "crossing"), "needs `storage: affine...`"),
        (
            "ring",
            {"crossing": 4, "storage": "affine4x32", "layout": "aligned"},
            {},
            ("given", "crossing"),
            "leave one out",
        ),
        (
            "ring",
            {},
            {"steps": [{"append": 1}, {"quantize": {"bits": 4, "group": 32, "rows": [1]}}]},
            ("steps", 1, "quantize", "rows"),
            "there is no row 1: rows are 0..0 here",
        ),
        (
            "ring",
            {},
            {"steps": [{"append": 1}, {"pin": {"columns": 1}}]},
            ("steps", 1, "pin"),
            "`pins: reference`",
        ),
        (
            "ring",
            {},
            {"pins": "reference", "steps": [{"append": 1}, {"pin": {"colums": 1}}]},
            ("steps", 1, "pin", "colums"),
            "did you mean 'columns'",
        ),
        (
            "donor",
            {},
            {"pins": "reference", "steps": [{"append": 1}, {"pin": {"columns": 1}}]},
            ("steps", 1, "pin", "columns"),
            "'columns' can't be pinned; write one of: ends, starts, width",
        ),
        ("donor", {}, {"lend": {"decoded": True}}, ("lend", "decoded"), "does nothing to plain storage"),
        ("donor", {}, {"check": ["untouched"]}, ("check",), "write it beside `visible`"),
        ("donor", {}, {"steps": [{"append": 1}, {"donor": {}}]}, ("steps", 1, "donor"), "write `- check`"),
    ],
)
def test_what_does_not_go_together_is_said(
    kind: str, given: dict[str, Any], keys: dict[str, Any], place: tuple[str | int, ...], words: str
) -> None:
    assert words in complaints(kind, given, **keys)[place]


def test_pins_are_asked_of_the_one_they_name_alone() -> None:
    content = {
        "assay": 1,
        "kind": "ring",
        "title": "t",
        "why": "w",
        "pins": "reference",
        "given": {"window": 4},
        "steps": [{"append": 3}, {"pin": {"columns": 77}}],
        "check": ["visible"],
    }
    from harness.kinds.base import Notes, StopInstance

    kind = get_kind("ring")
    case = kind.model.model_validate(content)
    kind.run(case, NaiveMixed(), Notes())
    pytest.importorskip("mlx.core")
    from harness.subjects.registry import load_subject

    notes = Notes()
    with pytest.raises(StopInstance):
        kind.run(case, load_subject("reference"), notes)
    assert (notes.findings[0].check, notes.findings[0].expected, notes.findings[0].actual) == (
        "pin",
        "columns 77",
        "columns 3",
    )


def test_a_donor_step_stands_in_a_ring_case_too() -> None:
    content = {
        "assay": 1,
        "kind": "ring",
        "title": "t",
        "why": "w",
        "given": {"window": 4},
        "steps": [{"append": 6}, {"donor": {"window": 2}}, {"decode": 1}],
        "check": ["visible", "stored", "attention"],
    }
    from harness.kinds.base import Notes, StopInstance

    kind = get_kind("ring")
    case = kind.model.model_validate(content)
    kind.run(case, NaiveMixed(), Notes())
    notes = Notes()
    ring, _ = MIXED_MISTAKES["ignores the layer's window"]
    with pytest.raises(StopInstance):
        kind.run(case, subject(ring), notes)
    assert notes.findings[0].where.startswith("step 2 (donor {window: 2, decoded: False}): lent, window 2: row 0")
    assert any("lends {5, 6} to a layer of window 2" in line for line in kind.describe(case))
