"""Lines of `assay show` for a recurrent case: the layer, and per step which columns are tokens and where rows stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.base import Notes
from harness.kinds.recurrent.run import Driver
from harness.subjects.protocol import Recurrent, RecurrentAnswer, RecurrentSpec, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.recurrent.schema import RecurrentCase
    from harness.kinds.recurrent.steps import Step
    from harness.subjects.protocol import RecurrentBlock


def describe(case: RecurrentCase) -> Iterator[str]:
    """Write the layer, and what each chunk is made of."""
    given = case.given
    sizes = f"{given.heads} heads, state {given.value_dim} x {given.key_dim}, kernel {given.kernel}"
    yield f"layer: {given.layer}, {sizes}, {given.channels} channels of {given.dtype}, {given.data} data"
    teller = _Teller(case, _Agreeing(), Notes(comparisons=1))
    teller.run()
    yield from teller.lines
    yield f"checked: {', '.join(case.check)}"


class _Teller(Driver):
    """Takes the steps on rows alone, and writes down what a cache would have to show."""

    def __init__(self, case: RecurrentCase, subject: Subject, notes: Notes) -> None:
        self.lines: list[str] = []
        super().__init__(case, subject, notes)

    def take(self, step: Step, where: str) -> None:
        self.lines.append(where)
        if step.expect == "refused":
            self.lines.append("  a state can't do this: it refuses, and nothing changes")
            return
        super().take(step, where)

    def _update(self, count: int, where: str) -> None:
        real, ends = self.track.next_columns(count), self.track.ends(count)
        super()._update(count, where)
        for row, (own, end) in enumerate(zip(real, ends, strict=True)):
            columns = "".join("T" if token else "F" for token in own)
            position = self.track.rows[row].position
            self.lines.append(f"  row {row}: mask {columns}, convolution length {end}, then at position {position}")


class _Agreeing(Subject):
    """A subject that agrees to everything and shows nothing."""

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        del spec
        return _AgreeingCache()


class _AgreeingCache(Recurrent):
    def _agree(self, *_: object) -> None:
        """Agree."""

    prepare = finalize = begin = commit = rollback = extend = filter = _agree  # type: ignore[assignment]  # takes any arguments

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        del block
        return RecurrentAnswer()

    def _same(self, *_: object) -> Recurrent:
        return self

    merge = extract = copy = save_load = _same  # type: ignore[assignment]  # likewise

    def trim(self, tokens: int) -> int:
        return tokens
