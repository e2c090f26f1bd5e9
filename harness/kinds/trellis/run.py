"""Running a trellis case: the baseline's states, weights and products against the subject's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import trellis as baseline
from harness.compare import UNIT_ROUNDOFF, Bound, Exact
from harness.kinds.base import StopInstance
from harness.kinds.trellis.conversions import check_conversion
from harness.kinds.trellis.encoding import check_encode, check_optimum
from harness.kinds.trellis.inputs import make_inputs
from harness.kinds.trellis.pins import Shown, hold
from harness.kinds.trellis.products import check_partials, check_same_bits, offered, product_bound
from harness.kinds.trellis.refusal import check_refused
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.compare import Mismatch
    from harness.kinds.base import Notes
    from harness.kinds.trellis.schema import TrellisCase
    from harness.subjects.protocol import Subject, TrellisOffer


def run(case: TrellisCase, subject: Subject, notes: Notes) -> None:
    """Run every check of the case; see `Kind.run`."""
    if "refused" in case.check:
        check_refused(case.given, subject, notes)
        return
    if case.given.variant is None:
        Comparison(case, subject, notes).run()
        return
    with subject_call("opening the trellis"):
        trellis = subject.trellis()
    for name, offer in offered(case.given, trellis):
        Comparison(case, subject, notes, (name, offer)).run()


class Comparison:
    """One run: what the baseline says of the case's matrix, and the subject's answers to it."""

    def __init__(
        self, case: TrellisCase, subject: Subject, notes: Notes, variant: tuple[str, TrellisOffer] | None = None
    ) -> None:
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
            self.untouched = self.trellis = subject.trellis()
        self.rounding: str = "direct"
        self.input_roundoff, self.variant = UNIT_ROUNDOFF["float32"], ""
        if variant is not None:
            self.variant, offer = variant
            self.rounding, self.input_roundoff = offer.rounding, offer.input_roundoff
            with subject_call("variant"):
                self.trellis = self.untouched.variant(self.variant)

    def run(self) -> None:
        """Hold the baseline to what the file states, then compare the subject, check by check."""
        self._hold_baseline()
        checks: dict[str, Callable[[], None]] = {
            "states": self._check_states,
            "decode": self._check_decode,
            "tail": self._check_tail,
            "gemv": self._check_gemv,
            "partials": lambda: check_partials(self),
            "encode": lambda: check_encode(self),
            "optimum": lambda: check_optimum(self),
            "qtip": lambda: check_conversion(self, "qtip"),
            "exl3": lambda: check_conversion(self, "exl3"),
        }
        for check in self.case.check:
            checks[check]()
        if self.case.same_bits_as is not None:
            check_same_bits(self, self.case.same_bits_as)

    def _hold_baseline(self) -> None:
        shown = Shown(self.inputs.blocks[0, 0], self.states[0], self.weights[0])
        note = "the harness itself disagrees with the case file, so one of the two is wrong, whatever the subject does"
        if not hold(self.pins, shown, "the baseline", self.notes, note):
            raise StopInstance

    def _check_states(self) -> None:
        with subject_call("states"):
            shown = self.trellis.states(self.inputs.spec, self.inputs.codes)
        actual = self.array("states", shown, self.states.shape, np.dtype(np.uint32))
        if wrong := self.compare(Exact(), self.states, actual):
            row, column = _index(wrong)
            self.notes.found(
                "states",
                self.place(row, column),
                self._state_text(int(self.states[row, column])),
                self._state_text(int(actual[row, column])),
                wrong.note + self._wrap_note(self.states, actual),
            )
        hold(self.pins, Shown(states=actual[0]), "the subject", self.notes)

    def _check_decode(self) -> None:
        actual = self._decode()
        if wrong := self.compare(Exact(), self.weights, actual):
            row, column = _index(wrong)
            expected, note = self._weight_text(row, column, wrong), wrong.note + self._wrap_note(self.weights, actual)
            self.notes.found("decode", self.place(row, column), expected, wrong.actual, note)
        hold(self.pins, Shown(weights=actual[0]), "the subject", self.notes)

    def _check_tail(self) -> None:
        """Compare the first columns of every block, whose windows run past its last bit: where a lost wrap shows."""
        shape = (self.given.rows, -1, self.given.block)
        expected, actual = (matrix.reshape(shape)[..., : self.wrapping] for matrix in (self.weights, self._decode()))
        if wrong := self.compare(Exact(), expected, actual):
            row, block, position = _index(wrong)
            column = block * self.given.block + position
            note = f"{wrong.note}; these windows run past the block's last bit, and on from its first"
            self.notes.found("tail", self.place(row, column), self._weight_text(row, column, wrong), wrong.actual, note)

    def _check_gemv(self) -> None:
        """Compare the products within `product_bound`, or bit for bit where the vectors are one-hot."""
        inputs, given = self.inputs, self.given
        with subject_call("gemv"):
            shown = self.trellis.gemv(inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=given.splits)
        actual = self.array("gemv", shown, (given.batch, given.columns), np.dtype(np.float32))
        # Adding zeros rounds nothing, but a weight that is never rounded on its own is another one.
        exact = given.x == "one-hot" and self.rounding in ("direct", "matmul")
        exact = exact and self.input_roundoff <= UNIT_ROUNDOFF["float32"]
        bound = Bound(product_bound(self))
        self.notes.judged_by(actual, Exact() if exact else bound)
        if exact:
            self._check_one_hot(actual)
            return
        expected = baseline.product(inputs.x, self.weights)
        if wrong := self.compare(bound, expected, actual):
            vector, column = _index(wrong)
            where = f"vector {vector}, {self.column_text(column)}{self._variant_text()}"
            self.notes.found("gemv", where, wrong.expected, wrong.actual, f"{wrong.note}; {self._splits_text()}")

    def _check_one_hot(self, actual: NDArray[np.float32]) -> None:
        """Compare rows of the matrix bit for bit: whatever the order of summing, adding zeros rounds nothing."""
        rows = np.arange(self.given.batch) % self.given.rows
        # Adding +0 makes -0 into +0: the sign of a sum that is zero depends on where the sum starts.
        expected, actual = self.weights[rows] + np.float32(0), actual + np.float32(0)
        if wrong := self.compare(Exact(), expected, actual):
            vector, column = _index(wrong)
            row = int(rows[vector])
            where = f"vector {vector} (1 at row {row}, 0 elsewhere), {self.column_text(column)}{self._variant_text()}"
            note = f"{wrong.note}{self._wrap_note(expected, actual)}; {self._splits_text()}"
            self.notes.found("gemv", where, self._weight_text(row, column, wrong), wrong.actual, note)

    def _decode(self) -> NDArray[np.float32]:
        if self.decoded is None:
            with subject_call("decode"):
                shown = self.trellis.decode(self.inputs.spec, self.inputs.codes, self.inputs.scales)
            self.decoded = self.array("decode", shown, self.weights.shape, np.dtype(np.float32))
            self.notes.judged_by(self.decoded, Exact())
        return self.decoded

    def array(self, call: str, shown: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return `shown` if it is an array as asked for; otherwise nothing can be compared: note it and stop."""
        self.notes.compared()
        if isinstance(shown, np.ndarray) and shown.shape == shape and shown.dtype == dtype:
            return shown
        actual = f"{shown.dtype} {list(shown.shape)}" if isinstance(shown, np.ndarray) else type(shown).__name__
        self.notes.found("shape", f"what {call} returned", f"a NumPy array {dtype} {list(shape)}", actual)
        raise StopInstance

    def compare(self, policy: Exact | Bound, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Count a comparison, and make it."""
        self.notes.compared()
        return policy.check(expected, actual)

    def _weight_text(self, row: int, column: int, wrong: Mismatch) -> str:
        state = self.states[row, column]
        parts = [f"state {self._state_text(int(state))}"]
        if self.given.codebook in baseline.BYTE_SUM_CODEBOOKS:
            parts.append(f"level {baseline.levels(state[np.newaxis], self.given.codebook)[0]}")
        parts.append(f"scale {float(self.inputs.scales[row]):.9g}")
        return f"{wrong.expected} ({', '.join(parts)})"

    def place(self, row: int, column: int) -> str:
        """Return where a weight is, in words."""
        return f"row {row}, {self.column_text(column)}"

    def column_text(self, column: int) -> str:
        """Return where a column is, in words."""
        block, position = divmod(column, self.given.block)
        return f"column {column} (block {block}, column {position} of it)"

    def _state_text(self, state: int) -> str:
        return f"{state} ({state:0{self.given.state_bits}b})"

    def _variant_text(self) -> str:
        return f", variant '{self.variant}'" if self.variant else ""

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
