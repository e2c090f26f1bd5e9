"""What rings refuse, and that an operation which fails anywhere leaves everything as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.errors import (
    AffineError,
    AlreadyAffineError,
    HistoryLostError,
    ImplError,
    MergeError,
    PendingPrefillError,
    RingError,
    RingShapeError,
    RoundError,
    RowIndexError,
    SinksUnsupportedError,
)
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.position import BatchedRotatingState
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Callable

    Ring = RotatingKVCache | RotatingQuantizedKVCache | BatchedRotatingCache | BatchedRotatingQuantCache


def random(rows: int, tokens: int, heads: int = 1, head_dim: int = 32, dtype: mx.Dtype = mx.float32) -> mx.array:
    rng = np.random.default_rng(rows * 100 + tokens)
    return mx.array(rng.standard_normal((rows, heads, tokens, head_dim)).astype(np.float32)).astype(dtype)


def fill(ring: Any, tokens: int) -> Any:
    x = random(getattr(ring, "batch_size", 1), tokens)
    ring.update_and_fetch(x, x + 1)
    return ring


def solo(affine: bool = False, tokens: int = 0, then: int = 0, max_size: int = 4) -> Any:
    ring: Any = RotatingQuantizedKVCache(max_size, 32, 4) if affine else RotatingKVCache(max_size)
    for length in filter(None, (tokens, then)):
        fill(ring, length)
    return ring


def batch(affine: bool = False, steps: int = 0, then: int = 0, lengths: tuple[int, ...] = (5, 2, 0)) -> Any:
    rows = [solo(affine, length) for length in lengths]
    ring: Any = BatchedRotatingQuantCache.merge(rows) if affine else SpeculativeRotatingKVCache.merge(rows)
    for length in (*[1] * steps, *filter(None, [then])):
        fill(ring, length)
    return ring


def pending(affine: bool = False, tokens: int = 0) -> Any:
    ring = batch(affine)
    ring.prepare_prefill([1, 4, 3], right_padding=[3, 0, 1])
    return fill(ring, tokens) if tokens else ring


def in_round(tokens: int = 3) -> Any:
    ring = batch(steps=1)
    ring.spec_round_begin()
    return fill(ring, tokens)


def snapshot(ring: Any) -> tuple[object, ...]:
    arrays = [np.array(x.view(mx.uint32)).tobytes() for x in ring.state()]
    rope = getattr(ring, "rope_offset_arr", None)
    offsets = None if rope is None else tuple(rope.tolist())
    return ring.position, arrays, getattr(ring, "round_offsets", None), offsets


class FailingStorage:
    """Storage whose call number ``fail_at`` runs out of memory."""

    def __init__(self, inner: Any, fail_at: int) -> None:
        self.inner, self.fail_at, self.calls = inner, fail_at, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls == self.fail_at:
                raise MemoryError(name)
            return method(*args)

        return call

    def __eq__(self, other: object) -> bool:
        return bool(self.inner == getattr(other, "inner", other))

    def __hash__(self) -> int:
        return hash(self.inner)


def extend_by_another(ring: Any) -> None:
    ring.extend(batch(isinstance(ring, BatchedRotatingQuantCache), steps=2))


def save_and_load(ring: Any) -> None:
    ring.restore_state(ring.keys, ring.values, ring.position)


def merge_two(ring: Any) -> Any:
    return ring.with_rows([ring.extract_row(0), ring.extract_row(1)])


# name: (ring before, from "is it affine", operation); operations give a ring, or change the one they get.
OPERATIONS: dict[str, tuple[Callable[[bool], Any], Callable[[Any], Any]]] = {
    "first token": (lambda affine: batch(affine, lengths=(0, 0)), lambda ring: fill(ring, 1)),
    "token, growing": (lambda affine: batch(affine, lengths=(2, 1)), lambda ring: fill(ring, 1)),
    "token, wrapping": (batch, lambda ring: fill(ring, 1)),
    "token after a large block": (lambda affine: batch(affine, then=5), lambda ring: fill(ring, 1)),
    "block on a wrapped ring": (lambda affine: batch(affine, steps=2), lambda ring: fill(ring, 3)),
    "chunk of an open prefill": (lambda affine: pending(affine, 3), lambda ring: fill(ring, 1)),
    "finalize": (lambda affine: pending(affine, 4), lambda ring: ring.finalize_prefill()),
    "filter": (lambda affine: batch(affine, steps=1), lambda ring: ring.filter_rows([2, 0])),
    "extract": (lambda affine: batch(affine, steps=1), lambda ring: ring.extract_row(1)),
    "extend": (lambda affine: batch(affine, steps=1), extend_by_another),
    "merge": (batch, merge_two),
    "trim": (lambda affine: batch(affine, steps=1, then=4), lambda ring: ring.trim(2)),
    "rollback, cut": (
        lambda affine: batch(affine, steps=1, then=3),
        lambda ring: rollback_rotating_ring(ring, [6, 3, 1], 1),
    ),
    "rollback, moved": (
        lambda affine: batch(affine, steps=1, then=3),
        lambda ring: rollback_rotating_ring(ring, [6, 3, 1], [1, 0, 3]),
    ),
    "restore": (lambda affine: batch(affine, steps=1), save_and_load),
    "solo token": (lambda affine: solo(affine, 3), lambda ring: fill(ring, 1)),
    "solo block": (lambda affine: solo(affine, 4, 1), lambda ring: fill(ring, 2)),
    "solo extract": (lambda affine: solo(affine, 4, 1), lambda ring: ring.extract(2)),
    "solo trim": (lambda affine: solo(affine, 4, 1), lambda ring: ring.trim(1)),
}


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_running_out_of_memory_anywhere_changes_nothing(name: str, affine: bool) -> None:
    setup, operation = OPERATIONS[name]
    clean = setup(affine)
    clean_result = snapshot(operation(clean) if name in GIVING else [operation(clean), clean][1])
    fail_at = 0
    while True:
        fail_at += 1
        ring = setup(affine)
        before, storage = snapshot(ring), ring.storage
        ring.__dict__["_storage"] = FailingStorage(storage, fail_at)
        try:
            operation(ring)
        except MemoryError:
            ring.__dict__["_storage"] = storage
            assert snapshot(ring) == before
            again = operation(ring)
            assert snapshot(again if name in GIVING else ring) == clean_result
        else:
            assert fail_at > 2
            return


GIVING = {"extract", "merge", "rollback, cut", "rollback, moved", "solo extract"}


def test_running_out_of_memory_in_a_round_leaves_it_open() -> None:
    for fail_at in range(1, 20):
        ring = in_round()
        before, storage = snapshot(ring), ring.storage
        ring.__dict__["_storage"] = FailingStorage(storage, fail_at)
        try:
            ring.spec_round_rollback([1, 0, 3])
        except MemoryError:
            ring.__dict__["_storage"] = storage
            assert snapshot(ring) == before
            ring.spec_round_rollback([1, 0, 3])
        else:
            return
    pytest.fail("the rollback never succeeded")


def five() -> Any:
    return solo(tokens=5)


def update(keys: mx.array, values: mx.array | None = None) -> Callable[[Any], object]:
    return lambda ring: ring.update_and_fetch(keys, keys if values is None else values)


def prepare(*args: Any, **kwargs: Any) -> Callable[[Any], object]:
    return lambda ring: ring.prepare_prefill(*args, **kwargs)


def restore(position: BatchedRotatingState, columns: int, rows: int = 3) -> Callable[[Any], object]:
    x = random(rows, columns)
    return lambda ring: ring.restore_state(x, x, position)


def restore_solo(offset: int, ring_index: int, columns: int) -> Callable[[Any], object]:
    x = random(1, columns) if columns else None
    return lambda ring: ring.restore_state(x, x, offset, ring_index)


def rollback(before: list[int], keep: int | list[int]) -> Callable[[Any], object]:
    return lambda ring: rollback_rotating_ring(ring, before, keep)


State = BatchedRotatingState
Refusal = tuple["Callable[[], Any]", "Callable[[Any], object]", type[ImplError], str]
REFUSALS: dict[str, Refusal] = {
    "row count": (batch, update(random(2, 1)), RingShapeError, "2 rows for a ring of 3; give one row per request"),
    "other heads": (five, update(random(1, 1, heads=2)), RingShapeError, "keys of 2 heads x 32"),
    "other key head_dim": (
        five,
        update(random(1, 2, head_dim=64), random(1, 2)),
        RingShapeError,
        "the ring holds 1 x 32",
    ),
    "other value head_dim": (
        five,
        update(random(1, 2), random(1, 2, head_dim=64)),
        RingShapeError,
        "values of 1 heads",
    ),
    "other dtype": (five, update(random(1, 1, dtype=mx.float16)), RingShapeError, "nothing is cast silently"),
    "keys unlike values": (five, update(random(1, 1), random(1, 2)), RingShapeError, "alike but for head_dim"),
    "no token": (five, update(mx.zeros((1, 1, 0, 32))), RingShapeError, "at least 1 token"),
    "three axes": (five, update(mx.zeros((1, 1, 32))), RingShapeError, r"\[rows, kv_heads, tokens, head_dim\]"),
    "part of a group": (
        lambda: solo(affine=True),
        update(random(1, 1), random(1, 1, head_dim=48)),
        AffineError,
        "head_dim=48",
    ),
    "part of a group, later": (five, lambda r: r.to_quantized(64, 4), AffineError, "head_dim=32"),
    "affine twice": (lambda: solo(affine=True), lambda r: r.to_quantized(32, 8), AlreadyAffineError, "already affine"),
    "mask for nothing": (five, lambda r: r.make_mask(0), RingShapeError, "1 or more"),
    "window of nothing": (five, lambda r: r.make_mask(1, 0), RingShapeError, "a query sees at least itself"),
    "trim too much": (lambda: solo(tokens=4, then=1), lambda r: r.trim(2), HistoryLostError, "at most 1 can go"),
    "trim the shortest row": (batch, lambda r: r.trim(1), HistoryLostError, "at most 0 can go"),
    "trim a negative number": (five, lambda r: r.trim(-1), RingShapeError, "give 0 or more"),
    "trim in a prefill": (pending, lambda r: r.trim(0), PendingPrefillError, "finalize_prefill first"),
    "limit 0": (five, lambda r: r.extract(0), RingShapeError, "at least 1 token"),
    "row limit 0": (batch, lambda r: r.extract_row(0, 0), RingShapeError, "at least 1 token"),
    "row outside": (batch, lambda r: r.extract_row(3), RowIndexError, "a batch of 3"),
    "row before the first": (batch, lambda r: r.extract_row(-1), RowIndexError, "a batch of 3"),
    "filter outside": (batch, lambda r: r.filter_rows([0, 3]), RowIndexError, "a batch of 3"),
    "filter twice": (batch, lambda r: r.filter_rows([1, 1]), RowIndexError, "once at most"),
    "negative floor": (five, lambda r: setattr(r, "minimum_reusable_offset", -1), RingShapeError, "0 or more"),
    "prefill twice": (pending, prepare([1, 1, 1]), PendingPrefillError, "open already"),
    "prefill rows": (batch, prepare([1, 1]), RingShapeError, "2 lengths"),
    "prefill padding rows": (batch, prepare([1, 1, 1], right_padding=[0, 1]), RingShapeError, "2 right paddings"),
    "prefill width": (batch, prepare([1, 2, 3], right_padding=[1, 0, 0]), RingShapeError, r"widths \[2, 3\]"),
    "prefill negative": (batch, prepare([1, -1, 1]), RingShapeError, "negative"),
    "prefill left twice": (batch, prepare([3, 3, 3], left_padding=[0, 1, 0]), RingShapeError, "pad on the right"),
    "prefill shorter than padding": (
        lambda: BatchedRotatingCache(4),
        prepare([1, 1], left_padding=[2, 0]),
        RingShapeError,
        "cannot be smaller",
    ),
    "extend in a prefill": (pending, extend_by_another, PendingPrefillError, "finalize_prefill first"),
    "extend by another size": (batch, lambda r: r.extend(SpeculativeRotatingKVCache(5)), MergeError, r"\[4, 5\]"),
    "extend by affine": (
        lambda: BatchedRotatingCache(4),
        lambda r: r.extend(batch(affine=True)),
        MergeError,
        "cannot join",
    ),
    "restore other size": (batch, restore(State(5, (1, 1, 1), (0, 0, 0), 1, 1), 1), RingShapeError, "max_size 5"),
    "restore other rows": (batch, restore(State(4, (1, 1), (0, 0), 1, 1), 1), RingShapeError, "2 rows"),
    "restore ragged": (batch, restore(State(4, (1, 1, 1), (0, 0), 1, 1), 1), RingShapeError, "one offset, left_pad"),
    "restore beyond": (batch, restore(State(4, (1, 1, 1), (0, 0, 0), 2, 2), 1), RingShapeError, "fit 1 columns"),
    "restore half a ring": (
        batch,
        restore(State(4, (9, 9, 9), (0, 0, 0), 2, 9, rotated=True), 3),
        RingShapeError,
        "exactly max_size",
    ),
    "restore too much padding": (batch, restore(State(4, (0, 1, 1), (3, 0, 0), 1, 1), 1), RingShapeError, "left_pad"),
    "restore keys only": (
        batch,
        lambda r: r.restore_state(r.keys, None, r.position),
        RingShapeError,
        "both or neither",
    ),
    "restore affine": (
        batch,
        lambda r: r.restore_state(*[solo(True, 2).keys] * 2, r.position),
        RingShapeError,
        "PlainStorage",
    ),
    "restore solo cursor beyond": (solo, restore_solo(3, 4, 3), RingShapeError, "do not belong"),
    "restore solo cursor behind": (solo, restore_solo(3, 1, 3), RingShapeError, "do not belong"),
    "restore solo too many": (solo, restore_solo(2, 3, 3), RingShapeError, "do not belong"),
    "restore solo negative": (solo, restore_solo(-1, -1, 0), RingShapeError, "do not belong"),
    "rollback of other rows": (in_round, rollback([6, 3], 1), RingShapeError, "2 offsets before"),
    "rollback with other keeps": (in_round, rollback([6, 3, 1], [1, 1]), RingShapeError, "2 tokens to keep"),
    "rollback to the future": (in_round, rollback([10, 3, 1], 0), RingShapeError, "row 0: keep 0 of -1"),
    "rollback keeps too many": (in_round, rollback([6, 3, 1], 4), RingShapeError, "keep 4 of 3"),
    "rollback keeps fewer than none": (in_round, rollback([6, 3, 1], -1), RingShapeError, "keep -1 of 3"),
    "rollback beyond history": (lambda: batch(steps=2), rollback([5, 2, 0], 0), HistoryLostError, "row 0: going back"),
    "rollback in a prefill": (pending, rollback([5, 2, 0], 0), PendingPrefillError, "finalize_prefill first"),
    "begin twice": (in_round, lambda r: r.spec_round_begin(), RoundError, "commit or roll back first"),
    "begin in a prefill": (pending, lambda r: r.spec_round_begin(), PendingPrefillError, "finalize_prefill first"),
    "commit nothing": (batch, lambda r: r.spec_round_commit(), RoundError, "call spec_round_begin"),
    "roll nothing back": (batch, lambda r: r.spec_round_rollback(0), RoundError, "call spec_round_begin"),
    "roll back too many": (in_round, lambda r: r.spec_round_rollback(4), RingShapeError, "keep 4 of 3"),
    "extract in a round": (in_round, lambda r: r.extract_row(0), RoundError, "cannot extract a row"),
    "prepare in a round": (in_round, prepare([1, 1, 1]), RoundError, "cannot prepare a prefill"),
    "merge in a round": (in_round, lambda r: r.merge_rows([]), RoundError, "cannot merge rows"),
    "merge from a round": (batch, lambda r: r.merge_rows([in_round()]), RoundError, "cannot be merged"),
    "merge another size": (batch, lambda r: r.merge_rows([SpeculativeRotatingKVCache(5)]), MergeError, "max_size 5"),
    "merge another solo size": (batch, lambda r: r.merge_rows([solo(max_size=5)]), MergeError, r"\[4, 5\]"),
    "merge affine": (batch, lambda r: r.merge_rows([solo(affine=True)]), MergeError, "cannot join"),
    "merge a batch": (batch, lambda r: r.merge_rows([BatchedRotatingCache(4, [0, 0])] * 2), MergeError, "use extend"),
    "extend in a round": (in_round, extend_by_another, RoundError, "cannot extend"),
    "extend by a round": (batch, lambda r: r.extend(in_round()), RoundError, "cannot extend by this batch"),
    "restore in a round": (in_round, save_and_load, RoundError, "cannot restore"),
    "lend nothing": (
        lambda: SpeculativeRotatingKVCache(4),
        lambda r: r.capture_donor_rows(),
        RingError,
        "prefill it first",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_way_out_and_changes_nothing(name: str) -> None:
    setup, operation, error, message = REFUSALS[name]
    ring = setup()
    before = snapshot(ring)
    with pytest.raises(error, match=message):
        operation(ring)
    assert snapshot(ring) == before


@pytest.mark.parametrize("dtypes", [(mx.float32, mx.float16), (mx.bfloat16, mx.float16)])
def test_rows_of_different_type_are_never_cast(dtypes: tuple[mx.Dtype, mx.Dtype]) -> None:
    rows = [RotatingKVCache(4) for _ in dtypes]
    for row, dtype in zip(rows, dtypes, strict=True):
        x = random(1, 2, dtype=dtype)
        row.update_and_fetch(x, x)
    with pytest.raises(MergeError, match="convert them first"):
        BatchedRotatingCache.merge(rows)
    assert [row.offset for row in rows] == [2, 2]


def test_merges_without_a_common_ground() -> None:
    with pytest.raises(MergeError, match="nothing to merge"):
        BatchedRotatingCache.merge([])
    with pytest.raises(MergeError, match="call to_quantized"):
        BatchedRotatingQuantCache.merge([solo(tokens=2)])
    with pytest.raises(MergeError, match="cannot join"):
        BatchedRotatingQuantCache.merge([RotatingQuantizedKVCache(4, 32, bits) for bits in (4, 8)])


@pytest.mark.parametrize(
    "kind", [RotatingKVCache, RotatingQuantizedKVCache, BatchedRotatingCache, BatchedRotatingQuantCache]
)
def test_sinks_and_empty_windows_are_refused(kind: type[Ring]) -> None:
    with pytest.raises(SinksUnsupportedError, match="use keep=0"):
        kind(4, keep=4)
    with pytest.raises(RingShapeError, match="at least 1 column"):
        kind(0)
    with pytest.raises(RingShapeError, match="must not be negative"):
        BatchedRotatingCache(4, [-1])
    with pytest.raises(AffineError, match="bits=7"):
        RotatingQuantizedKVCache(4, 32, 7)


def test_errors_are_what_callers_expect() -> None:
    assert issubclass(RingError, ValueError)
    assert issubclass(RoundError, RuntimeError)
    assert issubclass(RowIndexError, IndexError)
    assert issubclass(AlreadyAffineError, TypeError)
    assert all(issubclass(error, ImplError) for error in (RingError, RoundError, RowIndexError, AlreadyAffineError))
