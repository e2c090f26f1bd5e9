"""Cases that save and load: right fakes pass them, and each loss on the way is caught by the case made for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.case.load import load_file
from harness.execute import execute
from harness.outcome import Outcome
from tests.fakes.mixed import NaiveMixed
from tests.fakes.saving_mistakes import SAVING_MISTAKES, Saved

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases"


@cache
def instances(name: str) -> list[Instance]:
    return load_file(CASES / f"{name}.yaml")


def subject(ring: type[Saved]) -> NaiveMixed:
    fake = NaiveMixed()
    fake.ring_class = ring  # type: ignore[misc]  # the class variable of this one object
    return fake


@pytest.mark.parametrize("name", sorted({name for _, name in SAVING_MISTAKES.values()}))
def test_a_right_batch_passes(name: str) -> None:
    every = instances(name)
    result = execute(every[len(every) // 2], subject(Saved))
    assert result.outcome is Outcome.PASSED, result


@pytest.mark.parametrize("mistake", SAVING_MISTAKES)
def test_each_loss_is_caught_by_the_case_made_for_it(mistake: str) -> None:
    ring, name = SAVING_MISTAKES[mistake]
    assert any(execute(instance, subject(ring)).outcome is Outcome.FAILED for instance in instances(name))
