"""Marks in the kernel's LLVM text from which the runtime knows which lanes are behind and which are ahead.

The lanes of a simdgroup that took different ways come together again where the ways do: after the `if`, and before the
loop goes round again. Lanes here run one after another, so the runtime must know, of two lanes that wait at different
simd operations, which one would come to the other's place later. That lane goes first. For structured control flow
the order is that of the text, except that inside a loop which both are in, the lane in the earlier round is behind.

So before each call of the kernel that may wait stands `msl_rt_at(its number in the text)`, loops that contain such
calls count their rounds, and a table says in which loops each call is. Calls inside helper functions count as their
call in the kernel. Loops are found as compilers find them, by the branches back; no debug information is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Rounds of loops nested deeper than this are not told apart.
MOST_DEPTH = 4
KERNEL_NAMES = ("__clang_ocl_kern_imp_msl_kernel", "msl_kernel")

_FUNCTION = re.compile(r"^define [^@\n]*@([\w.$]+|\"[^\"]+\")\(.*?^}$", re.MULTILINE | re.DOTALL)
_CALLED = re.compile(r"\bcall [^@\n]*@([\w.$]+|\"[^\"]+\")\(")
_LABEL = re.compile(r"^([\w.$-]+):")
_TARGET = re.compile(r"label %([\w.$-]+)")
_MEETS = "msl_rt_meet"
_MARKS = ("msl_rt_at", "msl_rt_next_round", "msl_rt_enter_loop")


@dataclass
class _Block:
    name: str
    begin: int  # lines [begin, end) of the function; the terminator is the last instruction
    end: int = 0
    terminator: int = 0
    successors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Loop:
    header: str
    latches: frozenset[str]
    body: frozenset[str]


def mark(llvm_text: str) -> tuple[str, list[list[int]]]:
    """Return the marked text, and for each call that may wait the loops it is in, outermost first."""
    functions = {match[1]: match for match in _FUNCTION.finditer(llvm_text)}
    kernel = next((functions[name] for name in KERNEL_NAMES if name in functions), None)
    waiting = _waiting({name: set(_CALLED.findall(match[0])) for name, match in functions.items()})
    if kernel is None or not waiting:
        return llvm_text, []
    lines = kernel[0].split("\n")
    calls = [i for i, line in enumerate(lines) if any(name in waiting for name in _CALLED.findall(line))]
    blocks = _blocks(lines)
    loops = _loops(blocks, lines)
    inserted: dict[int, list[str]] = {}
    table = []
    for number, line in enumerate(calls):
        home = next(block for block in blocks.values() if block.begin <= line < block.end)
        inserted.setdefault(line, []).append(f"  call void @msl_rt_at(i32 {number})")
        around = sorted((loop for loop in loops if home.name in loop.body), key=lambda loop: -len(loop.body))
        table.append([loops.index(loop) for loop in around[:MOST_DEPTH]])
    for index, loop in enumerate(loops):
        depth = next((row.index(index) for row in table if index in row), None)
        if depth is None:
            continue
        for block in blocks.values():
            if loop.header in block.successors:
                name = "msl_rt_next_round" if block.name in loop.body else "msl_rt_enter_loop"
                inserted.setdefault(block.terminator, []).append(f"  call void @{name}(i32 {depth})")
    marked = [text for i, line in enumerate(lines) for text in (*inserted.get(i, ()), line)]
    declared = "".join(f"declare void @{name}(i32)\n" for name in _MARKS)
    return llvm_text[: kernel.start()] + "\n".join(marked) + llvm_text[kernel.end() :] + "\n" + declared, table


def _waiting(calls: dict[str, set[str]]) -> set[str]:
    """Return the functions from which `msl_rt_meet` can be reached."""
    found = {_MEETS}
    while True:
        more = {name for name, called in calls.items() if name not in found and called & found}
        if not more:
            return found if len(found) > 1 else set()
        found |= more


def _blocks(lines: list[str]) -> dict[str, _Block]:
    blocks: dict[str, _Block] = {}
    current = _Block("", 1)
    for i, line in enumerate(lines[1:-1], start=1):
        label = _LABEL.match(line)
        if label:
            current.end = i
            blocks[current.name] = current
            current = _Block(label[1], i)
        elif line.startswith(("  br ", "  switch ", "  ret ", "  unreachable", "  indirectbr ")):
            current.terminator = i
        if current.terminator:
            current.successors += _TARGET.findall(line)
    current.end = len(lines) - 1
    blocks[current.name] = current
    return blocks


def _loops(blocks: dict[str, _Block], lines: list[str]) -> list[_Loop]:
    order = {name: i for i, name in enumerate(blocks)}
    before: dict[str, set[str]] = {name: set() for name in blocks}
    for block in blocks.values():
        for successor in block.successors:
            before[successor].add(block.name)
    latches: dict[str, set[str]] = {}
    for block in blocks.values():
        if "!llvm.loop" in lines[block.terminator]:
            for successor in block.successors:
                if order[successor] <= order[block.name]:
                    latches.setdefault(successor, set()).add(block.name)
    return [_Loop(header, frozenset(ends), _natural(header, ends, before)) for header, ends in latches.items()]


def _natural(header: str, latches: set[str], before: dict[str, set[str]]) -> frozenset[str]:
    body, todo = {header}, list(latches)
    while todo:
        name = todo.pop()
        if name not in body:
            body.add(name)
            todo += before[name]
    return frozenset(body)
