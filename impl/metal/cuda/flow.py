"""The blocks of one function in LLVM's text, and which of them lies on the way to which."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

_LABEL = re.compile(r"^([\w.$-]+):")
_TARGET = re.compile(r"label %([\w.$-]+)")
_ENDS = ("  br ", "  switch ", "  ret ", "  unreachable", "  indirectbr ")
# In assembly that reads all memory: LLVM's own llvm.nvvm.exit lets it drop the stores before, as if nobody saw them.
_EXIT = '  call void asm sideeffect "exit;", "~{memory}"() noreturn nomerge'
ENTRY = ""


@dataclass
class Block:
    """Lines [begin, end) of the function; the instruction that leaves it stands at `terminator`."""

    name: str
    begin: int
    end: int = 0
    terminator: int = 0
    successors: list[str] = field(default_factory=list)


class Flow:
    """The control flow of a function, `lines` from its `define` to its closing brace. The first block is ENTRY."""

    def __init__(self, lines: list[str]) -> None:
        """Read the blocks."""
        self.lines = lines
        # The first line of the first block, which may have a name.
        self.first = 2 if _LABEL.match(lines[1]) else 1
        self.blocks: dict[str, Block] = {}
        current = Block(ENTRY, 1)
        for i, line in enumerate(lines[1:-1], start=1):
            label = _LABEL.match(line)
            if label and i >= self.first:
                current.end = i
                self.blocks[current.name] = current
                current = Block(label[1], i)
            elif line.startswith(_ENDS):
                current.terminator = i
            if current.terminator:
                current.successors += _TARGET.findall(line)
        current.end = len(lines) - 1
        self.blocks[current.name] = current
        reached = self.reached(ENTRY, without=None)
        self.blocks = {name: block for name, block in self.blocks.items() if name == ENTRY or name in reached}
        self.predecessors: dict[str, list[str]] = {name: [] for name in self.blocks}
        for block in self.blocks.values():
            for successor in dict.fromkeys(block.successors):
                self.predecessors[successor].append(block.name)

    def reached(self, start: str, without: str | None) -> set[str]:
        """Return the blocks that can follow `start`, on ways that do not enter `without`; `start` only if it can."""
        found: set[str] = set()
        todo = list(self.blocks[start].successors)
        while todo:
            name = todo.pop()
            if name != without and name not in found:
                found.add(name)
                todo += self.blocks[name].successors
        return found

    @cached_property
    def dominators(self) -> dict[str, set[str]]:
        """For each block those that every way from the entry to it passes, itself included."""
        every = set(self.blocks)
        found = dict.fromkeys(self.blocks, every)
        found[ENTRY] = {ENTRY}
        changed = True
        while changed:
            changed = False
            for name in self.blocks:
                if name == ENTRY:
                    continue
                passed = set.intersection(*(found[before] for before in self.predecessors[name])) | {name}
                if passed != found[name]:
                    found[name] = passed
                    changed = True
        return found

    @cached_property
    def loops(self) -> dict[str, set[str]]:
        """For each loop, by the block that heads it, the blocks inside; loops are what branches back make."""
        found: dict[str, set[str]] = {}
        for block in self.blocks.values():
            for header in block.successors:
                if header in self.dominators[block.name]:
                    body = found.setdefault(header, {header})
                    todo = [block.name]
                    while todo:
                        name = todo.pop()
                        if name not in body:
                            body.add(name)
                            todo += self.predecessors[name]
        return found

    def around(self, name: str) -> set[str]:
        """Return the heads of the loops that block `name` is in."""
        return {header for header, body in self.loops.items() if name in body}


def one_way_back(lines: list[str]) -> list[str]:
    """Return the function with one branch back in every loop: all ways round meet in a new block before it."""
    flow = Flow(lines)
    edited, added = list(lines), list[str]()
    for number, (header, body) in enumerate(flow.loops.items()):
        ends = [name for name in flow.predecessors[header] if name in body]
        begin = flow.blocks[header].begin
        if len(ends) < 2 or any(" = phi " in line for line in lines[begin : begin + 2]):
            continue
        meeting = f"msl.round.{number}"
        for name in ends:
            block = flow.blocks[name]
            for i in range(block.terminator, block.end):
                edited[i] = re.sub(rf"label %{re.escape(header)}(?![\w.$-])", f"label %{meeting}", edited[i])
        added += [f"{meeting}:", f"  br label %{header}", ""]
    return [*edited[:-1], *added, edited[-1]]


def leaving_at_once(lines: list[str]) -> list[str]:
    """Return the function, a kernel, with each `return` ending its thread there and then.

    Returning lanes must not wait for the others at the kernel's end, where those wait for lanes that return.
    """
    flow = Flow(lines)
    ends = {
        block.name
        for block in flow.blocks.values()
        if block.name != ENTRY and block.terminator == block.begin + 1 and lines[block.terminator] == "  ret void"
    }
    edited = list(lines)
    for block in flow.blocks.values():
        line = lines[block.terminator]
        if line == "  ret void" or (line.startswith("  br label") and set(block.successors) <= ends):
            edited[block.terminator] = f"{_EXIT}\n  unreachable"
    return "\n".join(edited).split("\n")
