"""Arithmetic in case files: what it can say, and that nothing else is ever evaluated."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case.expression import ExpressionError, evaluate, evaluate_int, names_in

NAMES: dict[str, Any] = {"window": 4, "rows": 3, "storage": "affine4x64", "full": "none"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("  7\n", 7),
        ("window + 1", 5),
        ("window\n+ 1", 5),
        ("window - rows * 2", -2),
        ("-7 // 2", -4),
        ("-7 % 4", 1),
        ("min(window, rows)", 3),
        ("max(1, window, rows)", 4),
        ("min(window, max(rows, 9)) + 1", 5),
        ("window > rows and rows >= 3", True),
        ("window < rows or rows <= 2", False),
        ("not window == 4", False),
        ("1 < rows < window", True),
        ("storage == 'affine4x64' and full != 'affine4x64'", True),
        ("full == 4", False),
        ("full == 'none' or full > 3", True),
        ("storage", "affine4x64"),
        ("1099511627776", 1 << 40),
        ("-1099511627776", -(1 << 40)),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = evaluate(text, NAMES)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "window.real",
        "window.__class__",
        "'a'.ljust(9999999999)",
        "window.to_bytes(9999999999, 'little')",
        "storage[0]",
        "[1] * 9999999999",
        "(1,)",
        "{}",
        "f'{window}'",
        "lambda: 1",
        "(w := 3)",
        "[x for x in (1, 2)]",
        "1 if window else 2",
        "window in (1, 2)",
        "window is 4",
        "9 ** 9 ** 9",
        "1 << 9999999999",
        "~window",
        "window @ rows",
        "window & rows",
        "1.5",
        "1e3",
        "1j",
        "b'a'",
        "None",
        "True",
        "...",
        "print(1, 2)",
        "min(1)",
        "min()",
        "min(*storage)",
        "min(1, 2, key=print)",
        "min.__self__",
        "(min)(1, 2)(3)",
    ],
)
def test_what_is_not_arithmetic_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"has no value: only whole numbers, names, \+ - \* // %"):
        evaluate(text, NAMES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("window +", "invalid syntax"),
        ("1; 2", "invalid syntax"),
        ("import os", "invalid syntax"),
        ("(window", r"'\(' was never closed"),
        ("window = 4", "write `==` to compare"),
        ("window / 2", "`/` gives fractions; write `//`"),
        ("windw", r"'windw' is not known here; did you mean 'window'\?"),
        ("window > 9 and windw", "'windw' is not known here"),
        ("min", "'min' is not known here"),
        ("window // 0", "by zero"),
        ("window % (rows - 3)", "by zero"),
        ("'a' * 9999999999", "'a' is no whole number, and can only be compared with == and !="),
        ("'a' + 'b'", "'a' is no whole number"),
        ("-storage", "'affine4x64' is no whole number"),
        ("full > 3", "'none' is no whole number"),
        ("min(full, 3)", "'none' is no whole number"),
        ("(window > 1) + 1", "True is no whole number"),
        ("not window", "`not` needs a comparison, not 4"),
        ("1099511627776 + 1", "out of all proportion"),
        ("-1099511627776 - 1", "out of all proportion"),
        ("9" * 99 + "*" + "9" * 99, "out of all proportion"),
        ("1" + "+1" * 100, "is longer than 200 characters"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        evaluate(text, NAMES)


def test_a_name_may_be_called_like_a_function_and_then_is_a_number() -> None:
    assert evaluate("min + min(min, 3)", {"min": 2}) == 4


@pytest.mark.parametrize("text", ["window > 1", "storage", "'4'"])
def test_a_whole_number_is_a_whole_number(text: str) -> None:
    with pytest.raises(ExpressionError, match="a whole number is needed"):
        evaluate_int(text, NAMES)


def test_the_deepest_nesting_that_fits_has_a_value() -> None:
    assert evaluate("-" * 198 + "1", {}) == 1
    assert evaluate("(" * 99 + "1" + ")" * 99, {}) == 1


def test_words_of_an_expression() -> None:
    assert names_in("window + 2 * rows_2 - min(_a, 3)") == {"window", "rows_2", "min", "_a"}


@given(st.text(alphabet=st.sampled_from("window rows()+-*/%<>=!'\"[]{}.,:0123_notandorlambdafi"), max_size=40))
def test_any_text_has_a_value_or_one_kind_of_error(text: str) -> None:
    try:
        value = evaluate(text, NAMES)
    except ExpressionError as error:
        value = str(error)
    assert isinstance(value, (int, str))
    assert "object at 0x" not in str(value)


_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
_numbers = st.integers(0, 50).map(lambda number: (str(number), number))


def _joined(inner: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    pairs = st.tuples(inner, st.sampled_from(sorted(_OPERATORS)), inner)
    return pairs.filter(lambda pair: pair[2][1] != 0 or pair[1] in "+-*").map(
        lambda pair: (f"({pair[0][0]} {pair[1]} {pair[2][0]})", _OPERATORS[pair[1]](pair[0][1], pair[2][1]))
    )


@given(st.recursive(_numbers, _joined, max_leaves=8))
def test_arithmetic_is_python_s(pair: tuple[str, int]) -> None:
    text, value = pair
    if abs(value) <= 1 << 40:
        assert evaluate_int(text, {}) == value
