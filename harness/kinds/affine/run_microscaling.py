"""Running an affine case in a microscaling format: the same checks, for elements that are small floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import microscaling as baseline
from harness.baseline.affine import unpack
from harness.compare import Bound
from harness.kinds.affine.comparison import Comparison
from harness.kinds.affine.evidence import group_place, number, value_place
from harness.kinds.affine.matrices import decoded, encoded
from harness.kinds.affine.microscaling import decode_limit, round_trip_limit, scale_slack
from harness.subjects.call import subject_call
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MicroscalingComparison(Comparison):
    """A run in mode mxfp4, mxfp8 or nvfp4."""

    def multiply(self, x: NDArray[Any], planes: Any) -> object:
        """Have the subject multiply."""
        return self.affine.matmul_microscaling(x, planes, transpose=self.given.transposed)

    def quantize(self, weights: NDArray[Any]) -> object:
        """Have the subject quantize."""
        return self.affine.quantize_microscaling(weights, self.given.mode)

    def take_encoded(self, shown: object) -> MicroscalingArrays:
        """Return `shown` if it has the form of a quantized W."""
        like = encoded(self.values.weights, self.given.mode, self.given.group, self.given.bits)
        if not isinstance(like, MicroscalingArrays):
            raise TypeError(self.given.mode)
        return self.border.take_microscaling("that quantize returned", shown, like)

    def check_encode(self) -> None:
        """Compare scales, then elements under these scales, each with what is nearest."""
        weights = self.values.weights
        actual: MicroscalingArrays = self.encoded
        distance, allowed = scale_slack(weights, actual)
        if wrong := self.compare(Bound(allowed), np.zeros_like(distance), distance):
            form, at = baseline.FORMATS[self.given.mode], wrong.index
            wanted = baseline.encode(weights, self.given.mode)[1]
            group = np.abs(weights.reshape(*distance.shape, -1)[at].astype(np.float64)).max()
            note = f"the group's largest magnitude is {number(group)}, the largest element {form.top:g}"
            place = f"scale of {group_place(at, self.given.group)}"
            expected, shown = (f"{number(form.scales[s[at]])} (code {int(s[at])})" for s in (wanted, actual.scales))
            self.notes.found("encode", place, expected, shown, note)
            return
        self._check_elements("encode", actual, decoded(actual))

    def check_decode(self) -> None:
        """Compare what the subject decodes from planes that the baseline made."""
        planes = self.values.planes
        if not isinstance(planes, MicroscalingArrays):
            raise TypeError(self.given.mode)
        actual = self._dequantize(planes, "for dequantize")
        limit = decode_limit(planes, self.values.weights.dtype)
        if wrong := self.compare(Bound(limit), self.values.matrix, actual):
            at = wrong.index
            self.found("decode", value_place(at, self.given.group), wrong, element_text(planes, at))

    def check_round_trip(self) -> None:
        """Compare what comes back from the subject's own encoder and decoder with what went in."""
        actual: MicroscalingArrays = self.encoded
        self._check_elements("round-trip", actual, self._dequantize(actual, "of its own for dequantize"))

    def _check_elements(self, check: str, planes: MicroscalingArrays, numbers: NDArray[Any]) -> None:
        weights = self.values.weights
        limit = round_trip_limit(weights, planes)
        if wrong := self.compare(Bound(limit), weights.astype(np.float64), numbers.astype(np.float64)):
            at = wrong.index
            note = f"{element_text(planes, at)}; no element is nearer than {limit[at]:.3g} allows"
            self.found(check, value_place(at, self.given.group), wrong, note)

    def _dequantize(self, planes: MicroscalingArrays, label: str) -> NDArray[Any]:
        lent = self.border.lend_planes(label, planes, self.given.views)
        weights = self.values.weights
        with subject_call("dequantize"):
            shown = self.affine.dequantize_microscaling(lent, weights.dtype)
        actual = self.border.take("what dequantize returned", shown, weights.shape, weights.dtype)
        self.notes.judged_by(actual, Bound(decode_limit(planes, weights.dtype)))
        return actual


def element_text(planes: MicroscalingArrays, index: tuple[int, ...]) -> str:
    """Write the element and the scale behind a value of W by its index [..., row, column]."""
    *row, column = index
    form = baseline.FORMATS[planes.mode]
    code = int(unpack(planes.packed[tuple(row)], planes.bits)[column])
    scale = int(planes.scales[(*row, column // planes.group_size)])
    return f"element {form.elements[code]:g} (code {code:#x}), scale {form.scales[scale]:g} (code {scale})"
