"""Running a kernel case: launches in several orders, each output against what the case says must come out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.compare import Exact
from harness.dtypes import numpy_dtype
from harness.errors import AnswerError
from harness.kinds.affine.border import Border
from harness.kinds.base import StopInstance
from harness.kinds.kernel.evidence import element, launch_text, spread
from harness.kinds.kernel.inputs import GUARD, make_inputs
from harness.kinds.kernel.launches import kernel_text, make_launch
from harness.kinds.kernel.reference import NoAnswerError, want
from harness.subjects.call import subject_call
from harness.subjects.protocol import KernelAnswer, KernelView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.base import Notes
    from harness.kinds.kernel.inputs import Input
    from harness.kinds.kernel.schema import KernelCase, KernelGiven
    from harness.subjects.protocol import KernelLaunch, Kernels, Subject

# What outputs hold before a launch where the case does not say it. Fits every dtype; 0 is another truth than 85.
FILLS = (85, 0)
LANE_ORDERS = ("reverse", "1", "2", "3")


def run(case: KernelCase, subject: Subject, notes: Notes) -> None:
    """Run every check of the case; see `Kind.run`."""
    if case.check:
        Comparison(case, subject, notes).run()
    else:  # a description: nothing says what must come out
        check_kernel(case.given, make_inputs(case.given), subject.kernel(), notes)


def check_kernel(given: KernelGiven, inputs: dict[str, Input], kernels: Kernels, notes: Notes) -> bool:
    """Let the kernel be checked while it runs, with outputs of just their size: nothing may hide behind their end.

    Returns whether it may be launched without checks.
    """
    launch = make_launch(given, inputs, given.init)
    shapes = tuple(tuple(output.shape) for output in given.outputs.values())
    with subject_call("checking the kernel"):
        safe = kernels.check(kernel_text(given), launch, shapes)
    notes.compared()
    return safe


class Comparison:
    """One run: the answers of the case on one side, what launches wrote on the other."""

    def __init__(self, case: KernelCase, subject: Subject, notes: Notes) -> None:
        """Make inputs and answers, and open the subject."""
        self.case, self.given, self.notes = case, case.given, notes
        self.inputs = make_inputs(case.given)
        try:
            self.wanted = want(case.given, self.inputs)
        except NoAnswerError as error:
            raise AnswerError(f"given.outputs.{error.key}: {error}") from error
        self.border = Border(notes)
        self.text = kernel_text(case.given)
        with subject_call("opening the kernel"):
            self.kernels = subject.kernel()

    def run(self) -> None:
        """Compare the outputs; then whether other orders and a second launch agree."""
        given = self.given
        if self.kernels.checks and not check_kernel(given, self.inputs, self.kernels, self.notes):
            raise StopInstance
        if given.twin is not None:
            self._launch(FILLS[0], "launching the twin", twin=True)
        fills = FILLS if given.init is None else (given.init,)
        answers = [self._launch(fill, "launch") for fill in fills]
        if len(answers) > 1:
            self._check_written(answers)
        for answer, fill in zip(answers, fills, strict=True):
            self._check_output("output", answer, fill)
        if "untouched" in self.case.check:
            self._check_untouched(answers[0])
        if "deterministic" in self.case.check:
            self._check_deterministic(answers[0], fills[0])
        if "lane-order" in self.case.check and self.kernels.lane_orders:
            for order in LANE_ORDERS:
                words = "reverse order" if order == "reverse" else f"random order {order}"
                answer = self._launch(fills[0], f"launch with the threads of a group in {words}", order=order)
                self._check_output("lane-order", answer, fills[0], f"threads of a group in {words}; ")

    def _launch(self, fill: float, step: str, *, order: str | None = None, twin: bool = False) -> KernelAnswer:
        launch = make_launch(self.given, self.inputs, fill)
        lent = self._lent(launch, step)
        with subject_call(step):
            answer = self.kernels.launch(
                kernel_text(self.given, twin=True) if twin else self.text, lent, lane_order=order
            )
        if not isinstance(answer, KernelAnswer) or len(answer.outputs) != len(self.given.outputs):
            self.notes.compared()
            self.notes.found("shape", step, f"a KernelAnswer with {len(self.given.outputs)} outputs", _told(answer))
            raise StopInstance
        for (name, output), array in zip(self.given.outputs.items(), answer.outputs, strict=True):
            size = math.prod(output.shape) + GUARD
            self.border.take(f"output {name} of {step}", array, (size,), numpy_dtype(output.dtype))
            self.notes.judged_by(array, self.wanted[name].with_guard(GUARD))
        for memory in answer.memories:
            if memory is not None:
                self.notes.judged_by(memory, Exact())
        return answer

    def _lent(self, launch: KernelLaunch, step: str) -> KernelLaunch:
        shown = tuple(
            replace(one, memory=self.border.lend(f"the memory of {name} for {step}", one.memory))
            if isinstance(one, KernelView)
            else one
            for name, one in zip(self.given.inputs, launch.inputs, strict=True)
        )
        return replace(launch, inputs=shown)

    def _check_written(self, answers: list[KernelAnswer]) -> None:
        """Note elements that held each time what they had been filled with."""
        for number, name in enumerate(self.given.outputs):
            self.notes.compared()
            # Comparing a signaling NaN is an event to IEEE 754, and none to us.
            with np.errstate(invalid="ignore"):
                kept = [self._body(answer, number) == fill for answer, fill in zip(answers, FILLS, strict=True)]
            if self.given.outputs[name].dtype == "bool":
                kept[0] = self._body(answers[0], number)
            unwritten = kept[0] & kept[1]
            if unwritten.any():
                index = tuple(np.argwhere(unwritten)[0])
                value = self.wanted[name].values[index]
                note = f"{spread(unwritten)}; {launch_text(self.given)}"
                self.notes.found("output", element(name, index), f"{_number(value)}", "no thread wrote it", note)
                raise StopInstance

    def _check_output(self, check: str, answer: KernelAnswer, fill: float, note: str = "") -> None:
        for number, (name, wanted) in enumerate(self.wanted.items()):
            self._check_guard(check, name, answer.outputs[number], fill, note)
            self.notes.compared()
            actual = self._body(answer, number)
            if wrong := wanted.compare(actual):
                where = element(name, wrong.index) if wrong.index else f"{name}, {wrong.where}"
                words = [note + wrong.note, spread(wanted.far(actual)), launch_text(self.given)]
                said = "; ".join(word for word in words if word)
                self.notes.found(check, where, wrong.expected, wrong.actual, said)
                raise StopInstance

    def _check_guard(self, check: str, name: str, array: NDArray[Any], fill: float, note: str) -> None:
        """Note the first element behind an output that does not hold any more what it had been filled with."""
        self.notes.compared()
        guard = array[-GUARD:]
        with np.errstate(invalid="ignore"):
            touched = guard != np.asarray(fill).astype(array.dtype)
        if touched.any():
            at = int(np.flatnonzero(touched)[0])
            size = array.size - GUARD
            where = f"{name}, element {size + at} of {size}"
            said = f"{note}{int(touched.sum())} elements behind the end; {launch_text(self.given)}"
            self.notes.found(check, where, "no write behind the end", f"wrote {_number(guard[at])}", said)
            raise StopInstance

    def _check_untouched(self, answer: KernelAnswer) -> None:
        """Compare the memory of the inputs, traps included, with what was handed over."""
        for (name, one), memory in zip(self.inputs.items(), answer.memories, strict=True):
            if not isinstance(one.shown, KernelView) or memory is None:
                continue
            self.notes.compared()
            if wrong := Exact().check(one.shown.memory, memory):
                at = wrong.index[0] - GUARD if wrong.index else 0
                note = f"{wrong.note} from what was handed over"
                where = f"input {name}, element {at} from its start in memory"
                self.notes.found("untouched", where, wrong.expected, wrong.actual, note)
        self.border.check_untouched()

    def _check_deterministic(self, first: KernelAnswer, fill: float) -> None:
        again = self._launch(fill, "the second launch")
        for number, (name, output) in enumerate(self.given.outputs.items()):
            self.notes.compared()
            one, other = self._body(first, number), self._body(again, number)
            if wrong := Exact().check(one, other):
                note = f"{wrong.note} between two launches of the same kernel with the same inputs"
                where = element(name, wrong.index) if wrong.index else f"{name} {list(output.shape)}"
                self.notes.found("deterministic", where, f"first {wrong.expected}", f"then {wrong.actual}", note)
                raise StopInstance

    def _body(self, answer: KernelAnswer, number: int) -> NDArray[Any]:
        shape = list(self.given.outputs.values())[number].shape
        return answer.outputs[number][:-GUARD].reshape(shape)


def _number(value: Any) -> str:
    return f"{float(value):.9g}"


def _told(answer: object) -> str:
    return f"{len(answer.outputs)} outputs" if isinstance(answer, KernelAnswer) else type(answer).__name__
