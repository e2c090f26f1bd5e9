"""Arithmetic in case files: `append: window + 1`, `where: tokens > window`.

Whole numbers and names, `+ - * // %`, comparisons, `and`, `or`, `not`, `min` and `max`; names may also hold words,
which can only be compared. simpleeval does the evaluating, but of these alone: by itself it also repeats texts
(`'a' * 9999999999`), calls their methods and takes attributes, which costs memory without end.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.case.problem import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BIGGEST = 1 << 40
_LONGEST = 200
_ALLOWED = "whole numbers, names, + - * // %, comparisons, `and`, `or`, `not`, `min(a, b)` and `max(a, b)` can be used"
_GRAMMAR = (ast.Expression, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.BoolOp)


class ExpressionError(ValueError):
    """An expression that has no value, with the reason in words."""


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse everything but whole numbers as arguments of `function`."""

    def checked(*values: Any) -> Any:
        for value in values:
            if type(value) is not int:
                raise TypeError(f"{value!r} is no whole number, and can only be compared with == and !=")
        return function(*values)

    return checked


def _negate(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"`not` needs a comparison, not {value!r}")
    return not value


_OPERATORS = {
    ast.Add: _whole(operator.add),
    ast.Sub: _whole(operator.sub),
    ast.Mult: _whole(operator.mul),
    ast.FloorDiv: _whole(operator.floordiv),
    ast.Mod: _whole(operator.mod),
    ast.USub: _whole(operator.neg),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _whole(operator.lt),
    ast.LtE: _whole(operator.le),
    ast.Gt: _whole(operator.gt),
    ast.GtE: _whole(operator.ge),
    ast.Not: _negate,
}
_FUNCTIONS = {"min": _whole(min), "max": _whole(max)}


@lru_cache(maxsize=4096)
def names_in(text: str) -> frozenset[str]:
    """Return the words of an expression: what it might take from the matrix."""
    return frozenset(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate `text` over `names`; raises ExpressionError."""
    import simpleeval

    if len(text) > _LONGEST:
        raise ExpressionError(f"is longer than {_LONGEST} characters")
    text = " ".join(text.split())
    tree = _parse(text, names)
    evaluator = simpleeval.SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=dict(names))
    try:
        value = evaluator.eval(text, previously_parsed=tree)
    except (simpleeval.InvalidExpression, ArithmeticError, TypeError) as error:
        raise ExpressionError(f"'{text}' has no value: {error}") from None
    if isinstance(value, int) and abs(value) > _BIGGEST:
        raise ExpressionError(f"'{text}' is out of all proportion; whole numbers go up to 2 to the power of 40")
    return value


def _parse(text: str, names: Mapping[str, Any]) -> ast.expr:
    tree, used, reason = _read(text)
    if tree is None:
        raise ExpressionError(f"'{text}' has no value: {reason}")
    for word in used:
        if word not in names:
            raise ExpressionError(f"'{text}' has no value: '{word}' is not known here{nearest(word, names)}")
    return tree


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[ast.expr | None, tuple[str, ...], str]:
    """Parse an expression and list the names it needs; or say why not. A matrix asks for the same ones many times."""
    try:
        with warnings.catch_warnings():
            # Of dubious Python (`1or 2`), which users of case files need not hear about.
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        if not text:
            reason = "it is empty"
        elif re.search(r"[^=!<>]=[^=]", text):
            reason = "write `==` to compare"
        return None, (), reason
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Div) for node in nodes):
        return None, (), "`/` gives fractions; write `//`"
    if not all(map(_allowed, nodes)):
        return None, (), f"only {_ALLOWED}"
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    used = tuple(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)
    return tree.body, used, ""


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, str)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in _FUNCTIONS and len(arguments) > 1
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            return type(op) in _OPERATORS
        case ast.Compare(ops=ops):
            return all(type(op) in _OPERATORS for op in ops)
        case _:
            return isinstance(node, (*_GRAMMAR, ast.Name))


def evaluate_int(text: str, names: Mapping[str, Any]) -> int:
    """Evaluate `text` to a whole number; raises ExpressionError when it is anything else."""
    value = evaluate(text, names)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExpressionError(f"'{text}' is {value!r}; a whole number is needed")
    return value
