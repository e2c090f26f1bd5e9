"""What is timed of an affine case: one operation on W, its planes or x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.dtypes import numpy_dtype
from harness.kinds.affine.data import make_values
from harness.kinds.affine.run import run
from harness.kinds.base import Timed, Work, turned, turns_of
from harness.subjects.protocol import Affine, AffineArrays, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.affine.data import Values
    from harness.kinds.affine.schema import AffineCase, AffineGiven
    from harness.kinds.base import Notes
    from harness.subjects.protocol import TimedCall

_CHECKED_BY = {"quantize": "encode", "dequantize": "decode", "matmul": "matmul"}


def timed(case: AffineCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare an operation with another W and x each turn; `quantize` gets W in the place of x. See `Kind.timed`."""
    turns = turns_of(_planes_bytes(case.given) + _bytes(case.given, case.given.weight_shape()))
    cases = [turned(case, salt * turns + turn) for turn in range(turns)]
    affine = subject.affine()
    calls: list[TimedCall] = []
    for each in cases:
        values = make_values(each.given)
        planes = values.planes
        # By `complaints` no other mode lists anything to time.
        assert isinstance(planes, AffineArrays)  # noqa: S101 - affine cases have no other planes
        x = values.weights if operation == "quantize" else values.x
        calls.append(affine.timed(operation, x, planes, transpose=case.given.transposed))

    def check(number: int, output: Any, notes: Notes) -> None:
        asked = cases[number % turns].model_copy(update={"check": [_CHECKED_BY[operation]]})
        run(asked, _Answering(output), notes)

    return Timed(lambda number: calls[number % turns](number), check, _work(case.given, operation, values), turns)


class _Answering(Subject, Affine):
    """Says what a timed call returned."""

    def __init__(self, output: Any) -> None:
        self._output = output

    def affine(self) -> Affine:
        return self

    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        del x, group_size, bits
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        del planes
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        del x, planes, transpose
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look


def _work(given: AffineGiven, operation: str, values: Values) -> Work:
    if given.views == "stride-0":
        # Much of what is read lies in one place.
        return Work()
    weights, planes = _bytes(given, given.weight_shape()), _planes_bytes(given)
    if operation != "matmul":
        return Work(weights + planes, values.weights.size)
    products = 2 * values.x.size * given.outputs
    return Work(planes + _bytes(given, given.x_shape()) + _bytes(given, given.result_shape()), products)


def _bytes(given: AffineGiven, shape: tuple[int, ...]) -> int:
    count = numpy_dtype(given.dtype).itemsize
    for length in shape:
        count *= length
    return count


def _planes_bytes(given: AffineGiven) -> int:
    *lead, length = given.weight_shape()
    rows = 1
    for each in lead:
        rows *= each
    scale_bytes = 2 * numpy_dtype(given.dtype).itemsize
    return rows * (length * given.bits // 8 + length // given.group * scale_bytes)
