"""Expressions over arrays: NumPy's answers, and nothing else that Python could do."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from harness.kinds.kernel.expressions import ArrayExpressionError, evaluate
from harness.kinds.kernel.functions import stored, widened

X = np.array([1.5, -2.0, 0.25])
I = np.array([3, -7, 8, 0])  # noqa: E741 - as in the expressions
NAMES: dict[str, Any] = {"x": X, "i": I, "n": 4, "dtype": "float16"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * x + 1", [4, -3, 1.5]),
        ("(1, 2, 3) * 2", [2, 4, 6]),
        ("sum(x * x)", X @ X),
        ("x[::-1][:2]", [0.25, -2]),
        ("x[:, None] * (1, 10)", np.outer(X, [1, 10])),
        ("where((x > 0) & (x < 1), 1, 0)", [0, 0, 1]),
        ("i % n", [3, 1, 0, 0]),
        ("i >> 1", [1, -4, 4, 0]),
        ("take(x, (2, 0))", [0.25, 1.5]),
        ("max(reshape(i, 2, 2), axis=1)", [3, 8]),
        ("rounded(2049, dtype)", 2048),
        ("rounded(x / 3, 'bfloat16')", (X / 3).astype(ml_dtypes.bfloat16).astype(float)),
        ("bits(x, 'float32')", [0x3FC00000, 0xC0000000, 0x3E800000]),
        ("from_bits(bits(x, 'float16'), 'float16')", X),
        ("reversed_bits((1, 6), 8)", [128, 96]),
        ("leading_zeros((0, 1, 255), 8)", [8, 7, 0]),
        ("trailing_zeros((0, 1, 96), 8)", [8, 0, 5]),
        ("bincount((1, 1, 3), 5)", [0, 2, 0, 1, 0]),
        ("put(4, (2, 0), (5, 7))", [7, 0, 5, 0]),
        ("padded(x, 5, -1)", [1.5, -2, 0.25, -1, -1]),
        ("erf(0)", 0),
        ("dtype == 'float16'", True),
    ],
)
def test_values_are_numpys(text: str, expected: Any) -> None:
    assert np.array_equal(np.asarray(evaluate(text, NAMES)), np.asarray(expected))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("2 *", "is no expression"),
        ("y + 1", "'y' is not known here"),
        ("x.T", "no attributes and methods"),
        ("open('a')", "there is no function 'open'"),
        ("(lambda: 1)()", "can't stand in an expression"),
        ("[1, 2]", "List can't stand in an expression"),
        ("0 < x < 1", "write one comparison at a time"),
        ("not x", "for arrays write & | ~"),
        ("'a' * 99999999999", "a text can only be compared"),
        ("(1, 2) * arange(3)", "cannot be broadcast"),
        ("arange(1 << 40)", "16777216 are allowed"),
        ("ones(9000, 9000)", "16777216 are allowed"),
        ("arange(9000)[:, None] * arange(9000)", "16777216 are allowed"),
        ("arange(9000)[:, None] @ arange(9000)[None]", "16777216 are allowed"),
        ("repeat(x, 1 << 40)", "16777216 are allowed"),
        ("tile(x, 1 << 40)", "16777216 are allowed"),
        ("bincount((1 << 40, 2), 3)", "16777216 are allowed"),
        ("9 ** 9 ** 9", "a power of whole numbers goes up to 64"),
        ("1 << 99999", "a shift of whole numbers goes from 0 to 63"),
        ("rounded(x, 'float')", "'float' is no dtype"),
        ("x[7]", "out of bounds"),
        ("x" * 3000, "is longer than 2000 characters"),
    ],
)
def test_what_has_no_value_is_said_in_words(text: str, reason: str) -> None:
    with pytest.raises(ArrayExpressionError, match=re.escape(reason)):
        evaluate(text, NAMES)


@pytest.mark.parametrize("text", ["-" * 1500 + "1", "1+" * 999 + "1", "(" * 900 + "1" + ")" * 900])
def test_deep_expressions_are_computed_or_refused(text: str) -> None:
    with suppress(ArrayExpressionError):
        assert evaluate(text, NAMES) in (1, 1000)


def test_whole_numbers_wrap_as_their_dtype_does() -> None:
    assert stored(np.array([300, -1, 128]), "int8").tolist() == [44, -1, -128]
    assert stored(np.array([300, -1]), "uint8").tolist() == [44, 255]
    assert stored(np.array([0.1]), "float16")[0] == np.float16(0.1)
    assert widened(np.array([3], np.uint8)).dtype == np.int64
    assert widened(np.array([3], np.uint64)).dtype == np.uint64
    assert widened(np.array([3], ml_dtypes.bfloat16)).dtype == np.float64
