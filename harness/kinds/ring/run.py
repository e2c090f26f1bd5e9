"""Driving one cache through the steps of a case, and comparing after each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from harness.baseline.ring import Histories
from harness.compare import Exact
from harness.dtypes import numpy_dtype
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring import steps
from harness.kinds.ring.checks import Expected, check_attention, check_stored, check_visible
from harness.kinds.ring.observe import read_answer
from harness.kinds.ring.script import last_id, row_stride
from harness.kinds.ring.stored import Alone
from harness.kinds.ring.tokens import make_tokens
from harness.subjects.call import SubjectError, subject_call
from harness.subjects.protocol import Refused, Unsupported

if TYPE_CHECKING:
    from harness.kinds.ring.schema import RingCase
    from harness.kinds.ring.steps import Step
    from harness.subjects.protocol import Subject


def run(case: RingCase, subject: Subject, notes: Notes) -> None:
    """Run the steps; see `Kind.run`."""
    Driver(case, subject, notes).run()


class Driver:
    """One run: the subject's ring on one side, lists of ids on the other."""

    def __init__(self, case: RingCase, subject: Subject, notes: Notes) -> None:
        """Open the ring and make the data."""
        self.case, self.subject, self.notes = case, subject, notes
        self.spec = case.given.spec()
        self.histories = Histories(self.spec.window, self.spec.sinks, [[] for _ in range(self.spec.rows)])
        self.stride = row_stride(case)
        self.next_id = [row * self.stride + 1 for row in range(self.spec.rows)]
        self.tokens = make_tokens(self.spec, numpy_dtype(self.spec.dtype), case.given.seed, last_id(case))
        self.alone = Alone(subject, self.spec, self.tokens)
        self.only_listed = any(isinstance(step, steps.CheckStep) for step in case.steps)
        self.claims: list[str] = []
        with subject_call("opening the cache"):
            self.ring = subject.ring(self.spec)

    def run(self) -> None:
        """Take every step; stops at the first step with a finding, since later ones would repeat it."""
        for number, step in enumerate(self.case.steps, start=1):
            where = f"step {number} ({step.text()})"
            self._take(step, where, self._checks(number - 1))
            if self.notes.findings:
                self._add_remarks()
                raise StopInstance

    def _checks(self, index: int) -> tuple[str, ...]:
        if not self.only_listed:
            return tuple(self.case.check)
        following = self.case.steps[index + 1] if index + 1 < len(self.case.steps) else None
        return tuple(following.check or self.case.check) if isinstance(following, steps.CheckStep) else ()

    def _take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        match step:
            case steps.AppendStep():
                self._append(step.append, where, checks)
            case steps.DecodeStep():
                for count in range(step.decode):
                    inner = where if step.decode == 1 else f"{where}, token {count + 1}"
                    self._append(1, inner, checks)
                    if self.notes.findings:
                        return
            case steps.TrimStep():
                self._trim(step, where)
            case steps.CheckStep():
                return
            case _:
                raise Unsupported(f"{step.operation}: no subject offers this step yet")
        self._positions(where, checks)
        self._untouched(where, checks)

    def _append(self, count: int, where: str, checks: tuple[str, ...]) -> None:
        """Write `count` new tokens into every row and look at what the block's queries see."""
        ids = np.array([[first + i for i in range(count)] for first in self.next_id])
        before = self.histories.lengths()
        keys, values, queries = self.tokens.block(ids)
        with subject_call(where):
            answer = self.ring.append(keys, values, queries if "attention" in checks else None)
        self.next_id = [first + count for first in self.next_id]
        self.histories.append(ids.tolist())
        if not {"visible", "stored", "attention"} & set(checks):
            return
        view = read_answer(answer, self.spec, len(ids), count, where, self.notes)
        expected: Expected = [
            [self.histories.visible(row, start + query) for query in range(count)] for row, start in enumerate(before)
        ]
        # A query that sees the wrong tokens has the wrong output, too: one finding a cause.
        good = check_visible(view, expected, ids, where, self.notes) if "visible" in checks else True
        if good and "stored" in checks:
            good = check_stored(view, self.alone, where, self.notes)
        if good and "attention" in checks:
            check_attention(view, expected, ids, self.tokens, self.alone, self.spec, where, self.notes)

    def _trim(self, step: steps.TrimStep, where: str) -> None:
        count = step.trim
        expected_refusal = step.expect == "refused"
        try:
            with subject_call(where, refusable=True):
                removed = self.ring.trim(count)
        except Refused as refusal:
            self._refused(step, where, refusal)
            return
        if removed == 0:
            self._refused(step, where, Refused("returns 0"))
            return
        if removed != count and not (expected_refusal and 0 < removed < count):
            self.notes.found("trim", where, f"returns {count}", f"returns {removed}")
            return
        self.histories.trim(removed)
        if expected_refusal:
            self.claims.append(f"{where} returned {removed} although the cache no longer held what the rest needs")

    def _refused(self, step: Step, where: str, refusal: Refused) -> None:
        """Take a refusal: the state must be what it was, which the next token shows."""
        if step.expect == "refused":
            self.notes.compared()
            return
        checks = tuple(check for check in self.case.check if check in ("visible", "positions")) or ("visible",)
        after = f"one token after {where} was refused"
        try:
            self._append(1, after, checks)
            self._positions(after, checks)
        except SubjectError as error:
            self.notes.found("untouched", after, "the cache works on as before", str(error))
        if not self.notes.findings:
            raise Unsupported(f"{where}: refuses: {refusal}")

    def _positions(self, where: str, checks: tuple[str, ...]) -> None:
        if "positions" not in checks or self.notes.findings:
            return
        with subject_call(f"offsets after {where}"):
            offsets = self.ring.offsets()
        if offsets is not None:
            self.notes.compared()
            if list(offsets) != self.histories.lengths():
                self.notes.found("positions", where, f"offsets {self.histories.lengths()}", f"offsets {list(offsets)}")

    def _untouched(self, where: str, checks: tuple[str, ...]) -> None:
        """Compare every array that crossed the border so far with what it held then."""
        if "untouched" not in checks or self.notes.findings:
            return
        with subject_call(f"looking at earlier arrays after {where}"):
            handed_out = self.ring.handed_out()
        for item in handed_out or ():
            self.notes.compared()
            wrong = Exact().check(item.then, item.now)
            if wrong is not None:
                place = f"{where}: {item.label}, element {wrong.where}"
                self.notes.found("untouched", place, wrong.expected, wrong.actual, wrong.note)
                return

    def _add_remarks(self) -> None:
        """Put what the subject and its claims explain beside the evidence."""
        remarks = [*self.claims, *dict.fromkeys(self.ring.remarks())]
        if remarks:
            self.notes.findings[:] = [
                replace(finding, note="; ".join(filter(None, (finding.note, *remarks))))
                for finding in self.notes.findings
            ]
