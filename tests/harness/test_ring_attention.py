"""The attention check: bounds that a right answer keeps, and that a slightly wrong one does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.baseline.attention import attend
from harness.baseline.ring import Histories, Row
from harness.case.model import Limits
from harness.execute import execute
from harness.kinds.ring import KIND
from harness.outcome import Outcome
from harness.subjects.protocol import Answer, RowsApart
from tests.fakes.rings import Naive, NaiveRing


def case(dtype: str, storage: str) -> Any:
    content = {
        "assay": 1,
        "kind": "ring",
        "title": "attention",
        "why": "test",
        "given": {"window": 8, "head_dim": 192, "dtype": dtype, "storage": storage},
        "steps": [{"append": 6}, {"append": 5}],
        "check": ["attention"],
    }
    return KIND.model.model_validate(content)


class _Leaks(NaiveRing):
    """Gives a hidden token a little weight."""

    share = 0.0

    def append(self, keys: Any, values: Any, queries: Any) -> Answer:
        answer = super().append(keys, values, queries)
        if answer.output is None or self.length <= 8:
            return answer
        assert not isinstance(answer.values, RowsApart)
        first = self.decoded(answer.values)[:, [self.head_of(h) for h in range(self.spec.query_heads)], :1]
        output = (1 - self.share) * answer.output.astype(np.float64) + self.share * first
        return Answer(answer.keys, answer.values, answer.mask, output.astype(answer.output.dtype))


# How much weight on one hidden token goes unseen: the bound follows the arithmetic.
@pytest.mark.parametrize(
    ("dtype", "storage", "share"),
    [
        ("float32", "plain", 1e-4),
        ("float16", "plain", 0.03),
        ("bfloat16", "plain", 0.25),
        ("float32", "affine8x32", 1e-3),
        ("float16", "affine8x32", 0.15),
        ("bfloat16", "affine8x32", 0.5),
    ],
)
def test_a_small_leak_is_seen(dtype: str, storage: str, share: float) -> None:
    instance = _instance(case(dtype, storage))
    assert execute(instance, Naive()).outcome is Outcome.PASSED
    leaky = type("Leaky", (Naive,), {"ring_class": type("L", (_Leaks,), {"share": share})})()
    result = execute(instance, leaky)
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].check == "attention"


def _instance(model: Any) -> Any:
    from harness.case.expand import Instance

    assert model.limits == Limits()
    return Instance("t/attention", "t/attention", "attention.yaml", "ring", model, "0")


def test_the_baseline_by_hand() -> None:
    # Scores ln 1 and ln 3: weights 1/4 and 3/4.
    output, weights = attend(np.array([1.0]), np.array([[0.0], [np.log(3)]]), np.array([[4.0, 0.0], [8.0, 4.0]]), 1.0)
    assert weights == pytest.approx([0.25, 0.75])
    assert output == pytest.approx([7.0, 3.0])


def test_a_list_of_tokens_with_sinks() -> None:
    rows = Histories(4, 2, [Row()])
    rows.append([[1, 2, 3, 4, 5, 6]])
    assert rows.visible(0, 3) == [1, 2, 3, 4]
    assert rows.visible(0, 5) == [1, 2, 5, 6]
    rows.trim(2)
    assert rows.visible(0, 3) == [1, 2, 3, 4]
    assert Histories(3, 0, [Row([7, 8, 9, 10])]).visible(0, 3) == [8, 9, 10]
    assert Histories(None, 0, [Row([7, 8])]).visible(0, 1) == [7, 8]
