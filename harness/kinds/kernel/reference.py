"""What a kernel must write: the case's expression or function over its inputs, and how far off an output may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.compare import UNIT_ROUNDOFF, Bound, Exact, Mismatch, Nmse, Policy, Ulp, dot_bound
from harness.kinds.kernel.expressions import ArrayExpressionError, evaluate
from harness.kinds.kernel.files import call_function
from harness.kinds.kernel.functions import stored, widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.kernel.inputs import Input
    from harness.kinds.kernel.schema import KernelGiven, OutputGiven, Within

_SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


class NoAnswerError(ValueError):
    """The case's own answer can't be computed; `key` is the key of the output that says it."""

    def __init__(self, key: str, why: str) -> None:
        """Keep the key for a place in the file."""
        self.key = key
        super().__init__(why)


@dataclass(frozen=True)
class Wanted:
    """The answer of one output, in the dtype that its policy compares, with the policy."""

    values: NDArray[Any]
    policy: Policy

    def compare(self, actual: NDArray[Any]) -> Mismatch | None:
        """Return where `actual` is wrong, or None; one NaN is as good as another."""
        if isinstance(self.policy, Exact):
            return self.policy.check(_one_nan(self.values), _one_nan(actual))
        return self.policy.check(self.values, actual)

    def far(self, actual: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which elements are wrong, none where the policy does not say it of each."""
        if not isinstance(self.policy, Exact | Bound):
            return np.zeros(actual.shape, np.bool_)
        with np.errstate(all="ignore"):
            want, got = self.values.astype(np.float64), actual.astype(np.float64)
            limit = self.policy.limit if isinstance(self.policy, Bound) else 0.0
            wrong: NDArray[np.bool_] = (
                ~(np.abs(want - got) <= limit) & ~(np.isnan(want) & np.isnan(got)) & (want != got)
            )
        return wrong

    def with_guard(self, count: int) -> Policy:
        """Return the policy for an output with `count` elements behind it that no thread may write."""
        if isinstance(self.policy, Bound):
            return Bound(np.concatenate([np.ravel(self.policy.limit), np.zeros(count)]))
        return self.policy


def want(given: KernelGiven, inputs: dict[str, Input]) -> dict[str, Wanted]:
    """Compute the answers of all outputs; raises NoAnswerError with the first that has none."""
    names = names_of(given, inputs)
    wanted = {}
    for name, output in given.outputs.items():
        try:
            wanted[name] = _wanted(output, names, inputs)
        except NoAnswerError as error:
            raise NoAnswerError(f"{name}.{error.key}", str(error)) from None
    return wanted


def names_of(given: KernelGiven, inputs: dict[str, Input]) -> dict[str, Any]:
    """Return what expressions may name: whole numbers and dtypes of the matrix, and the inputs."""
    return {**given.constants, **{name: widened(one.values) for name, one in inputs.items()}}


def _wanted(output: OutputGiven, names: dict[str, Any], inputs: dict[str, Input]) -> Wanted:
    key = "expect" if output.function is None else "function"
    if output.function is None:
        value = _evaluated(output.expect or "", names, key)
    else:
        # Copies: what the function does to them must not reach anything else.
        given = {name: np.array(one.values) for name, one in inputs.items()}
        try:
            value = call_function(output.function, given)
        except Exception as error:
            raise NoAnswerError(key, f"{output.function.name} raised {type(error).__name__}: {error}") from error
    value = _shaped(value, tuple(output.shape), key)
    within = output.within
    if within == "exact" or within.ulp is not None:
        in_dtype = stored(value, output.dtype)
        return Wanted(in_dtype, Exact() if within == "exact" or within.ulp is None else Ulp(within.ulp))
    value = value.astype(np.float64)
    if within.nmse is not None:
        return Wanted(value, Nmse(within.nmse))
    return Wanted(value, Bound(_limit(output, within, value, names)))


def _limit(output: OutputGiven, within: Within, value: NDArray[Any], names: dict[str, Any]) -> NDArray[np.float64]:
    """Bound |error|.

    For `magnitudes` M and `terms` n: gamma_(n + extra) M in the arithmetic of the sums (see `dot_bound`), and one more
    rounding when the result is stored, u (|answer| + that), and the smallest normal number of the output's dtype, below
    which GPUs flush to zero.
    """
    shape = tuple(output.shape)
    unit = UNIT_ROUNDOFF.get(output.dtype, 0.0)
    if within.magnitudes is not None:
        sizes = np.abs(_shaped(_evaluated(within.magnitudes, names, "within"), shape, "within").astype(np.float64))
        summed = dot_bound(within.terms, sizes, UNIT_ROUNDOFF[within.arithmetic], within.extra)
        limit: NDArray[np.float64] = summed + unit * (np.abs(value) + summed) + _SMALLEST.get(output.dtype, 0.0)
        return limit
    units = {"unit": unit, "unit32": UNIT_ROUNDOFF["float32"]}
    found = _evaluated(within.limit or "", {**names, **units, "expected": value}, "within")
    return _shaped(found, shape, "within").astype(np.float64)


def _evaluated(text: str, names: dict[str, Any], key: str) -> Any:
    try:
        return evaluate(text, names)
    except ArrayExpressionError as error:
        raise NoAnswerError(key, str(error)) from None


def _shaped(value: Any, shape: tuple[int, ...], key: str) -> NDArray[Any]:
    """Return `value` as an array of `shape`; one number stands for all elements."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise NoAnswerError(key, f"makes no array: {error}") from None
    if array.dtype.kind not in "biuf" and array.dtype != ml_dtypes.bfloat16:
        raise NoAnswerError(key, f"makes {array.dtype} in the place of numbers")
    if array.ndim and array.shape != shape:
        raise NoAnswerError(key, f"makes an array of shape {list(array.shape)}, and the output's is {list(shape)}")
    return np.broadcast_to(array, shape)


def _one_nan(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "biu":
        return array
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(array), np.array(np.nan).astype(array.dtype), array)
