"""Running a trellis case: the baseline's states, weights and products against the subject's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import trellis as baseline
from harness.compare import UNIT_ROUNDOFF, Bound, Exact, dot_bound
from harness.kinds.base import StopInstance
from harness.kinds.trellis.inputs import make_inputs
from harness.kinds.trellis.pins import Shown, hold
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from harness.compare import Mismatch
    from harness.kinds.base import Notes, TimedCall
    from harness.kinds.trellis.schema import TrellisCase
    from harness.subjects.protocol import Subject


def run(case: TrellisCase, subject: Subject, notes: Notes) -> None:
    """Run every check of the case; see `Kind.run`."""
    Comparison(case, subject, notes).run()


def timed(case: TrellisCase, subject: Subject) -> Mapping[str, TimedCall]:
    """Prepare every timed operation of the case; see `Kind.timed`."""
    inputs = make_inputs(case.given)
    trellis = subject.trellis()
    return {
        operation: trellis.timed(
            operation, inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=case.given.splits
        )
        for operation in case.time
    }


class Comparison:
    """One run: what the baseline says of the case's matrix, and the subject's answers to it."""

    def __init__(self, case: TrellisCase, subject: Subject, notes: Notes) -> None:
        """Make the inputs and the baseline's states [rows, columns] and weights [rows, columns]."""
        self.case, self.given, self.notes = case, case.given, notes
        self.inputs = make_inputs(case.given)
        given, inputs = self.given, self.inputs
        states = baseline.states(inputs.blocks, given.bits, given.state_bits)
        self.states = states.reshape(given.rows, given.columns)
        self.weights = baseline.decode(inputs.blocks, inputs.scales, given.bits, given.state_bits, given.codebook)
        self.wrapping = baseline.wrapping_columns(given.bits, given.state_bits)
        self.pins = [entry for entry in case.expect if entry.applies(given)]
        self.decoded: NDArray[np.float32] | None = None
        with subject_call("opening the trellis"):
            self.trellis = subject.trellis()

    def run(self) -> None:
        """Hold the baseline to what the file states, then compare the subject, check by check."""
        self._hold_baseline()
        checks = {
            "states": self._check_states,
            "decode": self._check_decode,
            "tail": self._check_tail,
            "gemv": self._check_gemv,
        }
        for check in self.case.check:
            checks[check]()

    def _hold_baseline(self) -> None:
        shown = Shown(self.inputs.blocks[0, 0], self.states[0], self.weights[0])
        note = "the harness itself disagrees with the case file, so one of the two is wrong, whatever the subject does"
        if not hold(self.pins, shown, "the baseline", self.notes, note):
            raise StopInstance

    def _check_states(self) -> None:
        with subject_call("states"):
            shown = self.trellis.states(self.inputs.spec, self.inputs.codes)
        actual = self._array("states", shown, self.states.shape, np.dtype(np.uint32))
        if wrong := self._compare(Exact(), self.states, actual):
            row, column = _index(wrong)
            self.notes.found(
                "states",
                self._place(row, column),
                self._state_text(int(self.states[row, column])),
                self._state_text(int(actual[row, column])),
                wrong.note + self._wrap_note(self.states, actual),
            )
        hold(self.pins, Shown(states=actual[0]), "the subject", self.notes)

    def _check_decode(self) -> None:
        actual = self._decode()
        if wrong := self._compare(Exact(), self.weights, actual):
            row, column = _index(wrong)
            expected, note = self._weight_text(row, column, wrong), wrong.note + self._wrap_note(self.weights, actual)
            self.notes.found("decode", self._place(row, column), expected, wrong.actual, note)
        hold(self.pins, Shown(weights=actual[0]), "the subject", self.notes)

    def _check_tail(self) -> None:
        """Compare the first columns of every block, whose windows run past its last bit: where a lost wrap shows."""
        shape = (self.given.rows, -1, self.given.block)
        expected, actual = (matrix.reshape(shape)[..., : self.wrapping] for matrix in (self.weights, self._decode()))
        if wrong := self._compare(Exact(), expected, actual):
            row, block, position = _index(wrong)
            column = block * self.given.block + position
            note = f"{wrong.note}; these windows run past the block's last bit, and on from its first"
            self.notes.found(
                "tail", self._place(row, column), self._weight_text(row, column, wrong), wrong.actual, note
            )

    def _check_gemv(self) -> None:
        """Compare the products within `_product_bound`, or bit for bit where the vectors are one-hot."""
        inputs, given = self.inputs, self.given
        with subject_call("gemv"):
            shown = self.trellis.gemv(inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=given.splits)
        actual = self._array("gemv", shown, (given.batch, given.columns), np.dtype(np.float32))
        bound = Bound(self._product_bound())
        self.notes.judged_by(actual, Exact() if given.x == "one-hot" else bound)
        if given.x == "one-hot":
            self._check_one_hot(actual)
            return
        expected = baseline.product(inputs.x, self.weights)
        if wrong := self._compare(bound, expected, actual):
            vector, column = _index(wrong)
            where = f"vector {vector}, {self._column_text(column)}"
            self.notes.found("gemv", where, wrong.expected, wrong.actual, f"{wrong.note}; {self._splits_text()}")

    def _check_one_hot(self, actual: NDArray[np.float32]) -> None:
        """Compare rows of the matrix bit for bit: whatever the order of summing, adding zeros rounds nothing."""
        rows = np.arange(self.given.batch) % self.given.rows
        # Adding +0 makes -0 into +0: the sign of a sum that is zero depends on where the sum starts.
        expected, actual = self.weights[rows] + np.float32(0), actual + np.float32(0)
        if wrong := self._compare(Exact(), expected, actual):
            vector, column = _index(wrong)
            row = int(rows[vector])
            where = f"vector {vector} (1 at row {row}, 0 elsewhere), {self._column_text(column)}"
            note = f"{wrong.note}{self._wrap_note(expected, actual)}; {self._splits_text()}"
            self.notes.found("gemv", where, self._weight_text(row, column, wrong), wrong.actual, note)

    def _product_bound(self) -> NDArray[np.float64]:
        """Bound |error| of a float32 product by (rows + 2 + splits) u sum|x w|, to first order, u = 2^-24.

        A term meets one rounding when it is multiplied by x, rows - 1 at most while the rows of its split are added
        (the first addition, to zero, is exact) and splits - 1 while the splits are, in any order and with or without
        fused multiply-add. A subject that applies the scale elsewhere, to x or to the sum, is away by two more: its
        own rounding there, and the baseline's of weight times scale. That makes rows + 1 + splits; one is to spare.
        `dot_bound` adds the higher orders.
        """
        magnitudes = baseline.absolute_product(self.inputs.x, self.weights)
        return dot_bound(self.given.rows, magnitudes, UNIT_ROUNDOFF["float32"], extra=self.given.splits + 2)

    def _decode(self) -> NDArray[np.float32]:
        if self.decoded is None:
            with subject_call("decode"):
                shown = self.trellis.decode(self.inputs.spec, self.inputs.codes, self.inputs.scales)
            self.decoded = self._array("decode", shown, self.weights.shape, np.dtype(np.float32))
            self.notes.judged_by(self.decoded, Exact())
        return self.decoded

    def _array(self, call: str, shown: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return `shown` if it is an array as asked for; otherwise nothing can be compared: note it and stop."""
        self.notes.compared()
        if isinstance(shown, np.ndarray) and shown.shape == shape and shown.dtype == dtype:
            return shown
        actual = f"{shown.dtype} {list(shown.shape)}" if isinstance(shown, np.ndarray) else type(shown).__name__
        self.notes.found("shape", f"what {call} returned", f"a NumPy array {dtype} {list(shape)}", actual)
        raise StopInstance

    def _compare(self, policy: Exact | Bound, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        self.notes.compared()
        return policy.check(expected, actual)

    def _weight_text(self, row: int, column: int, wrong: Mismatch) -> str:
        state = self.states[row, column]
        parts = [f"state {self._state_text(int(state))}"]
        if self.given.codebook in baseline.BYTE_SUM_CODEBOOKS:
            parts.append(f"level {baseline.levels(state[np.newaxis], self.given.codebook)[0]}")
        parts.append(f"scale {float(self.inputs.scales[row]):.9g}")
        return f"{wrong.expected} ({', '.join(parts)})"

    def _place(self, row: int, column: int) -> str:
        return f"row {row}, {self._column_text(column)}"

    def _column_text(self, column: int) -> str:
        block, position = divmod(column, self.given.block)
        return f"column {column} (block {block}, column {position} of it)"

    def _state_text(self, state: int) -> str:
        return f"{state} ({state:0{self.given.state_bits}b})"

    def _splits_text(self) -> str:
        rows, splits = self.given.rows, self.given.splits
        without_rows = sum(not part for part in baseline.split_rows(rows, splits))
        return f"{rows} rows in {splits} splits" + (f", {without_rows} of them without rows" if without_rows else "")

    def _wrap_note(self, expected: NDArray[Any], actual: NDArray[Any]) -> str:
        """Say so when all differences of two arrays [..., columns] lie where a lost wrap would put them."""
        columns = np.nonzero(expected != actual)[1] % self.given.block
        lost = columns.size and columns.max() < self.wrapping
        return ", all where the window wraps around the end of the block" if lost else ""


def _index(wrong: Mismatch) -> tuple[int, ...]:
    # Shapes and dtypes were compared before, so the place is an index, `[3, 257]`.
    return tuple(json.loads(wrong.where))
