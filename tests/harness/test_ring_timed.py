"""What is timed of a ring is compared: attention with what the answer shows, and some of that with tokens alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import numpy as np
import pytest

from harness.case.load import load_file
from harness.kinds import get_kind
from harness.kinds.ring.observe import View
from harness.kinds.ring.stored import Shown
from harness.subjects.protocol import AffineArrays, PlainArrays
from harness.subjects.reference import Reference
from harness.timing.visit import Operation, WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.subjects.protocol import Answer, Block, Ring, RingSpec, TimedCall

CASE = """
assay: 1
kind: ring
title: attention
why: test
given: {{window: 48, storage: {storage}, kv_heads: 2, query_heads: 4, head_dim: 128, dtype: float16, seed: 3}}
steps: [{{append: 48}}, {{decode: 2}}]
check: [visible, positions]
time: [attention]
"""


class Altered(Reference):
    """Attention as it is, but for what a function makes of each answer."""

    def __init__(self, alter: Callable[[Answer], Answer]) -> None:
        self.alter = alter

    def ring(self, spec: RingSpec) -> Ring:
        ring = super().ring(spec)
        inner = ring.timed

        def timed(operation: str, blocks: Sequence[Block]) -> TimedCall:
            call = inner(operation, blocks)
            return lambda number: self.alter(cast("Answer", call(number)))

        ring.timed = timed  # type: ignore[method-assign]  # of this one ring
        return ring


def as_it_is(answer: Answer) -> Answer:
    return answer


def too_large(answer: Answer) -> Answer:
    output: Any = answer.output
    return replace(answer, output=output * 1.05)


def of_one_query(answer: Answer) -> Answer:
    output: Any = answer.output
    one: Any = mx.broadcast_to(output[:, :1], output.shape)
    return replace(answer, output=one)


def second_head_is_the_first(answer: Answer) -> Answer:
    """Show what `visible`, which reads ids off the first head, can't tell."""

    def altered(array: Any) -> Any:
        return mx.concatenate([array[:, :1], array[:, :1]], axis=1)

    keys: Any = answer.keys
    if isinstance(keys, PlainArrays):
        return replace(answer, keys=PlainArrays(altered(keys.data)))
    assert isinstance(keys, AffineArrays)
    packed, scales, biases = (altered(part) for part in (keys.packed, keys.scales, keys.biases))
    return replace(answer, keys=AffineArrays(packed, scales, biases, keys.group_size, keys.bits))


@pytest.mark.parametrize("storage", ["plain", "affine4x32"])
@pytest.mark.parametrize(
    ("alter", "found"),
    [(as_it_is, ""), (too_large, "attention"), (of_one_query, "attention"), (second_head_is_the_first, "stored")],
)
def test_answers_of_timed_attention(
    tmp_path: Path, storage: str, alter: Callable[[Answer], Answer], found: str
) -> None:
    path = tmp_path / "cases" / "ring" / "attention.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(CASE.format(storage=storage))
    (instance,) = load_file(path)
    operation = Operation(partial(get_kind("ring").timed, instance.case, Altered(alter), "attention", 1))
    operation.visit(3)
    if found:
        with pytest.raises(WrongError, match=rf"a timed call was wrong \(number \d+\): {found}: "):
            operation.compare()
    else:
        operation.compare()
        assert operation.compared == 2


def test_what_a_mask_hides_is_no_token() -> None:
    rng = np.random.default_rng(1)
    planes = [PlainArrays(rng.standard_normal((1, 2, 4, 8)).astype(np.float32)) for _ in range(2)]
    # The last two are hidden: an older token with the id of a newer one, and a key without a value.
    view = View(
        [planes[0]], [planes[1]], None, np.array([[1, 3, 3, 2]]), np.array([[1, 3, 3, -1]]), np.ones((1, 1, 4)) > 0
    )
    view.sees[..., 2:] = False
    shown = Shown(view, 0, 3, None)
    for plane, given in ((shown.keys, planes[0].data), (shown.values, planes[1].data)):
        values, magnitudes = plane.decoded([1, 3])
        assert (values == np.moveaxis(given[0][:, :2], 0, 1)).all()
        assert (magnitudes == np.abs(values)).all()
