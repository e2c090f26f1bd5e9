"""Running an affine case: the baseline's codes, values and products against the subject's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.compare import Bound, Exact, Lsb
from harness.kinds.affine.border import Border
from harness.kinds.affine.bounds import decode_limit, product_limit, round_trip_limit
from harness.kinds.affine.data import make_values
from harness.kinds.affine.evidence import code_text, group_place, index_of, number, result_place, spread, value_place
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.compare import Mismatch, Policy
    from harness.kinds.affine.schema import AffineCase
    from harness.kinds.base import Notes
    from harness.subjects.protocol import AffineArrays, Subject


def run(case: AffineCase, subject: Subject, notes: Notes) -> None:
    """Run every check of the case; see `Kind.run`."""
    Comparison(case, subject, notes).run()


class Comparison:
    """One run: the values of the case on one side, the subject's answers on the other."""

    def __init__(self, case: AffineCase, subject: Subject, notes: Notes) -> None:
        """Make the values and open the subject."""
        self.case, self.given, self.notes = case, case.given, notes
        self.values = make_values(case.given)
        self.border = Border(notes)
        self.encoded: AffineArrays | None = None
        with subject_call("opening the quantization"):
            self.affine = subject.affine()

    def run(self) -> None:
        """Compare check by check; `untouched` looks back at the others, so it comes last."""
        checks = {
            "encode": self._check_encode,
            "decode": self._check_decode,
            "round-trip": self._check_round_trip,
            "matmul": self._check_matmul,
        }
        for check in self.case.check:
            if check != "untouched":
                checks[check]()
        if "untouched" in self.case.check:
            self.border.check_untouched()

    def _check_encode(self) -> None:
        """Compare scales and biases bit for bit, and codes up to the ties that devices round differently."""
        given, weights, actual = self.given, self.values.weights, self._quantize()
        packed, scales, biases = baseline.encode(weights, given.group, given.bits)
        for name, want, got in (("scale", scales, actual.scales), ("bias", biases, actual.biases)):
            if wrong := self._compare(Exact(), _one_zero(want), _one_zero(got)):
                at = index_of(wrong)
                group = weights.reshape(*scales.shape, given.group)[at].astype(np.float64)
                note = f"the group's values lie from {number(group.min())} to {number(group.max())}"
                self._found("encode", f"{name} of {group_place(at, given.group)}", wrong, note)
                return
        codes, shown = baseline.unpack(packed, given.bits), baseline.unpack(actual.packed, given.bits)
        # From halfway between two codes a value may go to either, and these data have many such values.
        policy = Lsb(share=1.0) if given.data == "between-codes" else Lsb()
        if wrong := self._compare(policy, codes, shown):
            at = index_of(wrong)
            group_at = (*at[:-1], at[-1] // given.group)
            scale, bias = number(scales[group_at]), number(biases[group_at])
            note = f"the value is {number(weights[at])}, scale {scale}, bias {bias}"
            note = f"{spread(codes != shown, 'column', 'row')}; {note}"
            self._found("encode", f"code of {value_place(at, given.group)}", wrong, note)

    def _check_decode(self) -> None:
        """Compare what the subject decodes from planes that the baseline made."""
        planes = self.values.planes
        actual = self._dequantize(planes, "for dequantize")
        if wrong := self._compare(Bound(decode_limit(planes)), self.values.matrix, actual):
            at = index_of(wrong)
            self._found("decode", value_place(at, self.given.group), wrong, code_text(planes, at))

    def _check_round_trip(self) -> None:
        """Compare what comes back from the subject's own encoder and decoder with what went in."""
        weights, encoded = self.values.weights, self._quantize()
        actual = self._dequantize(encoded, "of its own for dequantize")
        limit = round_trip_limit(weights, encoded)
        if wrong := self._compare(Bound(limit), weights.astype(np.float64), actual):
            at = index_of(wrong)
            edge = "; the value of largest magnitude of a group must come back exactly" if limit[at] == 0 else ""
            self._found("round-trip", value_place(at, self.given.group), wrong, code_text(encoded, at) + edge)

    def _check_matmul(self) -> None:
        """Compare the product with planes that the baseline made: exactly where sums are exact, else within a bound."""
        given, planes, x = self.given, self.values.planes, self.values.x
        lent_x, lent = self.border.lend("x for matmul", x), self.border.lend_planes("for matmul", planes)
        with subject_call("matmul"):
            shown = self.affine.matmul(lent_x, lent, transpose=given.transposed)
        actual = self.border.take("what matmul returned", shown, given.result_shape(), x.dtype).astype(np.float64)
        expected = baseline.product(x, self.values.matrix, transpose=given.transposed)
        if given.data == "integers":
            limit = np.zeros_like(expected)
            wrong = self._compare(Exact(), _one_zero(expected), _one_zero(actual))
        else:
            limit = product_limit(x, planes, transpose=given.transposed)
            wrong = self._compare(Bound(limit), expected, actual)
        if wrong:
            # Written so that NaN is far from everything.
            far = ~(np.abs(actual - expected) <= limit)
            note = f"{spread(far, 'output', 'row')}; the product is x @ {'W.T' if given.transposed else 'W'}"
            self._found("matmul", result_place(index_of(wrong), given), wrong, note)

    def _quantize(self) -> AffineArrays:
        if self.encoded is None:
            given, weights = self.given, self.values.weights
            lent = self.border.lend("W for quantize", weights)
            with subject_call("quantize"):
                shown = self.affine.quantize(lent, given.group, given.bits)
            self.encoded = self.border.take_planes("that quantize returned", shown, weights, given.group, given.bits)
        return self.encoded

    def _dequantize(self, planes: AffineArrays, label: str) -> NDArray[Any]:
        lent = self.border.lend_planes(label, planes)
        with subject_call("dequantize"):
            shown = self.affine.dequantize(lent)
        weights = self.values.weights
        return self.border.take("what dequantize returned", shown, weights.shape, weights.dtype)

    def _compare(self, policy: Policy, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        self.notes.compared()
        return policy.check(expected, actual)

    def _found(self, check: str, where: str, wrong: Mismatch, note: str) -> None:
        self.notes.found(check, where, wrong.expected, wrong.actual, f"{wrong.note}; {note}")


def _one_zero(array: NDArray[Any]) -> NDArray[Any]:
    """Make -0 into +0: the sign of a sum or of a minimum that is zero depends on the order of its terms."""
    return np.where(array == 0, array.dtype.type(0), array)
