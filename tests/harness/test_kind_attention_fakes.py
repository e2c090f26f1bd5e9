"""Attention with one mistake each: the shipped cases catch every one, and pass the one without a mistake."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_cases, load_file
from harness.kinds.attention import KIND
from harness.kinds.base import Notes, StopInstance
from tests.fakes import rope
from tests.fakes.attention import MISTAKES as OF_ATTENTION
from tests.fakes.attention import Fake, LastKeysLeftOut, Right, TiledHeads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.subjects.protocol import Attention

MISTAKES = OF_ATTENTION + rope.MISTAKES
CASES = Path(__file__).parents[2] / "cases" / "attention"
# The answer is 0: there only other wrong answers show.
ANSWERS_OF_ZERO = ("attention/opposite-values-cancel",)


@cache
def load(case: str) -> tuple[Instance, ...]:
    return tuple(load_file(CASES / f"{case}.yaml"))


def run(instance: Instance, attending: Attention) -> Notes:
    notes = Notes()
    with suppress(StopInstance):
        KIND.run(instance.case, Fake(attending), notes)
    return notes


@pytest.mark.parametrize(("mistake", "case", "check"), MISTAKES, ids=lambda value: getattr(value, "__name__", value))
def test_a_mistake_is_caught(mistake: type[Right], case: str, check: str) -> None:
    found = (finding for one in load(case) for finding in run(one, mistake()).findings)
    first = next(finding for finding in found if finding.check == check)
    assert first.where
    assert first.expected != first.actual


def test_no_mistake_passes_every_case_and_zeros_pass_none() -> None:
    # `assay run` runs them all.
    instances = load_cases([CASES], wanted=lambda ids: set(ids[::6]))
    assert {one.case_name.removeprefix("attention/") for one in instances} == {case for _, case, _ in MISTAKES}
    for instance in instances:
        notes = run(instance, rope.Right())
        assert notes.findings == [], instance.id
        assert notes.comparisons > 0
    for one in {one.case_name: one for one in instances if one.case_name not in ANSWERS_OF_ZERO}.values():
        assert run(one, rope.Zeros()).findings, one.id


def instance(case: str, name: str) -> Instance:
    return {one.id: one for one in load(case)}[f"attention/{case}[{name}]"]


def test_the_evidence_names_the_key_head_whose_value_came() -> None:
    (finding,) = run(instance("query-heads-share-key-heads", "kv_heads=2,share=2,storage=plain"), TiledHeads()).findings
    # Of four query heads the two in the middle read the other kv head.
    assert "in 2 of 4 heads" in finding.note
    assert "which sees all 12 columns; channel " in finding.where
    assert finding.where.startswith(("row 0, head 1 (kv head 0), query 0", "row 0, head 2 (kv head 1), query 0"))


def test_the_evidence_names_the_column_that_was_lost() -> None:
    (finding,) = run(instance("one-token-decodes", "keys=33,dtype=float32"), LastKeysLeftOut()).findings
    # By turns the first key and the last are picked: the last one is behind the last whole block.
    assert "the query picks column 32" in finding.note
    assert "bound " in finding.note


def test_a_wrong_column_is_named() -> None:
    class OneLater(Right):
        def softmax(self, scores: NDArray[Any], sinks: NDArray[Any] | None) -> NDArray[Any]:
            return np.roll(super().softmax(scores, sinks), 1, axis=-1)

    (finding,) = run(instance("one-token-decodes", "keys=31,dtype=float32"), OneLater()).findings
    target = int(finding.note.partition("the query picks column ")[2].partition(",")[0])
    assert f"the answer is the value of column {(target + 1) % 31}, kv head " in finding.note
