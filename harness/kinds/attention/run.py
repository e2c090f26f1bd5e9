"""Running an attention case: softmax in float64 against the subject's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.attention_bound import Arithmetic, attention_limit
from harness.baseline.attention import attend_head
from harness.compare import Bound
from harness.dtypes import numpy_dtype
from harness.kinds.affine.border import Border
from harness.kinds.attention.data import make_inputs
from harness.kinds.attention.evidence import query_place, resembles, spread
from harness.kinds.attention.rope import LAYOUTS, check_rope
from harness.subjects.call import subject_call
from harness.subjects.protocol.attention import AttentionInput

if TYPE_CHECKING:
    from harness.kinds.affine.comparison import Watch
    from harness.kinds.attention.data import Inputs
    from harness.kinds.attention.schema import AttentionCase, AttentionGiven
    from harness.kinds.base import Notes
    from harness.subjects.protocol import Subject


class Answers:
    """What must come out: `expected` and `limit` [rows, heads, queries, value_dim].

    `comparable` [rows, heads, queries] is False for a query that sees nothing and has no sink: any finite number will
    do.
    """

    def __init__(self, given: AttentionGiven, inputs: Inputs) -> None:
        """Compute them head by head."""
        self.expected = np.zeros(given.result_shape())
        self.limit = np.zeros(given.result_shape())
        sinks = inputs.shown.sinks
        self.comparable = np.any(inputs.sees, axis=-1) | (sinks is not None)
        arithmetic = Arithmetic(given.dtype, affine=given.affine() is not None)
        for row, head in np.ndindex(given.rows, given.heads):
            attended = inputs.attended(row, head // given.share)
            queries = inputs.shown.queries[row, head].astype(np.float64)
            sink = None if sinks is None else float(sinks[head])
            bias = None if inputs.bias is None else inputs.bias[row, head]
            output, weights = attend_head(
                queries, attended.keys, attended.values, given.factor, inputs.sees[row, head], sink, bias
            )
            self.expected[row, head] = output
            self.limit[row, head] = attention_limit(queries, attended, given.factor, weights, arithmetic, sink, bias)


def run(case: AttentionCase, subject: Subject, notes: Notes, watch: Watch | None = None) -> None:
    """Run every check of the case; see `Kind.run`. `watch` is shown every comparison."""
    given = case.given
    border = Border(notes)
    with subject_call("opening attention"):
        attention = subject.attention()
    if "output" in case.check:
        inputs = make_inputs(given)
        lent = _lend(border, inputs.shown, given)
        with subject_call("attend"):
            shown = attention.attend(lent)
        _check_output(given, inputs, shown, border, watch)
    if "rope" in case.check:
        check_rope(given, attention, border, watch)
    if "untouched" in case.check:
        border.check_untouched()


def _lend(border: Border, shown: AttentionInput, given: AttentionGiven) -> AttentionInput:
    view = LAYOUTS.get(given.views, given.views)
    return AttentionInput(
        border.lend("queries", shown.queries, view),
        border.lend_planes("of keys", shown.keys, view),
        border.lend_planes("of values", shown.values, view),
        shown.scale,
        shown.mask if shown.mask is None or isinstance(shown.mask, str) else border.lend("mask", shown.mask),
        None if shown.sinks is None else border.lend("sinks", shown.sinks),
    )


def _check_output(given: AttentionGiven, inputs: Inputs, shown: object, border: Border, watch: Watch | None) -> None:
    taken = border.take("what attend returned", shown, given.result_shape(), numpy_dtype(given.dtype))
    actual = taken.astype(np.float64)
    answers = Answers(given, inputs)
    border.notes.compared()
    border.notes.judged_by(taken, Bound(np.where(answers.comparable[..., np.newaxis], answers.limit, np.inf)))
    # Any number will do where a query sees nothing: it is compared with itself, unless it is none.
    free = ~answers.comparable[..., np.newaxis] & np.isfinite(actual)
    expected = np.where(free, actual, answers.expected)
    policy = Bound(answers.limit)
    if watch:
        watch("output", policy, expected, actual)
    if wrong := policy.check(expected, actual):
        index = wrong.index
        far = ~(np.abs(actual - expected) <= answers.limit)
        words = [wrong.note, spread(far), resembles(index, actual, given, inputs)]
        want = wrong.expected if answers.comparable[index[:3]] else "a finite number"
        note = "; ".join(word for word in words if word)
        border.notes.found("output", query_place(index, given, inputs), want, wrong.actual, note)
