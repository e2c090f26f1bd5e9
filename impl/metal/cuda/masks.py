"""Which lanes come to a simd operation together, worked out in the kernel's LLVM text before the optimizer sees it.

CUDA's exchanges between lanes name the lanes that take part, and wait for them. What hardware calls active at a place
is no promise that all lanes have come that will. So the lanes are counted where ways part: before a branch that all of
`lanes` execute, each side's lanes are a vote on the condition. Blocks that the same lanes execute, once each, share a
set: a block B has that of the first block D that is on every way to B, in the same loops, and after which B must come
next, unless the thread ends first. A thread ends where it returns (flow.py), and a lane that has ended counts as
arrived; each exchange asks once more who is there (exchange.h). In loops the set shrinks round by round.

    entry                       all lanes of the warp that the launch has
    one side of a branch        the vote on its condition, of the lanes before; the cases of a `switch` likewise
    head of a loop              the set before the loop; from then on that at the branch back
    anything else               the lanes that the hardware shows as active: behind an `if` that some lanes left with
                                `break`, or with `continue` beside a `break`, and where a case falls into the next

Helper functions that exchange are inlined before, so that all this happens in the kernel. The masks wait for lanes that
are on their way, so they are right for any schedule of the hardware; only the last line relies on it bringing lanes
together where their ways do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from impl.metal.cuda.flow import ENTRY, Block, Flow, leaving_at_once, one_way_back

ASKS = "msl_rt_lanes"
BARRIER = "msl_rt_threadgroup_barrier"
KERNEL_NAMES = ("__clang_ocl_kern_imp_msl_kernel", "msl_kernel")

_FUNCTION = re.compile(r"^define [^@\n]*@([\w.$]+|\"[^\"]+\")\(.*?^}$", re.MULTILINE | re.DOTALL)
_CALLED = re.compile(r"\bcall [^@\n]*@([\w.$]+|\"[^\"]+\")\(")
_ASKED = re.compile(rf"^  (%[\w.]+) = (?:tail )?call i32 @{ASKS}\(\).*$")
_BRANCH = re.compile(r"^  br i1 (\S+), label %([\w.$-]+), label %([\w.$-]+)")
_SWITCH = re.compile(r"^  switch (\S+ \S+), label %([\w.$-]+) \[")
_CASE = re.compile(r"^    \S+ (\S+), label %([\w.$-]+)", re.MULTILINE)
_VOTE = "call i32 @llvm.nvvm.vote.ballot.sync(i32 {lanes}, i1 {condition})"
_DECLARED = {
    "llvm.nvvm.vote.ballot.sync": "declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)",
    "llvm.nvvm.activemask": "declare i32 @llvm.nvvm.activemask()",
    "msl_entry_lanes": "declare i32 @msl_entry_lanes()",
}


def asking_helpers(llvm_text: str) -> set[str]:
    """Return the functions, other than the kernel, that may exchange between lanes and do not say for which ones."""
    calls = _calls(llvm_text)
    return _reaching(calls, {ASKS}) - {ASKS, *KERNEL_NAMES} - {name for name in calls if name.startswith("msl_entry")}


def place(llvm_text: str) -> str:
    """Return the text with a set of lanes in place of each question for one. All questions are in the kernel."""
    functions = {match[1]: match for match in _FUNCTION.finditer(llvm_text)}
    kernel = next((functions[name] for name in KERNEL_NAMES if name in functions), None)
    if kernel is None or f"@{ASKS}(" not in kernel[0]:
        return llvm_text
    events = _reaching(_calls(llvm_text), {ASKS, BARRIER})
    flow = Flow(one_way_back(leaving_at_once(kernel[0].split("\n"))))
    placed = "\n".join(_Placing(flow, events).text())
    text = llvm_text[: kernel.start()] + placed + llvm_text[kernel.end() :]
    missing = [line for name, line in _DECLARED.items() if not re.search(rf"(?m)^(?:declare|define) .*@{name}\(", text)]
    return text + "\n" + "\n".join(missing) + "\n"


def _calls(llvm_text: str) -> dict[str, set[str]]:
    return {match[1]: set(_CALLED.findall(match[0])) for match in _FUNCTION.finditer(llvm_text)}


def _reaching(calls: dict[str, set[str]], targets: set[str]) -> set[str]:
    found = set(targets)
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return found


@dataclass
class _Placing:
    """The edits of one kernel: what is inserted before a line, and what replaces it.

    Before a branch all sets are read (`reads`) and then all are written (`writes`): a branch back writes what it reads.
    """

    flow: Flow
    events: set[str]
    begins: dict[int, list[str]] = field(default_factory=dict)
    reads: dict[int, list[str]] = field(default_factory=dict)
    writes: dict[int, list[str]] = field(default_factory=dict)
    instead: dict[int, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # by the block whose lanes it holds
    roots: dict[str, str] = field(default_factory=dict)
    names: int = 0

    def text(self) -> list[str]:
        """Return the kernel's lines, edited."""
        for block in list(self.flow.blocks.values()):
            for i in range(block.begin, block.end):
                if asked := _ASKED.match(self.flow.lines[i]):
                    variable = self._variable(self._root(block.name))
                    self.instead[i] = f"  {asked[1]} = load i32, ptr {variable}"
        for i, line in enumerate(self.flow.lines):  # questions in blocks that nothing reaches
            if i not in self.instead and (asked := _ASKED.match(line)):
                self.instead[i] = f"  {asked[1]} = add i32 0, 0"
        made = [f"  {variable} = alloca i32" for variable in self.variables.values()]
        self.begins[self.flow.first] = made + self.begins.get(self.flow.first, [])
        edits = (self.begins, self.reads, self.writes)
        return [
            text
            for i, line in enumerate(self.flow.lines)
            for text in (*(new for edit in edits for new in edit.get(i, ())), self.instead.get(i, line))
        ]

    def _root(self, name: str) -> str:
        """Return the first block that the lanes which come to `name` all execute, once each time."""
        if name not in self.roots:
            self.roots[name] = self._found_root(name)
        return self.roots[name]

    def _found_root(self, name: str) -> str:
        around = self.flow.around(name)
        candidates = [
            one
            for one in self.flow.dominators[name]
            if self.flow.around(one) == around and (one == name or self._leads_to(one, name, around))
        ]
        return min(candidates, key=lambda one: len(self.flow.dominators[one]))

    def _leads_to(self, start: str, target: str, around: set[str]) -> bool:
        """Whether lanes at `start` come to `target` next, or end before without any exchange or barrier."""
        inside = min((self.flow.loops[header] for header in around), key=len, default=None)
        headers = {header for header in around if self.flow.loops[header] is inside}
        ways = self._ways_to(target, headers)
        after = self.flow.reached(target, without=None)
        reached: set[str] = set()
        todo = [start]
        while todo:
            for name in self.flow.blocks[todo.pop()].successors:
                if name == target or name in reached:
                    continue
                if name in ways and name not in headers and (inside is None or name in inside):
                    reached.add(name)
                    todo.append(name)
                elif name in after or name in self._eventful:
                    # Not a way to the end of its own: the lanes may meet others there that wait for them here.
                    return False
        return True

    def _ways_to(self, target: str, headers: set[str]) -> set[str]:
        found = {target}
        todo = [target]
        while todo:
            for name in self.flow.predecessors[todo.pop()]:
                if name not in found:
                    found.add(name)
                    if name not in headers:
                        todo.append(name)
        return found

    @cached_property
    def _eventful(self) -> set[str]:
        """The blocks from which an exchange or a barrier can still come."""
        flow = self.flow
        found = {
            block.name
            for block in flow.blocks.values()
            if any(self.events & set(_CALLED.findall(flow.lines[i])) for i in range(block.begin, block.end))
        }
        todo = list(found)
        while todo:
            for name in flow.predecessors[todo.pop()]:
                if name not in found:
                    found.add(name)
                    todo.append(name)
        return found

    def _variable(self, root: str) -> str:
        """Return the variable with the lanes of block `root`, and see to it that it is set before."""
        if root in self.variables:
            return self.variables[root]
        variable = self.variables[root] = f"%msl.lanes.{len(self.variables)}"
        before = self.flow.predecessors[root]
        if root == ENTRY:
            self._begin(self.flow.first, "msl_entry_lanes", variable)
        elif self._comes_one_way(root):
            for one in before:
                self._store_on_way(one, root, variable)
        else:
            self._begin(self._after_phis(root), "llvm.nvvm.activemask", variable)
        return variable

    def _begin(self, line: int, function: str, variable: str) -> None:
        name = self._name()
        made = [f"  {name} = call i32 @{function}()", f"  store i32 {name}, ptr {variable}"]
        self.begins.setdefault(line, []).extend(made)

    def _comes_one_way(self, root: str) -> bool:
        """Whether all lanes of a block come from one block; to the head of a loop from one outside and one inside."""
        before = self.flow.predecessors[root]
        body = self.flow.loops.get(root, set())
        return sum(one not in body for one in before) <= 1 and sum(one in body for one in before) <= 1

    def _store_on_way(self, start: str, root: str, variable: str) -> None:
        """Set the lanes that go from `start` to `root`, before the branch."""
        block = self.flow.blocks[start]
        lanes = self._name()
        lines = [f"  {lanes} = load i32, ptr {self._variable(self._root(start))}"]
        if set(block.successors) != {root}:
            lines += self._condition(block, root)
            goes, condition = f"%msl.lanes.v{self.names + 1}", f"%msl.lanes.v{self.names}"
            lines.append(f"  {self._name()} = {_VOTE.format(lanes=lanes, condition=condition)}")
            lanes = goes
        self.reads.setdefault(block.terminator, []).extend(lines)
        self.writes.setdefault(block.terminator, []).append(f"  store i32 {lanes}, ptr {variable}")

    def _condition(self, block: Block, root: str) -> list[str]:
        """Return lines whose last name is whether a lane goes from `block` to `root`."""
        line = self.flow.lines[block.terminator]
        if branch := _BRANCH.match(line):
            return [f"  {self._name()} = xor i1 {branch[1]}, {'false' if branch[2] == root else 'true'}"]
        # A switch: by default, where no case leads elsewhere; else where one leads there.
        value, default = _SWITCH.match(line).groups()  # type: ignore[union-attr]  # blocks end in nothing else
        cases = _CASE.findall("\n".join(self.flow.lines[block.terminator + 1 : block.end]))
        begun = self._name()
        lines = [f"  {begun} = xor i1 false, {'true' if default == root else 'false'}"]
        for number, target in cases:
            if (target == root) != (default == root):
                same, joined = self._name(), self._name()
                lines.append(f"  {same} = icmp eq {value}, {number}")
                lines.append(f"  {joined} = xor i1 {begun}, {same}")
                begun = joined
        return lines

    def _after_phis(self, block: str) -> int:
        i = self.flow.blocks[block].begin + 1
        while " = phi " in self.flow.lines[i]:
            i += 1
        return i

    def _name(self) -> str:
        self.names += 1
        return f"%msl.lanes.v{self.names}"
