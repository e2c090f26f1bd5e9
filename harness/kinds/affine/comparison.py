"""What the runs of all modes share: the products, and how comparisons become findings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.compare import Bound, Exact
from harness.kinds.affine.border import Border
from harness.kinds.affine.bounds import product_limit
from harness.kinds.affine.data import make_values
from harness.kinds.affine.evidence import gather_place, index_of, result_place, spread
from harness.kinds.affine.matrices import mapped
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.compare import Mismatch, Policy
    from harness.kinds.affine.schema import AffineCase
    from harness.kinds.base import Notes
    from harness.subjects.protocol import Subject

    Array = NDArray[np.float64]
    # Is shown every comparison: the check, the policy, what is expected, and what came.
    Watch = Callable[[str, Policy, NDArray[Any], NDArray[Any]], None]


class Comparison:
    """One run: the values of the case on one side, the subject's answers on the other."""

    def __init__(self, case: AffineCase, subject: Subject, notes: Notes, watch: Watch | None = None) -> None:
        """Make the values and open the subject."""
        self.case, self.given, self.notes = case, case.given, notes
        self.watch, self.checking = watch, ""
        self.values = make_values(case.given)
        self.border = Border(notes)
        with subject_call("opening the quantization"):
            self.affine = subject.affine()

    def run(self) -> None:
        """Compare check by check; `untouched` looks back at the others, so it comes last."""
        checks = {
            "encode": self.check_encode,
            "decode": self.check_decode,
            "round-trip": self.check_round_trip,
            "matmul": self.check_matmul,
            "gather": self.check_gather,
        }
        for check in self.case.check:
            if check != "untouched":
                self.checking = check
                checks[check]()
        if "untouched" in self.case.check:
            self.border.check_untouched()

    def check_encode(self) -> None:
        """Compare what the subject makes of W."""
        raise NotImplementedError

    def check_decode(self) -> None:
        """Compare what the subject decodes from planes that the baseline made."""
        raise NotImplementedError

    def check_round_trip(self) -> None:
        """Compare what comes back from the subject's own encoder and decoder with what went in."""
        raise NotImplementedError

    def multiply(self, x: NDArray[Any], planes: Any) -> object:
        """Have the subject multiply."""
        raise NotImplementedError

    def quantize(self, weights: NDArray[Any]) -> Any:
        """Have the subject quantize, and take what it returns."""
        raise NotImplementedError

    @cached_property
    def encoded(self) -> Any:
        """What the subject makes of W."""
        lent = self.border.lend("W for quantize", self.values.weights, self.given.views)
        with subject_call("quantize"):
            shown = self.quantize(lent)
        return self.take_encoded(shown)

    def take_encoded(self, shown: object) -> Any:
        """Return `shown` if it has the form of a quantized W."""
        raise NotImplementedError

    def check_matmul(self) -> None:
        """Compare the product with planes that the baseline made."""
        given, x = self.given, self.values.x
        lent_x = self.border.lend("x for matmul", x, given.views)
        lent = self.border.lend_planes("for matmul", self.values.planes, given.views)
        with subject_call("matmul"):
            shown = self.multiply(lent_x, lent)
        actual = self.border.take("what matmul returned", shown, given.result_shape(), x.dtype)
        expected = baseline.product(x, self.values.matrix, transpose=given.transposed)
        limit = product_limit(x, self.values.planes, transpose=given.transposed)
        self._check_product("matmul", expected, actual, limit, lambda index: result_place(index, given))

    def check_gather(self) -> None:
        """Compare each product of a block of x and a matrix that the indices name."""
        given, values = self.given, self.values
        lent_x = self.border.lend("x for gather", values.x, given.views)
        lent = self.border.lend_planes("for gather", values.planes, given.views)
        # Where each block takes its turn nobody has to say so.
        blocks = self.border.lend("blocks", values.blocks) if given.indices == "any" else None
        picks = self.border.lend("picks", values.picks)
        in_order = given.indices == "sorted"
        with subject_call("gather"):
            shown = self.affine.gather(lent_x, lent, blocks, picks, transpose=given.transposed, in_order=in_order)
        actual = self.border.take("what gather returned", shown, given.result_shape(), values.x.dtype)
        expected, limit = np.zeros(given.result_shape()), np.zeros(given.result_shape())
        each = values.x.reshape(given.repeats, given.batch, given.inputs)
        for index in np.ndindex(values.picks.shape):
            x, matrix = each[values.blocks[index]], self._picked(int(values.picks[index]))
            expected[index] = baseline.product(x, values.matrix[values.picks[index]], transpose=given.transposed)
            limit[index] = product_limit(x, matrix, transpose=given.transposed)
        self._check_product("gather", expected, actual, limit, lambda index: gather_place(index, values))

    def compare(self, policy: Policy, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return where they disagree, or None."""
        self.notes.compared()
        if self.watch:
            self.watch(self.checking, policy, expected, actual)
        return policy.check(expected, actual)

    def found(self, check: str, where: str, wrong: Mismatch, note: str) -> None:
        """Note a difference."""
        self.notes.found(check, where, wrong.expected, wrong.actual, f"{wrong.note}; {note}")

    def _picked(self, number: int) -> Any:
        return mapped(self.values.planes, lambda _, array: array[number])

    def _check_product(
        self, check: str, expected: Array, shown: NDArray[Any], limit: Array, where: Callable[[tuple[int, ...]], str]
    ) -> None:
        """Compare exactly where sums are exact, else within `limit`."""
        actual = shown.astype(np.float64)
        if self.given.data == "integers":
            limit = np.zeros_like(expected)
            self.notes.judged_by(shown, Exact())
            wrong = self.compare(Exact(), one_zero(expected), one_zero(actual))
        else:
            self.notes.judged_by(shown, Bound(limit))
            wrong = self.compare(Bound(limit), expected, actual)
        if wrong:
            # Written so that NaN is far from everything.
            with np.errstate(invalid="ignore"):
                far = ~(np.abs(actual - expected) <= limit)
            note = f"{spread(far, 'output', 'row')}; the product is x @ {'W.T' if self.given.transposed else 'W'}"
            self.found(check, where(index_of(wrong)), wrong, note)


def one_zero(array: NDArray[Any]) -> NDArray[Any]:
    """Make -0 into +0: the sign of a sum or of a minimum that is zero depends on the order of its terms."""
    return np.where(array == 0, array.dtype.type(0), array)
