"""What a schema can't see in a ring case: steps that can't follow, and caches that can't be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.case.problem import nearest
from harness.kinds.ring import steps
from harness.kinds.ring.given import BITS, GROUP_SIZES, given_complaints
from harness.kinds.ring.script import built_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.kinds.base import Complaint
    from harness.kinds.ring.schema import StepsCase
    from harness.kinds.ring.steps import Step

RING_PINS = (
    "bytes_per_token", "columns", "is_trimmable", "left_padding", "minimum_reusable_offsets", "projected_bytes",
    "signature",
)  # fmt: skip
NO_PREFILL = "can't follow: no prefill is open; put `- prepare: {lengths: [...]}` before it"
NO_ROUND = "can't follow: no round is open; put `- begin: round` before it"


@dataclass
class _State:
    """Tokens that each row holds by the steps so far, and what is open. `round_held`: at the round's beginning."""

    held: list[int] = field(default_factory=lambda: [0])
    written: bool = False
    round_held: list[int] | None = None
    # Columns of the open prefill that are still to come, a row.
    prefill: list[list[bool]] | None = None

    def write(self, tokens: int) -> None:
        """Count a block for every row."""
        self.held = [count + tokens for count in self.held]
        self.written = True


def complaints(case: StepsCase, pins: Sequence[str] = RING_PINS) -> Iterator[Complaint]:
    """Find steps that can't follow, and caches that can't be; `pins` are the names that a `pin` step may use."""
    yield from given_complaints(case)
    # A merge that comes first builds the cache; a later one takes the cache at hand along.
    state = _State([] if isinstance(case.steps[0], steps.MergeStep) else [0] * case.given.rows)
    for index, step in enumerate(case.steps):
        for key, message in _complain(step, state):
            yield ("steps", index, *key), message
        if isinstance(step, steps.PinStep):
            yield from _pin(case, index, step, pins)
    if not state.written:
        yield ("steps",), "write no token: nothing could be checked; add for example `- append: 3`"
    if state.round_held is not None:
        yield ("steps",), "end in an open round; add `- commit` or `- rollback: {keep: ...}`"
    if state.prefill is not None:
        yield ("steps",), "end in an open prefill; add `- finalize`"


def _pin(case: StepsCase, index: int, step: steps.PinStep, names: Sequence[str]) -> Iterator[Complaint]:
    if case.pins is None:
        message = "states what holds for one implementation only; say whose with `pins: reference`"
        yield ("steps", index, "pin"), message
    for name in step.pin:
        if name not in names:
            yield ("steps", index, "pin", name), f"'{name}' can't be pinned{nearest(name, names)}"


def _complain(step: Step, state: _State) -> Iterator[Complaint]:
    rule = _RULES.get(type(step))
    yield from rule(step, state) if rule else ()


def _update(step: steps.AppendStep | steps.DecodeStep, state: _State) -> Iterator[Complaint]:
    tokens = step.append if isinstance(step, steps.AppendStep) else step.decode
    if state.prefill is not None:
        message = f"can't follow: a padded prefill is open; write `- chunk: {tokens}`, or `- finalize` first"
        yield (step.operation,), message
    state.write(tokens)


def _no_prefill(state: _State, word: str) -> Iterator[Complaint]:
    if state.prefill is not None:
        yield (word,), "can't follow: a prefill is open already; `finalize` it first"


def _layout(state: _State, lengths: list[int], left: list[int] | None) -> list[list[bool]]:
    pads = left or [0]
    rows = range(len(state.held))
    width = max(lengths[row % len(lengths)] + pads[row % len(pads)] for row in rows)
    plan = []
    for row in rows:
        pad, real = pads[row % len(pads)], lengths[row % len(lengths)]
        plan.append([False] * pad + [True] * real + [False] * (width - pad - real))
    return plan


def _prefill(step: steps.PrefillStep, state: _State) -> Iterator[Complaint]:
    yield from _no_prefill(state, "prefill")
    yield from _not_in_round(state, "prefill")
    plan = _layout(state, step.prefill.lengths, step.prefill.left)
    chunks = step.prefill.chunks
    if not plan[0]:
        yield ("prefill", "lengths"), "are all 0: there is nothing to write"
    if chunks is not None and (sum(chunks) != len(plan[0]) or 0 in chunks):
        yield ("prefill", "chunks"), f"must be at least 1 each and add up to the padded width, {len(plan[0])}"
    state.held = [count + sum(row) for count, row in zip(state.held, plan, strict=True)]
    state.written = True


def _prepare(step: steps.PrepareStep, state: _State) -> Iterator[Complaint]:
    yield from _no_prefill(state, "prepare")
    yield from _not_in_round(state, "prepare")
    state.prefill = _layout(state, step.prepare.lengths, step.prepare.left)


def _chunk(step: steps.ChunkStep, state: _State) -> Iterator[Complaint]:
    if state.prefill is None:
        yield ("chunk",), NO_PREFILL
        return
    left = len(state.prefill[0]) if state.prefill else 0
    if step.chunk > left:
        yield ("chunk",), f"can't follow: {left} columns of the prefill are left"
    state.held = [count + sum(row[: step.chunk]) for count, row in zip(state.held, state.prefill, strict=True)]
    state.prefill = [row[step.chunk :] for row in state.prefill]
    state.written = True


