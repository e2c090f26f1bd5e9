"""Tolerance policies: named objects that say whether an array agrees with the baseline, and show the worst place.

There is no global rtol or atol. Each policy states what it allows and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# Unit roundoff (half the spacing of 1.0) of the arithmetic a backend may use.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Mismatch:
    """The first or worst place at which two arrays disagree, in words, and its index where it is an element."""

    where: str
    expected: str
    actual: str
    note: str = ""
    index: tuple[int, ...] = ()


class Policy(Protocol):
    """Compares `actual` with `expected`; None means that they agree."""

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return where they disagree, or None."""


def shape_mismatch(expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
    """Return a mismatch when shapes differ."""
    if expected.shape == actual.shape:
        return None
    return Mismatch("shape", str(list(expected.shape)), str(list(actual.shape)))


def dtype_mismatch(expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
    """Return a mismatch when dtypes differ."""
    if expected.dtype == actual.dtype:
        return None
    return Mismatch("dtype", expected.dtype.name, actual.dtype.name)


def place(index: Iterable[SupportsInt]) -> str:
    """Write an index as `[0, 3, 17]`."""
    return f"[{', '.join(str(int(i)) for i in index)}]"


@dataclass(frozen=True)
class Exact:
    """The same bits: also the sign of zero and the payload of NaN."""

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return the first element whose bits differ."""
        if wrong := shape_mismatch(expected, actual) or dtype_mismatch(expected, actual):
            return wrong
        differs = _bits(expected, "u") != _bits(actual, "u")
        if not differs.any():
            return None
        return _at(_first(differs), expected, actual, f"{int(differs.sum())} of {differs.size} elements differ")


@dataclass(frozen=True)
class Lsb:
    """Integer codes that may be off by one in a small share of places.

    Measured between an Apple M1 Max and an x86 CPU (affine, 8 bits, group 32, bfloat16): 0.24 % of codes differ,
    each by one, as ties of rounding fall differently. So: at most `max(2, share * size)` codes, none by more than one.
    """

    share: float = 0.005

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return the first code that is off by more than one, or the first of too many."""
        if wrong := shape_mismatch(expected, actual):
            return wrong
        if expected.dtype.kind not in "iu" or actual.dtype.kind not in "iu":
            return Mismatch("dtype", f"integer codes ({expected.dtype.name})", actual.dtype.name)
        gap = np.abs(expected.astype(np.int64) - actual.astype(np.int64))
        allowed = max(2, int(self.share * gap.size))
        far, near = gap > 1, gap == 1
        if far.any():
            note = f"{int(far.sum())} of {gap.size} codes are off by more than one"
            return _at(_first(far), expected, actual, note)
        if near.sum() > allowed:
            note = f"{int(near.sum())} of {gap.size} codes are off by one; {allowed} may be"
            return _at(_first(near), expected, actual, note)
        return None


@dataclass(frozen=True)
class Bound:
    """|actual - expected| <= `limit`, element by element; `limit` is derived by the caller from the arithmetic.

    Values that are not finite match by kind and sign only.
    """

    limit: NDArray[np.float64]

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return the element that exceeds its bound by the largest factor."""
        if wrong := shape_mismatch(expected, actual):
            return wrong
        want, got = _numbers(expected), _numbers(actual)
        limit = np.broadcast_to(self.limit, want.shape)
        special = ~np.isfinite(want) | ~np.isfinite(got)
        same = np.where(np.isnan(want), np.isnan(got), want == got)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(special, np.where(same, 0.0, np.inf), np.abs(np.where(special, 0.0, got - want)))
        # No bound is so wide that it takes infinity for a number, and one that is no number allows nothing.
        exceeds = np.isinf(error) | ((error > 0) & ~(error <= limit))
        if not exceeds.any():
            return None
        measurable = (limit > 0) & np.isfinite(limit)
        with np.errstate(over="ignore"):
            factor = np.divide(error, limit, out=np.full(error.shape, np.inf), where=measurable)
        at = tuple(map(int, np.unravel_index(int(np.argmax(np.where(exceeds, factor, -1.0))), factor.shape)))
        note = f"error {error[at]:.3g}, bound {limit[at]:.3g}; {int(exceeds.sum())} of {exceeds.size} exceed theirs"
        return _at(at, want, got, note)


@dataclass(frozen=True)
class Ulp:
    """At most `count` representable numbers apart, for float32 and float16."""

    count: int

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return the first element that is further away."""
        if wrong := shape_mismatch(expected, actual) or dtype_mismatch(expected, actual):
            return wrong
        far = np.abs(_ordered(expected) - _ordered(actual)) > self.count
        want, got = _numbers(expected), _numbers(actual)
        # Infinity is next to the largest number, and a NaN next to infinity: neither is a rounding away.
        far |= np.isinf(want) != np.isinf(got)
        far = np.where(np.isnan(want) | np.isnan(got), np.isnan(want) != np.isnan(got), far)
        if not far.any():
            return None
        note = f"{int(far.sum())} of {far.size} elements are more than {self.count} ulp away"
        return _at(_first(far), expected, actual, note)


@dataclass(frozen=True)
class Nmse:
    """Mean squared error over the mean square of the expected array at most `limit`: for lossy codes."""

    limit: float

    def check(self, expected: NDArray[Any], actual: NDArray[Any]) -> Mismatch | None:
        """Return the error of the whole array when it is too large."""
        if wrong := shape_mismatch(expected, actual):
            return wrong
        want, got = _numbers(expected), _numbers(actual)
        if want.size == 0:
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            value = float(np.mean((got - want) ** 2)) / max(float(np.mean(want**2)), 1e-300)
        if value <= self.limit:
            return None
        return Mismatch("whole array", f"nmse <= {self.limit:.3g}", f"nmse {value:.3g}")


def dot_bound(terms: int, absolute_sum: NDArray[np.float64], unit: float, extra: int = 2) -> NDArray[np.float64]:
    """Bound the error of a dot product of `terms` terms, summed in any order in arithmetic of unit roundoff `unit`.

    |error| <= gamma_{n+c} * sum |a_i b_i| with gamma_m = m u / (1 - m u) (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1); `extra` (c) counts roundings of inputs and of the result. Infinite when m u >= 1.
    """
    mu = (terms + extra) * unit
    if mu >= 1:
        return np.full_like(absolute_sum, np.inf)
    return absolute_sum * (mu / (1 - mu))


def _first(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _at(index: tuple[int, ...], expected: NDArray[Any], actual: NDArray[Any], note: str) -> Mismatch:
    return Mismatch(place(index), _text(expected[index]), _text(actual[index]), note, index)


def _numbers(array: NDArray[Any]) -> NDArray[np.float64]:
    # Converting a signaling NaN is an event to IEEE 754, and none to us.
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def _bits(array: NDArray[Any], code: str) -> NDArray[Any]:
    # A contiguous copy of a scalar array has an axis too many.
    return np.ascontiguousarray(array).view(f"{code}{array.dtype.itemsize}").reshape(array.shape)


def _ordered(array: NDArray[Any]) -> NDArray[np.int64]:
    bits = _bits(array, "i").astype(np.int64)
    top = np.int64(1) << np.int64(8 * array.dtype.itemsize - 1)
    return np.where(bits < 0, -(bits & (top - 1)), bits)


def _text(value: Any) -> str:
    return f"{float(value):.9g}" if np.dtype(value.dtype).kind not in "iub" else str(int(value))
