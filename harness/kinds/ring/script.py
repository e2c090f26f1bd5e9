"""What the steps of a case mean for plain lists: which tokens are written when, and which step can't follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.kinds.ring import steps
from harness.kinds.ring.tokens import largest_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.ring.schema import RingCase
    from harness.kinds.ring.steps import Step

BITS = (1, 2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


def tokens_written(path: list[Step]) -> int:
    """Return how many tokens the steps write into one row at most."""
    total = 0
    for step in path:
        match step:
            case steps.AppendStep():
                total += step.append
            case steps.DecodeStep():
                total += step.decode
            case steps.ChunkStep():
                total += step.chunk
            case steps.PrefillStep():
                total += max(step.prefill.lengths)
            case steps.MergeStep() | steps.ExtendStep():
                rows = (step.merge if isinstance(step, steps.MergeStep) else step.extend).rows
                total += max(tokens_written(list(row)) for row in rows)
            case _:
                continue
    return total


def row_stride(case: RingCase) -> int:
    """Return the distance between two rows' ids: row r writes r * stride + 1, + 2, ..., and never reaches the next."""
    return -(-(tokens_written(list(case.steps)) + 1) // 100) * 100


def most_rows(case: RingCase) -> int:
    """Return how many rows may ever have written something."""
    added = sum(len(step.merge.rows) for step in case.steps if isinstance(step, steps.MergeStep))
    added += sum(len(step.extend.rows) for step in case.steps if isinstance(step, steps.ExtendStep))
    return max(case.given.rows, case.given.rows + added)


def last_id(case: RingCase) -> int:
    """Return the largest id that the case can write."""
    written = tokens_written(list(case.steps))
    rows = most_rows(case)
    return written if rows == 1 else (rows - 1) * row_stride(case) + written


@dataclass
class _State:
    held: int = 0
    written: int = 0
    round_open: bool = False
    prefill_open: bool = False
    joined: bool = False

    def write(self, tokens: int) -> None:
        """Count tokens that a row was given."""
        self.held += tokens
        self.written += tokens


def complaints(case: RingCase) -> Iterator[Complaint]:
    """Find what a schema can't see: steps that can't follow, and caches that can't be."""
    yield from _given(case)
    state = _State()
    for index, step in enumerate(case.steps):
        rule = _RULES.get(type(step))
        for key, message in rule(step, state) if rule else ():
            yield ("steps", index, *key), message
    if state.written == 0 and not state.joined:
        yield ("steps",), "write no token: nothing could be checked; add for example `- append: 3`"
    if state.round_open:
        yield ("steps",), "end in an open round; add `- commit` or `- rollback: {keep: ...}`"
    if state.prefill_open:
        yield ("steps",), "end in an open prefill; add `- finalize`"


def _given(case: RingCase) -> Iterator[Complaint]:
    given = case.given
    spec = given.spec()
    if spec.query_heads % spec.kv_heads:
        yield ("given", "query_heads"), f"must be a multiple of kv_heads ({spec.kv_heads}), not {spec.query_heads}"
    storage = spec.storage
    if storage is not None:
        if storage.bits not in BITS or storage.group_size not in GROUP_SIZES:
            message = f"'{given.storage}' does not exist: bits are 1, 2, 3, 4, 5, 6, 8 and groups 32, 64, 128"
            yield ("given", "storage"), message
            return
        for key, dim in (("head_dim", spec.head_dim), ("value_dim", spec.value_dim)):
            if dim % storage.group_size:
                yield ("given", key), f"must be a multiple of the group size {storage.group_size}, not {dim}"
                return
    group = storage.group_size if storage else None
    room = min(largest_id(spec.head_dim, group), largest_id(spec.value_dim, group))
    if last_id(case) > room:
        message = (
            f"{spec.head_dim} can carry ids up to {room}, and the steps write ids up to {last_id(case)}: "
            "use a head_dim of two groups, or fewer tokens"
        )
        yield ("given", "head_dim"), message
    if given.sinks and given.window != "none" and given.sinks >= given.window:
        yield ("given", "sinks"), f"must be fewer than the window ({given.window})"
    if given.sinks and given.window == "none":
        yield ("given", "sinks"), "need a window; a full cache keeps every token anyway"


def _prefill(step: steps.PrefillStep, state: _State) -> Iterator[Complaint]:
    yield from _no_prefill(state, "prefill")
    state.write(max(step.prefill.lengths))
    chunks, left = step.prefill.chunks, step.prefill.left or [0]
    width = max(length + left[index % len(left)] for index, length in enumerate(step.prefill.lengths))
    if chunks is not None and sum(chunks) != width:
        yield ("prefill", "chunks"), f"add up to {sum(chunks)}; the padded width is {width}"


def _no_prefill(state: _State, word: str) -> Iterator[Complaint]:
    if state.prefill_open:
        yield (word,), "can't follow: a prefill is open already; `finalize` it first"


def _a_prefill(state: _State, word: str) -> Iterator[Complaint]:
    if not state.prefill_open:
        yield (word,), "can't follow: no prefill is open; put `- prepare: {lengths: [...]}` before it"


def _prepare(_: steps.PrepareStep, state: _State) -> Iterator[Complaint]:
    yield from _no_prefill(state, "prepare")
    state.prefill_open = True


def _chunk(step: steps.ChunkStep, state: _State) -> Iterator[Complaint]:
    yield from _a_prefill(state, "chunk")
    state.write(step.chunk)


def _finalize(_: steps.FinalizeStep, state: _State) -> Iterator[Complaint]:
    yield from _a_prefill(state, "finalize")
    state.prefill_open = False


def _begin(_: steps.BeginStep, state: _State) -> Iterator[Complaint]:
    if state.round_open:
        yield ("begin",), "can't follow: a round is open already; `commit` or `rollback` first"
    state.round_open = True


def _end_round(step: steps.CommitStep | steps.RollbackStep, state: _State) -> Iterator[Complaint]:
    if not state.round_open:
        yield (step.operation,), "can't follow: no round is open; put `- begin: round` before it"
    state.round_open = False


def _trim(step: steps.TrimStep, state: _State) -> Iterator[Complaint]:
    if step.trim > state.held and not state.joined and step.expect is None:
        held = f"only {state.held} tokens are held" if state.held else "the cache is empty"
        yield ("trim",), f"can't follow: {held} here, so {step.trim} can't be trimmed"
    state.held = max(0, state.held - step.trim)


def _join(_: steps.MergeStep | steps.ExtendStep, state: _State) -> Iterator[Complaint]:
    state.joined = True
    yield from ()


def _quantize(step: steps.QuantizeStep, _: _State) -> Iterator[Complaint]:
    bits, group = step.quantize.bits, step.quantize.group
    if bits not in BITS or group not in GROUP_SIZES:
        yield ("quantize",), f"{bits} bits in groups of {group} do not exist: bits 1-6, 8 and groups 32, 64, 128"


def _update(step: steps.AppendStep | steps.DecodeStep, state: _State) -> Iterator[Complaint]:
    tokens = step.append if isinstance(step, steps.AppendStep) else step.decode
    if state.prefill_open:
        message = f"can't follow: a padded prefill is open; write `- chunk: {tokens}`, or `- finalize` first"
        yield (step.operation,), message
    state.write(tokens)


# Steps that are not named here can follow anything.
_RULES: dict[type[Step], Callable[[Any, _State], Iterator[Complaint]]] = {
    steps.AppendStep: _update,
    steps.DecodeStep: _update,
    steps.PrefillStep: _prefill,
    steps.PrepareStep: _prepare,
    steps.ChunkStep: _chunk,
    steps.FinalizeStep: _finalize,
    steps.BeginStep: _begin,
    steps.CommitStep: _end_round,
    steps.RollbackStep: _end_round,
    steps.TrimStep: _trim,
    steps.MergeStep: _join,
    steps.ExtendStep: _join,
    steps.QuantizeStep: _quantize,
}