def _finalize(_: steps.FinalizeStep, state: _State) -> Iterator[Complaint]:
    if state.prefill is None:
        yield ("finalize",), NO_PREFILL
    state.prefill = None


def _not_in_round(state: _State, word: str) -> Iterator[Complaint]:
    if state.round_held is not None:
        yield (word,), "can't follow in an open round; `commit` or `rollback` first"


def _begin(_: steps.BeginStep, state: _State) -> Iterator[Complaint]:
    if state.round_held is not None:
        yield ("begin",), "can't follow: a round is open already; `commit` or `rollback` first"
    state.round_held = list(state.held)


def _commit(_: steps.CommitStep, state: _State) -> Iterator[Complaint]:
    if state.round_held is None:
        yield ("commit",), NO_ROUND
    state.round_held = None


def _rollback(step: steps.RollbackStep, state: _State) -> Iterator[Complaint]:
    if state.round_held is None:
        yield ("rollback",), NO_ROUND
        return
    keep = step.rollback.keep
    for row, (now, then) in enumerate(zip(state.held, state.round_held, strict=True)):
        if keep[row % len(keep)] > now - then:
            message = f"keeps {keep[row % len(keep)]} tokens of row {row}, which wrote {now - then} in the round"
            yield ("rollback", "keep"), message
    if step.expect is None:
        state.held = [then + keep[row % len(keep)] for row, then in enumerate(state.round_held)]
        state.round_held = None


def _trim(step: steps.TrimStep, state: _State) -> Iterator[Complaint]:
    least = min(state.held, default=0)
    if step.trim > least and step.expect is None:
        held = f"only {least} tokens are held" if least else "the cache is empty"
        yield ("trim",), f"can't follow: {held} here, so {step.trim} can't be trimmed"
    if step.expect is None:
        state.held = [max(0, count - step.trim) for count in state.held]


def _join(step: steps.MergeStep | steps.ExtendStep, state: _State) -> Iterator[Complaint]:
    yield from _not_in_round(state, step.operation)
    yield from _no_prefill(state, step.operation)
    built = []
    for number, row in enumerate(built_rows(step)):
        solo = _State()
        for index, own in enumerate(row):
            for key, message in _complain(own, solo):
                yield (step.operation, "rows", number, index, *key), message
        built += solo.held
        state.written |= solo.written
    if isinstance(step, steps.MergeStep) and len(state.held) > 1:
        yield (step.operation,), "takes solo caches, and the one at hand has more rows; `extract` one, or `extend`"
    state.held = [*state.held, *built]


def _filter(step: steps.FilterStep, state: _State) -> Iterator[Complaint]:
    rows = step.filter.rows
    wrong = [row for row in rows if row >= len(state.held)]
    if wrong or len(set(rows)) < len(rows):
        what = f"there is no row {wrong[0]}" if wrong else "a row is named twice"
        yield ("filter", "rows"), f"{what}: rows are 0..{len(state.held) - 1} here, each at most once"
        return
    state.held = [state.held[row] for row in rows]
    if state.round_held is not None:
        state.round_held = [state.round_held[row] for row in rows]
    if state.prefill is not None:
        state.prefill = [state.prefill[row] for row in rows]


def _extract(step: steps.ExtractStep, state: _State) -> Iterator[Complaint]:
    yield from _not_in_round(state, "extract")
    row = step.extract.row
    if row >= len(state.held):
        yield ("extract", "row"), f"there is no row {row}: rows are 0..{len(state.held) - 1} here"
        return
    state.held, state.prefill = [state.held[row]], None


def _quantize(step: steps.QuantizeStep, state: _State) -> Iterator[Complaint]:
    bits, group = step.quantize.bits, step.quantize.group
    wrong = [row for row in step.quantize.rows or [] if row >= len(state.held)]
    if wrong:
        yield ("quantize", "rows"), f"there is no row {wrong[0]}: rows are 0..{len(state.held) - 1} here"
    if bits not in BITS or group not in GROUP_SIZES:
        yield ("quantize",), f"{bits} bits in groups of {group} do not exist: bits 1-6, 8 and groups 32, 64, 128"


# Steps that are not named here can follow anything.
_RULES: dict[type[Step], Callable[[Any, _State], Iterator[Complaint]]] = {
    steps.AppendStep: _update,
    steps.DecodeStep: _update,
    steps.PrefillStep: _prefill,
    steps.PrepareStep: _prepare,
    steps.ChunkStep: _chunk,
    steps.FinalizeStep: _finalize,
    steps.BeginStep: _begin,
    steps.CommitStep: _commit,
    steps.RollbackStep: _rollback,
    steps.TrimStep: _trim,
    steps.MergeStep: _join,
    steps.ExtendStep: _join,
    steps.FilterStep: _filter,
    steps.ExtractStep: _extract,
    steps.QuantizeStep: _quantize,
}
