"""clang's syntax tree as text (`-ast-dump`), read into nodes with their places.

With the prelude precompiled the dump holds the author's nodes only. Each line is a node, indented by its depth; file
and line are named only where they change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODE = re.compile(r"^([ |`-]*)(\w+)(.*)$")
_PLACE = re.compile(r"(?:(\w[\w./-]*):)?(\d+):(\d+)|col:(\d+)")
_NAME_PLACE = re.compile(r"(?: prev 0x\w+)? ((?:[\w./-]+:)?\d+:\d+|col:\d+)\b")


@dataclass(frozen=True)
class Node:
    """One node: what it is, the rest of its line, and where it stands."""

    depth: int
    kind: str
    rest: str
    file: str
    line: int
    column: int


def nodes(tree: str) -> Iterator[Node]:
    """Return the nodes of `tree` in order; a declaration's place is that of its name."""
    file, line = "", 0
    for text in tree.splitlines():
        matched = _NODE.match(text)
        if not matched or matched[2] == "value":
            continue
        inside, _, after = matched[3].partition("<")[2].partition(">")
        named = _NAME_PLACE.match(after)
        column, begin = 0, None
        for place in _PLACE.finditer(inside + (" " + named[1] if named else "")):
            if place[4]:
                column = int(place[4])
            else:
                file = place[1] if place[1] and place[1] != "line" else file
                line, column = int(place[2]), int(place[3])
            begin = begin or (file, line, column)
        at = (file, line, column) if named else begin or (file, line, 0)
        yield Node(len(matched[1]), matched[2], matched[3], *at)
