"""The functions and operators that expressions over arrays may use: NumPy's, in float64 and 64-bit whole numbers.

Each result is bounded in size before it is computed: a case file must not fill the memory of whoever loads it.
"""

from __future__ import annotations

import ast
import math
import operator
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MOST_ELEMENTS = 1 << 24
_DTYPES = (
    *("float32", "float16", "bfloat16", "bool", "int8", "uint8"),
    *("int16", "uint16", "int32", "uint32", "int64", "uint64"),
)


class TooLargeError(ValueError):
    """A result would have more elements than any case needs."""


def widened(values: Any) -> Any:
    """Return what expressions compute with: float64, int64 (uint64 stays), bool; scalars as they are."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind == "b" or values.dtype == np.uint64:
        return values
    # Converting a signaling NaN is an event to IEEE 754, and none to us.
    with np.errstate(invalid="ignore"):
        return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def stored(values: Any, dtype_name: str) -> NDArray[Any]:
    """Return what a dtype makes of a result: floats rounded once to nearest, whole numbers modulo 2 to the bits."""
    dtype = _dtype(dtype_name)
    array = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype)


def _dtype(name: Any) -> np.dtype[Any]:
    if name not in _DTYPES:
        raise TypeError(f"{name!r} is no dtype; write one of {', '.join(_DTYPES)}, in quotes")
    return numpy_dtype(name)


def _checked(count: int) -> None:
    if count > MOST_ELEMENTS:
        raise TooLargeError(f"a result of {count} elements; {MOST_ELEMENTS} are allowed")


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Bound the size of what elementwise functions make of their arguments."""

    @wraps(function, updated=())
    def bounded(*given: Any, **named: Any) -> Any:
        # Python repeats texts and tuples where NumPy multiplies.
        values = [np.array(value) if isinstance(value, tuple) else value for value in given]
        if any(isinstance(value, str) for value in values) and function not in (operator.eq, operator.ne):
            raise TypeError("a text can only be compared, or name a dtype")
        _checked(math.prod(np.broadcast_shapes(*(np.shape(value) for value in (*values, *named.values())))))
        return function(*values, **named)

    return bounded


def _matmul(a: Any, b: Any) -> Any:
    _checked(np.size(a) // max(np.shape(a)[-1:] or (1,)) * (np.shape(b)[-1] if np.ndim(b) > 1 else 1))
    return np.matmul(a, b)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and (abs(base) > 1 << 32 or not 0 <= exponent <= 64):
        raise TooLargeError("a power of whole numbers goes up to 64, of a base up to 2**32; write 2.0 for fractions")
    return base**exponent


def _left_shift(value: Any, amount: Any) -> Any:
    if isinstance(value, int) and isinstance(amount, int) and not 0 <= amount <= 63:
        raise TooLargeError("a shift of whole numbers goes from 0 to 63")
    return value << amount


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _spread(operator.add),
    ast.Sub: _spread(operator.sub),
    ast.Mult: _spread(operator.mul),
    ast.Div: _spread(operator.truediv),
    ast.FloorDiv: _spread(operator.floordiv),
    ast.Mod: _spread(operator.mod),
    ast.Pow: _spread(_power),
    ast.MatMult: _matmul,
    ast.LShift: _spread(_left_shift),
    ast.RShift: _spread(operator.rshift),
    ast.BitAnd: _spread(operator.and_),
    ast.BitOr: _spread(operator.or_),
    ast.BitXor: _spread(operator.xor),
    ast.Eq: _spread(operator.eq),
    ast.NotEq: _spread(operator.ne),
    ast.Lt: _spread(operator.lt),
    ast.LtE: _spread(operator.le),
    ast.Gt: _spread(operator.gt),
    ast.GtE: _spread(operator.ge),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: np.invert,
}


def _arange(*bounds: int) -> NDArray[Any]:
    _checked(len(range(*bounds)))
    return np.arange(*bounds)


