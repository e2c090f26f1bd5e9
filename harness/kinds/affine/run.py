"""Running an affine case: the baseline's codes, values and products against the subject's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.compare import Bound, Exact, Lsb
from harness.kinds.affine.bounds import decode_limit, round_trip_limit
from harness.kinds.affine.comparison import Comparison, one_zero
from harness.kinds.affine.evidence import code_text, group_place, index_of, number, spread, value_place
from harness.kinds.affine.run_microscaling import MicroscalingComparison
from harness.subjects.call import subject_call
from harness.subjects.protocol import AffineArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.affine.comparison import Watch
    from harness.kinds.affine.schema import AffineCase
    from harness.kinds.base import Notes
    from harness.subjects.protocol import Subject


def run(case: AffineCase, subject: Subject, notes: Notes, watch: Watch | None = None) -> None:
    """Run every check of the case; see `Kind.run`. `watch` is shown every comparison."""
    comparison = MicroscalingComparison if case.given.microscaling else AffineComparison
    comparison(case, subject, notes, watch).run()


class AffineComparison(Comparison):
    """A run in mode affine; of plain matrices it has the products."""

    def multiply(self, x: NDArray[Any], planes: Any) -> object:
        """Have the subject multiply."""
        return self.affine.matmul(x, planes, transpose=self.given.transposed)

    def quantize(self, weights: NDArray[Any]) -> object:
        """Have the subject quantize."""
        return self.affine.quantize(weights, self.given.group, self.given.bits)

    def take_encoded(self, shown: object) -> AffineArrays:
        """Return `shown` if it has the form of a quantized W."""
        given, weights = self.given, self.values.weights
        return self.border.take_planes("that quantize returned", shown, weights, given.group, given.bits)

    def check_encode(self) -> None:
        """Compare scales and biases bit for bit, and codes up to the ties that devices round differently."""
        given, weights = self.given, self.values.weights
        actual: AffineArrays = self.encoded
        packed, scales, biases = baseline.encode(weights, given.group, given.bits)
        for name, want, got in (("scale", scales, actual.scales), ("bias", biases, actual.biases)):
            if wrong := self.compare(Exact(), one_zero(want), one_zero(got)):
                at = index_of(wrong)
                group = weights.reshape(*scales.shape, given.group)[at].astype(np.float64)
                note = f"the group's values lie from {number(group.min())} to {number(group.max())}"
                self.found("encode", f"{name} of {group_place(at, given.group)}", wrong, note)
                return
        codes, shown = baseline.unpack(packed, given.bits), baseline.unpack(actual.packed, given.bits)
        # From halfway between two codes a value may go to either, and these data have many such values.
        policy = Lsb(share=1.0) if given.data == "between-codes" else Lsb()
        self.notes.judged_by(actual.packed, policy)
        if wrong := self.compare(policy, codes, shown):
            at = index_of(wrong)
            group_at = (*at[:-1], at[-1] // given.group)
            scale, bias = number(scales[group_at]), number(biases[group_at])
            note = f"the value is {number(weights[at])}, scale {scale}, bias {bias}"
            note = f"{spread(codes != shown, 'column', 'row')}; {note}"
            self.found("encode", f"code of {value_place(at, given.group)}", wrong, note)

    def check_decode(self) -> None:
        """Compare what the subject decodes from planes that the baseline made."""
        planes = self.values.planes
        if not isinstance(planes, AffineArrays):
            raise TypeError("plain matrices are not decoded")
        actual = self._dequantize(planes, "for dequantize")
        if wrong := self.compare(Bound(decode_limit(planes)), self.values.matrix, actual):
            at = index_of(wrong)
            self.found("decode", value_place(at, self.given.group), wrong, code_text(planes, at))

    def check_round_trip(self) -> None:
        """Compare what comes back from the subject's own encoder and decoder with what went in."""
        weights = self.values.weights
        encoded: AffineArrays = self.encoded
        actual = self._dequantize(encoded, "of its own for dequantize")
        limit = round_trip_limit(weights, encoded)
        if wrong := self.compare(Bound(limit), weights.astype(np.float64), actual):
            at = index_of(wrong)
            edge = "; the value of largest magnitude of a group must come back exactly" if limit[at] == 0 else ""
            self.found("round-trip", value_place(at, self.given.group), wrong, code_text(encoded, at) + edge)

    def _dequantize(self, planes: AffineArrays, label: str) -> NDArray[Any]:
        lent = self.border.lend_planes(label, planes, self.given.views)
        with subject_call("dequantize"):
            shown = self.affine.dequantize(lent)
        weights = self.values.weights
        actual = self.border.take("what dequantize returned", shown, weights.shape, weights.dtype)
        self.notes.judged_by(actual, Bound(decode_limit(planes)))
        return actual
