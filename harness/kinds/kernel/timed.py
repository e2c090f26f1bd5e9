"""What is timed of a kernel case: the launch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.dtypes import numpy_dtype
from harness.kinds.base import Timed, Work, turned, turns_of
from harness.kinds.kernel.evidence import element
from harness.kinds.kernel.inputs import GUARD, make_inputs
from harness.kinds.kernel.launches import kernel_text, make_launch
from harness.kinds.kernel.reference import want

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.base import Notes
    from harness.kinds.kernel.inputs import Input
    from harness.kinds.kernel.reference import Wanted
    from harness.kinds.kernel.schema import KernelCase, KernelGiven
    from harness.subjects.protocol import Subject, TimedCall


def timed(case: KernelCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare the launch with other inputs each turn; see `Kind.timed`."""
    del operation
    given = case.given
    sizes = [math.prod(one.shape or ()) * numpy_dtype(one.dtype).itemsize for one in given.inputs.values()]
    turns = turns_of(sum(sizes))
    kernels, text = subject.kernel(), kernel_text(given)
    made: list[tuple[KernelGiven, dict[str, Input]]] = []
    calls: list[TimedCall] = []
    for turn in range(turns):
        own = turned(case, salt * turns + turn).given
        inputs = make_inputs(own)
        made.append((own, inputs))
        calls.append(kernels.timed(text, make_launch(own, inputs, own.init)))
    answers: dict[int, Mapping[str, Wanted]] = {}

    def check(number: int, output: Any, notes: Notes) -> None:
        turn = number % turns
        if turn not in answers:
            answers[turn] = want(*made[turn])
        _check(given, answers[turn], output, notes)

    work = case.work
    return Timed(lambda number: calls[number % turns](number), check, Work(work.moved_bytes, work.operations), turns)


def _check(given: KernelGiven, wanted: Mapping[str, Wanted], output: Any, notes: Notes) -> None:
    arrays = list(output) if isinstance(output, list | tuple) else [output]
    notes.compared()
    if len(arrays) != len(given.outputs):
        notes.found("shape", "the launch", f"{len(given.outputs)} outputs", f"{len(arrays)}")
        return
    for (name, one), array in zip(given.outputs.items(), arrays, strict=True):
        notes.compared()
        size = math.prod(one.shape)
        if not isinstance(array, np.ndarray) or array.shape != (size + GUARD,) or array.dtype != numpy_dtype(one.dtype):
            actual = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            notes.found("shape", name, f"{one.dtype} [{size + GUARD}]", actual)
            return
        if wrong := wanted[name].compare(array[:size].reshape(one.shape)):
            where = element(name, wrong.index) if wrong.index else f"{name}, {wrong.where}"
            notes.found("output", where, wrong.expected, wrong.actual, wrong.note)
            return
