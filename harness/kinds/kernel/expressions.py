"""Expressions over arrays in kernel cases: `sum(x * w, axis=1)`, evaluated by simpleeval from a list of functions.

No attributes, methods, comprehensions or texts other than dtype names: what is not listed in
`harness.kinds.kernel.functions` can't be reached.
"""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.case.problem import nearest
from harness.kinds.kernel.functions import CONSTANTS, FUNCTIONS, OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST = 2000
_GRAMMAR = (
    *(ast.Expression, ast.Name, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.keyword),
    *(ast.Subscript, ast.Slice, ast.Tuple),
)


class ArrayExpressionError(ValueError):
    """An expression without a value, with the reason in words."""


def check(text: str, names: Iterable[str]) -> None:
    """Raise ArrayExpressionError for an expression that can't have a value where just `names` are known."""
    _, used, reason = _read(text)
    if reason:
        raise ArrayExpressionError(reason)
    known = {*names, *CONSTANTS}
    for word in used:
        if word not in known:
            raise ArrayExpressionError(f"'{word}' is not known here{nearest(word, known)}")


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate over `names`, widened arrays and numbers; raises ArrayExpressionError."""
    import simpleeval

    check(text, names)
    tree, _, _ = _read(text)
    evaluator = simpleeval.EvalWithCompoundTypes(OPERATORS, FUNCTIONS, {**CONSTANTS, **names})
    try:
        # Infinities and NaN are values like any others here.
        with np.errstate(all="ignore"):
            return evaluator.eval(text, previously_parsed=tree)
    except (simpleeval.InvalidExpression, ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise ArrayExpressionError(f"has no value: {error}") from None
    except (RecursionError, MemoryError):
        raise ArrayExpressionError("is too large to be evaluated") from None


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[ast.expr | None, tuple[str, ...], str]:
    """Parse an expression and list the names that it needs, or say what is wrong."""
    if len(text) > _LONGEST:
        return None, (), f"is longer than {_LONGEST} characters; write a `function`"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(" ".join(text.split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        return None, (), f"is no expression: {reason}" if text.strip() else "is empty"
    nodes = list(ast.walk(tree))
    for node in nodes:
        if why := _refusal(node):
            return None, (), why
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return tree.body, tuple(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called), ""


def _refusal(node: ast.AST) -> str:
    """Say what to write instead of a node that is not allowed."""
    arrays = "for arrays write & | ~ in the place of and, or, not"
    why = "" if isinstance(node, _GRAMMAR) else f"{type(node).__name__} can't stand in an expression"
    match node:
        case ast.Call(func=ast.Name(id=name)):
            why = "" if name in FUNCTIONS else f"there is no function '{name}'{nearest(name, FUNCTIONS)}"
        case ast.Call(func=ast.Attribute()):
            why = ""  # said of the attribute
        case ast.Constant(value=value):
            fits = value is None or (isinstance(value, str) and len(value) < 20) or type(value) in (int, float, bool)
            why = "" if fits else f"{value!r} can't stand here"
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            why = "" if type(op) in OPERATORS else arrays
        case ast.BoolOp():
            why = arrays
        case ast.Compare(ops=ops):
            fine = len(ops) == 1 and type(ops[0]) in OPERATORS
            why = "" if fine else "write one comparison at a time, in brackets and joined by &"
        case ast.Attribute(attr=name):
            why = f"write {name}(x) in the place of x.{name}" if name in FUNCTIONS else "no attributes and methods"
    return why
