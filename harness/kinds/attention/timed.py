"""What is timed of an attention case: the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.dtypes import numpy_dtype
from harness.kinds.attention.data import make_inputs
from harness.kinds.attention.run import run
from harness.kinds.base import Timed, Work, turned, turns_of
from harness.subjects.protocol import Attention, PlainArrays, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.attention.data import Inputs
    from harness.kinds.attention.schema import AttentionCase, AttentionGiven
    from harness.kinds.base import Notes
    from harness.subjects.protocol import AffineArrays, AttentionInput


def timed(case: AttentionCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare attention over other queries, keys and values each turn; see `Kind.timed`."""
    del operation
    first = make_inputs(turned(case, 0).given)
    turns = turns_of(_bytes(first.shown.keys) + _bytes(first.shown.values))
    cases = [turned(case, salt * turns + turn) for turn in range(turns)]
    attention = subject.attention()
    calls = [attention.timed(make_inputs(each.given).shown) for each in cases]

    def check(number: int, output: Any, notes: Notes) -> None:
        run(cases[number % turns].model_copy(update={"check": ["output"]}), _Answering(output), notes)

    return Timed(lambda number: calls[number % turns](number), check, _work(case.given, first), turns)


class _Answering(Subject, Attention):
    """Says what a timed call returned."""

    def __init__(self, output: Any) -> None:
        self._output = output

    def attention(self) -> Attention:
        return self

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        del given
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look


def _work(given: AttentionGiven, inputs: Inputs) -> Work:
    if given.views == "stride-0" or given.mask not in ("none", "causal"):
        # Keys that nobody sees need not be read.
        return Work()
    shown = inputs.shown
    outputs = given.rows * given.heads * given.queries
    moved = _bytes(shown.keys) + _bytes(shown.values) + shown.queries.nbytes
    moved += outputs * shown_dim(given) * numpy_dtype(given.dtype).itemsize
    return Work(moved, 2 * int(inputs.sees.sum()) * (given.head_dim + shown_dim(given)))


def shown_dim(given: AttentionGiven) -> int:
    """Return the channels of a value."""
    return given.value_dim or given.head_dim


def _bytes(arrays: PlainArrays | AffineArrays) -> int:
    if isinstance(arrays, PlainArrays):
        return arrays.data.nbytes
    return arrays.packed.nbytes + arrays.scales.nbytes + arrays.biases.nbytes