def _filled(value: float) -> Callable[..., NDArray[Any]]:
    def fill(*shape: int) -> NDArray[Any]:
        _checked(math.prod(shape))
        return np.full(shape, value)

    return fill


def _reshape(x: Any, *shape: int) -> NDArray[Any]:
    return np.reshape(x, shape)


def _transpose(x: Any, *axes: int) -> NDArray[Any]:
    return np.transpose(np.asarray(x), axes or None)


def _repeat(x: Any, times: int, axis: int = -1) -> NDArray[Any]:
    _checked(np.size(x) * times)
    return np.repeat(x, times, axis=axis)


def _tile(x: Any, *times: int) -> NDArray[Any]:
    _checked(np.size(x) * math.prod(times))
    return np.tile(x, times)


def _bincount(x: Any, bins: int) -> NDArray[Any]:
    _checked(max(bins, int(np.max(x, initial=0)) + 1))
    return np.bincount(np.ravel(x), minlength=bins)[:bins]


def _padded(x: Any, size: int, value: float) -> NDArray[Any]:
    """Return a flat `x` with `value` behind it, `size` elements in all."""
    _checked(size)
    flat = np.ravel(x)
    return np.append(flat, np.full(size - flat.size, value, flat.dtype))


def _put(size: int, index: Any, values: Any, initial: float = 0) -> NDArray[Any]:
    """Scatter: an array of `size` elements that holds `initial`, and `values` at `index`."""
    _checked(size)
    made = np.full(size, initial, np.result_type(np.asarray(values).dtype, np.asarray(initial).dtype))
    made[np.asarray(index)] = values
    return made


def _bits(x: Any, dtype: str) -> NDArray[Any]:
    """Return the bits of `x` in `dtype` as a whole number."""
    array = stored(x, dtype)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape).astype(np.int64)


def _from_bits(x: Any, dtype: str) -> Any:
    wanted = _dtype(dtype)
    bits = np.ascontiguousarray(np.asarray(x).astype(f"u{wanted.itemsize}"))
    return widened(bits.view(wanted).reshape(np.shape(x)))


def _leading_zeros(x: Any, bits: int) -> Any:
    return bits - np.sum([np.asarray(x) >> k > 0 for k in range(bits)], axis=0)


def _trailing_zeros(x: Any, bits: int) -> NDArray[Any]:
    value = np.asarray(x)
    return np.where(value == 0, bits, np.bitwise_count((value & -value) - 1))


def _reversed_bits(x: Any, bits: int) -> Any:
    return np.sum([(np.asarray(x) >> k & 1) << (bits - 1 - k) for k in range(bits)], axis=0)


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


_ELEMENTWISE = """
    abs exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh
    arctanh sqrt cbrt floor ceil trunc rint sign copysign hypot fmod minimum maximum fmin fmax where clip isnan isinf
    isfinite signbit ldexp logical_and logical_or logical_not gcd
"""
_WHOLE = "sum prod max min mean argmax argmin cumsum cumprod sort argsort any all flip roll diff take take_along_axis"

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _spread(getattr(np, name)) for name in _ELEMENTWISE.split()},
    **{name: getattr(np, name) for name in _WHOLE.split()},
    "arange": _arange,
    "bincount": _bincount,
    "bit_count": np.bitwise_count,
    "bits": _bits,
    "dot": _matmul,
    "erf": _erf,
    "from_bits": _from_bits,
    "leading_zeros": _leading_zeros,
    "matmul": _matmul,
    "ones": _filled(1),
    "padded": _padded,
    "put": _put,
    "repeat": _repeat,
    "reshape": _reshape,
    "reversed_bits": _reversed_bits,
    "rounded": lambda x, dtype: widened(stored(x, dtype)),
    "tile": _tile,
    "trailing_zeros": _trailing_zeros,
    "transpose": _transpose,
    "zeros": _filled(0),
}
CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
