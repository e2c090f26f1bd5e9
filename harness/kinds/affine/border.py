"""Arrays that cross the border to a subject: copies go out, what comes back is of the right form, and both last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.affine import WORD_BITS
from harness.compare import Exact
from harness.kinds.affine.layouts import laid_out
from harness.kinds.affine.matrices import M, mapped
from harness.kinds.base import Notes, StopInstance
from harness.subjects.protocol import AffineArrays
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class _Crossed:
    label: str
    array: NDArray[Any]
    then: NDArray[Any]


class Border:
    """Lends copies to a subject and takes its answers; remembers what every array held when it crossed."""

    def __init__(self, notes: Notes) -> None:
        """Note findings in `notes`."""
        self.notes = notes
        self._crossed: list[_Crossed] = []

    def lend(self, label: str, array: NDArray[Any], view: str = "contiguous") -> NDArray[Any]:
        """Return a copy of `array` that the subject may look at, in memory as `view` says (`laid_out`)."""
        copy = laid_out(array, view)
        self._remember(label, copy)
        return copy

    def lend_planes(self, label: str, planes: M, view: str = "contiguous") -> M:
        """Return a copy of `planes`, or of what else W is stored as."""
        return mapped(planes, lambda name, array: self.lend(f"{name} {label}", array, view))

    def take(self, label: str, shown: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return `shown` if it is an array of `shape` and `dtype`; otherwise note that and raise StopInstance."""
        self.notes.compared()
        if isinstance(shown, np.ndarray) and shown.shape == shape and shown.dtype == dtype:
            self._remember(label, shown)
            return shown
        actual = f"{shown.dtype} {list(shown.shape)}" if isinstance(shown, np.ndarray) else type(shown).__name__
        self.notes.found("shape", label, f"a NumPy array {dtype} {list(shape)}", actual)
        raise StopInstance

    def take_planes(self, label: str, shown: object, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        """Return `shown` if it is what a quantized `x` looks like; otherwise note that and raise StopInstance."""
        self.notes.compared()
        if not isinstance(shown, AffineArrays):
            self.notes.found("shape", label, "AffineArrays", type(shown).__name__)
            raise StopInstance
        if (shown.group_size, shown.bits) != (group_size, bits):
            actual = f"group_size {shown.group_size}, bits {shown.bits}"
            self.notes.found("shape", label, f"group_size {group_size}, bits {bits}", actual)
            raise StopInstance
        *lead, length = x.shape
        self.take(f"packed {label}", shown.packed, (*lead, length * bits // WORD_BITS), np.dtype(np.uint32))
        for name in ("scales", "biases"):
            self.take(f"{name} {label}", getattr(shown, name), (*lead, length // group_size), x.dtype)
        return shown

    def take_microscaling(self, label: str, shown: object, like: MicroscalingArrays) -> MicroscalingArrays:
        """Return `shown` if it has the form of `like`; otherwise note that and raise StopInstance."""
        self.notes.compared()
        form = (like.mode, like.group_size, like.bits)
        if not isinstance(shown, MicroscalingArrays) or (shown.mode, shown.group_size, shown.bits) != form:
            expected = f"MicroscalingArrays of {like.mode}, group_size {like.group_size}, bits {like.bits}"
            self.notes.found("shape", label, expected, f"{shown!r:.80}")
            raise StopInstance
        for name in ("packed", "scales"):
            wanted = getattr(like, name)
            self.take(f"{name} {label}", getattr(shown, name), wanted.shape, wanted.dtype)
        return shown

    def check_untouched(self) -> None:
        """Note the first array that no longer holds what it held when it crossed."""
        for crossed in self._crossed:
            self.notes.compared()
            if wrong := Exact().check(crossed.then, crossed.array):
                place = f"{crossed.label}, element {wrong.where}"
                note = f"{wrong.note} from what was handed over"
                self.notes.found("untouched", place, wrong.expected, wrong.actual, note)
                return

    def _remember(self, label: str, array: NDArray[Any]) -> None:
        self._crossed.append(_Crossed(label, array, array.copy()))
