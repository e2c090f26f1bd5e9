"""The shipped ring cases pass naive caches that are right, and catch every mistake built into them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.case.load import load_file
from harness.execute import execute
from harness.outcome import Outcome
from tests.fakes.batch_mistakes import BATCH_MISTAKES
from tests.fakes.batches import NaiveBatch, NaiveBatches
from tests.fakes.rings import MISTAKES, Naive, NaiveRing, TrimRefusesAlways

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "ring"


@cache
def instances(name: str) -> list[Instance]:
    return load_file(CASES / f"{name}.yaml")


def _given(text: str) -> dict[str, Any]:
    content = yaml.safe_load(text)
    return {**content["given"], **content.get("matrix", {})}


def few(name: str) -> list[Instance]:
    """Return the first instance and the last."""
    every = instances(name)
    return list({item.id: item for item in (every[0], every[-1])}.values())


def subject(ring: type[NaiveRing]) -> Naive:
    fake = Naive()
    fake.ring_class = ring  # type: ignore[misc]  # the class variable of this one object
    return fake


def batches(ring: type[NaiveBatch]) -> NaiveBatches:
    fake = NaiveBatches()
    fake.ring_class = ring  # type: ignore[misc]  # the class variable of this one object
    return fake


# Other ways to store rows than one ring are looked at in test_mixed_rows.
TOGETHER = [
    path.stem for path in sorted(CASES.glob("*.yaml")) if not {"layout", "crossing"} & _given(path.read_text()).keys()
]


@pytest.mark.parametrize("name", TOGETHER)
def test_a_right_cache_passes(name: str) -> None:
    # Timed cases are large, and their behavior is that of smaller ones.
    for instance in few(name)[: 1 if getattr(instances(name)[0].case, "time", None) else None]:
        result = execute(instance, NaiveBatches())
        assert result.outcome is Outcome.PASSED, (instance.id, result)


@pytest.mark.parametrize("name", sorted({name for _, name in MISTAKES.values()}))
def test_a_right_ring_passes_the_cases_that_catch_wrong_ones(name: str) -> None:
    for instance in few(name):
        result = execute(instance, Naive())
        assert result.outcome is Outcome.PASSED, (instance.id, result)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_caught_by_the_case_made_for_it(mistake: str) -> None:
    ring, name = MISTAKES[mistake]
    fake = subject(ring)
    assert any(execute(instance, fake).outcome is Outcome.FAILED for instance in instances(name))


@pytest.mark.parametrize("mistake", BATCH_MISTAKES)
def test_each_mistake_of_a_batch_is_caught_by_the_case_made_for_it(mistake: str) -> None:
    ring, name = BATCH_MISTAKES[mistake]
    fake = batches(ring)
    assert any(execute(instance, fake).outcome is Outcome.FAILED for instance in instances(name))


def test_a_refusal_that_leaves_the_state_alone_is_unsupported() -> None:
    result = execute(instances("trim-a-full-cache")[0], subject(TrimRefusesAlways))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.reason == "step 3 (trim 1): refuses: no trim of 1"


def test_evidence_names_the_tokens() -> None:
    ring, name = MISTAKES["a window one too large"]
    instance = next(i for i in instances(name) if i.id.endswith("[window=2,tokens=window+1]"))
    finding = execute(instance, subject(ring)).findings[0]
    assert finding.check == "visible"
    assert finding.where == "step 1 (decode 3), token 3: row 0, query of token 3"
    assert (finding.expected, finding.actual, finding.note) == ("sees {2, 3}", "sees {1..3}", "too many {1}")


def test_a_wrong_shape_is_evidence_not_a_crash() -> None:
    ring, name = MISTAKES["a missing axis"]
    result = execute(instances(name)[0], subject(ring))
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].check == "shape"
    assert "4 axes" in result.findings[0].expected
