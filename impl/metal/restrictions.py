"""What Metal refuses and the front end accepts, found in clang's syntax tree.

Metal Shading Language Specification: every pointer and reference names its address space (chapter 4); no recursion,
goto, new or exceptions (1.5.4); bfloat and half do not mix without a conversion (2.1).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from impl.metal import syntax_tree
from impl.metal.diagnostics import at_line
from impl.metal.errors import CompileError

if TYPE_CHECKING:
    from impl.metal.syntax_tree import Node

_NAMED_POINTER = re.compile(r"\b(\w+) '([^']*)'(?::'([^']*)')?")
_WRITABLE_GLOBAL = re.compile(r"__global (?!const\b)[^*&]*")
_DECLARED = re.compile(r"^ (0x[0-9a-f]+)(?:.*? prev (0x[0-9a-f]+))?")
_CALLED = re.compile(r"(?:Function|CXXMethod) (0x[0-9a-f]+) '\w+'")
_FLAGS = {"used", "referenced", "invalid"}  # before a type without a name
_DECLARATIONS = {"VarDecl", "ParmVarDecl", "FieldDecl"}
_FUNCTIONS = {"FunctionDecl", "CXXMethodDecl"}
_FORBIDDEN = {
    "GotoStmt": "goto",
    "IndirectGotoStmt": "goto",
    "GCCAsmStmt": "assembly",
    "CXXNewExpr": "new",
    "CXXDeleteExpr": "delete",
    "CXXThrowExpr": "throw",
    "CXXTryStmt": "try",
}
_OWN_FILES = ("source", "header", "signature")


def check(name: str, tree: str, unit: str) -> None:
    """Raise CompileError for the first thing in `tree` that Metal refuses."""
    nodes = list(syntax_tree.nodes(tree))
    for find in (_forbidden, _writable_globals, _without_address_space, _mixed_half_types, _recursion):
        found = find(nodes)
        if found is None:
            continue
        node, message = found
        where = at_line(unit, node.file, node.line, node.column)
        raise CompileError(
            f"kernel {name!r} is not Metal:\n{node.file}:{node.line}:{node.column}: error: {message}\n{where}".rstrip()
        )


def _forbidden(nodes: list[Node]) -> tuple[Node, str] | None:
    for node in nodes:
        if node.kind in _FORBIDDEN and node.file in _OWN_FILES:
            return node, f"Metal has no {_FORBIDDEN[node.kind]}"
    return None


def _writable_globals(nodes: list[Node]) -> tuple[Node, str] | None:
    for node in nodes:
        named = _NAMED_POINTER.search(node.rest) if node.kind == "VarDecl" else None
        if named and node.file in _OWN_FILES and _WRITABLE_GLOBAL.fullmatch(named[2]):
            return node, f"{named[1]} outlives the kernel and can be written; such variables must be constant in Metal"
    return None


def _without_address_space(nodes: list[Node]) -> tuple[Node, str] | None:
    implicit_depth: int | None = None
    for node in nodes:
        if implicit_depth is not None and node.depth > implicit_depth:
            continue
        # What the compiler adds itself, such as a copy constructor with its `const S &`, nobody could have qualified.
        implicit = " implicit " in node.rest.partition("'")[0]
        implicit_depth = node.depth if implicit else None
        if implicit or node.kind not in _DECLARATIONS or node.file not in _OWN_FILES:
            continue
        named = _NAMED_POINTER.search(node.rest)
        if named is None or "__generic" not in named[2] or named[1] in _FLAGS or named[1].isdecimal():
            continue
        what = "reference" if "&" in named[2] else "pointer"
        return node, (
            f"{named[1]} is a {what} without an address space; "
            "write device, constant, threadgroup or thread before its type"
        )
    return None


def _mixed_half_types(nodes: list[Node]) -> tuple[Node, str] | None:
    message = "half and bfloat do not mix; convert one of them, for example with float(...)"
    above: list[Node] = []
    for node in nodes:
        while above and above[-1].depth >= node.depth:
            above.pop()
        if node.kind == "CompoundAssignOperator" and node.file in _OWN_FILES:
            computed = node.rest.partition("ComputeLHSTy=")[2]
            if {_half_type(node.rest.partition("ComputeLHSTy=")[0]), _half_type(computed)} == {"half", "bfloat"}:
                return node, message
        if len(above) > 1 and _is_float_cast(above[-1]) and above[-2].kind == "BinaryOperator":
            operator = above[-2]
            arithmetic = not operator.rest.endswith(" '='")
            types = {_half_type(above[-1].rest), _half_type(node.rest)}
            if arithmetic and types == {"half", "bfloat"} and operator.file in _OWN_FILES:
                return operator, message
        above.append(node)
    return None


def _is_float_cast(node: Node) -> bool:
    return node.kind == "ImplicitCastExpr" and "<FloatingCast>" in node.rest


def _half_type(text: str) -> str:
    named = re.search(r"'([^']*)'(?::'([^']*)')?", text)
    spelled = (named[2] or named[1]) if named else ""
    return "half" if re.fullmatch(r"(?:__\w+ )?half", spelled) else "bfloat" if "__bf16" in spelled else ""


def _recursion(nodes: list[Node]) -> tuple[Node, str] | None:
    functions, calls = _call_graph(nodes)
    for start, node in functions.items():
        reached: set[str] = set()
        todo = [start]
        while todo:
            new = calls.get(todo.pop(), set()) - reached
            if start in new:
                return node, "recursion; Metal has no call stack for it, write a loop"
            reached |= new
            todo += new
    return None


def _call_graph(nodes: list[Node]) -> tuple[dict[str, Node], dict[str, set[str]]]:
    functions: dict[str, Node] = {}
    calls: dict[str, set[str]] = {}
    first: dict[str, str] = {}  # of a later declaration, the first one of the same function
    inside: list[tuple[int, str]] = []
    for node in nodes:
        while inside and inside[-1][0] >= node.depth:
            inside.pop()
        if node.kind in _FUNCTIONS and (declared := _DECLARED.match(node.rest)):
            own = first.get(declared[2], declared[2]) if declared[2] else declared[1]
            first[declared[1]] = own
            functions.setdefault(own, node)
            inside.append((node.depth, own))
        elif inside:
            named = {first.get(called, called) for called in _CALLED.findall(node.rest)}
            calls.setdefault(inside[-1][1], set()).update(named)
    return functions, calls
