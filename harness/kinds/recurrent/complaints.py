"""What a schema can't see in a recurrent case: steps that can't follow, and data that would not be exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.kinds.recurrent import steps
from harness.kinds.recurrent.data import MOST_INTEGER_TOKENS
from harness.kinds.recurrent.script import most_tokens
from harness.kinds.recurrent.track import lay_out
from harness.kinds.ring import steps as ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.recurrent.schema import RecurrentCase
    from harness.kinds.recurrent.steps import Step

NO_PREFILL = "can't follow: no prefill is open; put `- prepare: {lengths: [...]}` before it"
NO_ROUND = "can't follow: no round is open; put `- begin: round` before it"


@dataclass
class _State:
    """How many rows there are, whether any of them has tokens, what is open, and the columns that are to come."""

    rows: int
    written: bool = False
    columns: int | None = None
    in_round: bool = False


def complaints(case: RecurrentCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    yield from _exactness(case)
    state = _State(0 if isinstance(case.steps[0], steps.MergeStep) else case.given.rows)
    for index, step in enumerate(case.steps):
        if step.expect is not None and not isinstance(step, ring.TrimStep):
            yield ("steps", index, "expect"), "only `trim` may be refused in this kind; remove it"
        for key, message in _complain(step, state):
            yield ("steps", index, *key), message
    if not state.written:
        yield ("steps",), "write no token: nothing could be checked; add for example `- append: 3`"
    if state.in_round:
        yield ("steps",), "end in an open round; add `- commit` or `- rollback: {keep: ...}`"
    if state.columns is not None:
        yield ("steps",), "end in an open prefill; add `- finalize`"


def _exactness(case: RecurrentCase) -> Iterator[Complaint]:
    given = case.given
    if given.data == "normal" and given.dtype != "float32":
        why = f"normal data in {given.dtype} has no bound that tells right from wrong"
        yield ("given", "data"), f"{why}; write `data: integer`, or `dtype: float32`"
    if given.data == "integer" and (tokens := most_tokens(case)) > MOST_INTEGER_TOKENS:
        why = f"integer data is exact for {MOST_INTEGER_TOKENS} tokens a row, and these steps give it {tokens}"
        yield ("given", "data"), f"{why}; write fewer, or `data: normal`"
    for index, word in enumerate(case.check):
        if word in case.check[:index]:
            yield ("check", index), f"'{word}' stands here twice"


def _complain(step: Step, state: _State) -> Iterator[Complaint]:
    in_round = (ring.AppendStep, ring.DecodeStep, ring.CommitStep, ring.RollbackStep)
    if state.in_round and not isinstance(step, in_round):
        yield (step.operation,), "can't follow in an open round; put `- commit` or `- rollback: {keep: ...}` before it"
        return
    in_prefill = (ring.ChunkStep, ring.FinalizeStep, ring.FilterStep, steps.ExtractStep, steps.ExtendStep)
    if state.columns is not None and not isinstance(step, (*in_prefill, ring.CopyStep, ring.SaveLoadStep)):
        yield (step.operation,), "can't follow in an open prefill; write `- chunk: n`, or `- finalize` before it"
        return
    rule = _RULES.get(type(step))
    yield from rule(step, state) if rule else ()


def _update(_: Step, state: _State) -> Iterator[Complaint]:
    state.written = True
    yield from ()


def _announce(step: ring.PrefillStep | ring.PrepareStep, state: _State) -> Iterator[Complaint]:
    arguments = step.prefill if isinstance(step, ring.PrefillStep) else step.prepare
    key, left = step.operation, arguments.left or [0]
    for name, numbers in (("lengths", arguments.lengths), ("left", left)):
        if len(numbers) > state.rows:
            yield (key, name), f"{len(numbers)} numbers for {state.rows} rows; write at most one a row"
            return
    if any(left) and state.written:
        yield (key, "left"), "left padding needs rows without tokens; pad on the right by unequal `lengths`"
    width = len(lay_out(arguments.lengths, left, state.rows)[0])
    if width == 0:
        yield (key, "lengths"), "no row has a token; give one of them a length of 1 or more"
    if isinstance(step, ring.PrepareStep):
        state.columns = width
        return
    state.written = True
    chunks = step.prefill.chunks
    if chunks and (sum(chunks) != width or not all(chunks)):
        yield (
            (key, "chunks"),
            f"{chunks} are {sum(chunks)} columns, not the {width} of this prefill",
        )


def _chunk(step: ring.ChunkStep, state: _State) -> Iterator[Complaint]:
    state.written = True
    if state.columns is None:
        yield ("chunk",), NO_PREFILL
    elif step.chunk > state.columns:
        yield ("chunk",), f"{step.chunk} columns, and {state.columns} are left of this prefill"
    else:
        state.columns -= step.chunk


def _finalize(_: Step, state: _State) -> Iterator[Complaint]:
    if state.columns is None:
        yield ("finalize",), NO_PREFILL
    elif state.columns:
        yield ("finalize",), f"{state.columns} columns are still to come; write `- chunk: {state.columns}` before it"
    state.columns = None


def _begin(_: Step, state: _State) -> Iterator[Complaint]:
    state.in_round = True
    yield from ()


def _end(step: Step, state: _State) -> Iterator[Complaint]:
    if not state.in_round:
        yield (step.operation,), NO_ROUND
    state.in_round = False


def _trim(step: ring.TrimStep, state: _State) -> Iterator[Complaint]:
    if not state.written:
        yield ("trim",), f"there are no {step.trim} tokens yet; write for example `- append: {step.trim}` before it"


def _join(step: steps.MergeStep | steps.ExtendStep, state: _State) -> Iterator[Complaint]:
    rows = step.merge.rows if isinstance(step, steps.MergeStep) else step.extend.rows
    if isinstance(step, steps.MergeStep) and state.rows > 1:
        yield ("merge",), "takes solo caches, and the one at hand has more rows; `extract` one, or `extend`"
    state.rows += len(rows)
    state.written |= any(rows)


def _filter(step: ring.FilterStep, state: _State) -> Iterator[Complaint]:
    rows = step.filter.rows
    wrong = [row for row in rows if row >= state.rows]
    if wrong or len(set(rows)) < len(rows):
        what = f"there is no row {wrong[0]}" if wrong else "a row is named twice"
        yield ("filter", "rows"), f"{what}: rows are 0..{state.rows - 1} here, each at most once"
        return
    state.rows = len(rows)


def _extract(step: steps.ExtractStep, state: _State) -> Iterator[Complaint]:
    if step.extract.row >= state.rows:
        yield ("extract", "row"), f"there is no row {step.extract.row}: rows are 0..{state.rows - 1} here"
    state.rows, state.columns = 1, None


# Steps that are not named here can follow anything.
_RULES: dict[type[Step], Callable[[Any, _State], Iterator[Complaint]]] = {
    ring.AppendStep: _update,
    ring.DecodeStep: _update,
    ring.PrefillStep: _announce,
    ring.PrepareStep: _announce,
    ring.ChunkStep: _chunk,
    ring.FinalizeStep: _finalize,
    ring.BeginStep: _begin,
    ring.CommitStep: _end,
    ring.RollbackStep: _end,
    ring.TrimStep: _trim,
    steps.MergeStep: _join,
    steps.ExtendStep: _join,
    ring.FilterStep: _filter,
    steps.ExtractStep: _extract,
}
