"""Arrays that cross the border of a ring: nobody's array ever changes because of somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import AffinePlanes
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache

if TYPE_CHECKING:
    from collections.abc import Iterable

DTYPES = (mx.float32, mx.float16, mx.bfloat16)


def random(rows: int, tokens: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal((rows, 2, tokens, 32), key=mx.random.key(tokens)).astype(dtype)


def arrays_of(planes: Iterable[mx.array | AffinePlanes | None]) -> list[mx.array]:
    parts = [[] if p is None else list(p.parts) if isinstance(p, AffinePlanes) else [p] for p in planes]
    return [array for part in parts for array in part]


def data(arrays: Iterable[mx.array]) -> list[bytes]:
    return [np.array(x.view(mx.uint16 if x.itemsize == 2 else mx.uint32)).tobytes() for x in arrays]


def make(kind: str, max_size: int) -> Any:
    if kind == "plain":
        return RotatingKVCache(max_size)
    if kind == "affine":
        return RotatingQuantizedKVCache(max_size, 32, 4)
    if kind == "batch":
        return BatchedRotatingCache(max_size, [0, 0])
    return BatchedRotatingQuantCache(max_size, 32, 4, [0, 0])


KINDS = {"plain": 1, "affine": 1, "batch": 2, "affine batch": 2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("evaluated", [False, True])
def test_nothing_handed_out_or_in_ever_changes(kind: str, dtype: mx.Dtype, evaluated: bool) -> None:
    ring, rows = make(kind, 4), KINDS[kind]
    seen: list[tuple[list[mx.array], list[bytes]]] = []
    for tokens in (3, 1, 1, 1, 2, 1, 6, 1, 1):
        keys, values = random(rows, tokens, dtype), random(rows, tokens, dtype) + 1
        out = ring.update_and_fetch(keys, values)
        held = [*arrays_of(out), keys, values, *arrays_of([ring.keys, ring.values]), *ring.state()]
        held += arrays_of(ring.temporal_view())
        twin = ring.copy()
        held += twin.state()
        # Evaluation decides whether a write may reuse memory, so both orders must be safe.
        expected = data(held) if evaluated else data([array + 0 for array in held])
        seen.append((held, expected))
        for array in (*arrays_of(ring.copy().update_and_fetch(keys, values)), *ring.state(), *arrays_of([ring.keys])):
            array[...] = array[...] * 0
    for held, expected in seen:
        assert data(held) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_assigning_into_what_a_ring_gives_or_gets_does_not_reach_it(kind: str) -> None:
    ring, twin, rows = make(kind, 4), make(kind, 4), KINDS[kind]
    for tokens in (3, 1, 1, 2, 1):
        keys, values = random(rows, tokens), random(rows, tokens) + 1
        twin.update_and_fetch(random(rows, tokens), random(rows, tokens) + 1)
        for array in (*arrays_of(ring.update_and_fetch(keys, values)), keys, values):
            array[:, :, :1] = mx.zeros_like(array[:, :, :1])
        for array in (*ring.state(), *arrays_of([ring.keys, ring.values])):
            array[:, :, -1:] = mx.zeros_like(array[:, :, -1:])
        assert data(ring.state()) == data(twin.state())
    if rows > 1:
        rope = ring.rope_offset_arr
        rope[0] = 99
        assert ring.rope_offset_arr.tolist() == list(ring.row_offsets)


def test_keys_and_values_may_be_one_array() -> None:
    ring, x = RotatingKVCache(4), random(1, 3)
    ring.update_and_fetch(x, x)
    step = random(1, 1)
    keys, values = ring.update_and_fetch(step, step + 1)
    assert bool(mx.array_equal(keys[:, :, 3:] + 1, values[:, :, 3:]))
    assert bool(mx.array_equal(keys[:, :, :3], x))


def test_copies_extracts_and_merges_go_their_own_way() -> None:
    ring = SpeculativeRotatingKVCache(4)
    one, two = RotatingKVCache(4), RotatingKVCache(4)
    one.update_and_fetch(random(1, 4), random(1, 4))
    two.update_and_fetch(random(1, 2), random(1, 2))
    ring.merge_rows([one, two])
    whole = ring.make_empty_batch()
    whole.merge_rows([ring])
    others: list[Any] = [one, two, ring.copy(), ring.extract_row(0), whole, ring.to_quantized(32, 4)]
    lent = ring.capture_donor_rows()
    before = [(other.position, data(other.state())) for other in others]
    lent_before = data([lent.keys, lent.values])
    for _ in range(5):
        ring.update_and_fetch(random(2, 1), random(2, 1))
    ring.filter_rows([1])
    assert [(other.position, data(other.state())) for other in others] == before
    assert data([lent.keys, lent.values]) == lent_before
    for other in others:
        rows = getattr(other, "batch_size", 1)
        expected = data(ring.state())
        other.update_and_fetch(random(rows, 1), random(rows, 1))
        assert data(ring.state()) == expected


def test_a_decoded_token_is_written_in_place() -> None:
    ring = BatchedRotatingCache(4096, [0, 0])
    block = random(2, 4096)
    ring.update_and_fetch(block, block + 1)
    del block
    step = random(2, 1)
    mx.eval(ring.update_and_fetch(step, step))
    mx.reset_peak_memory()
    start = mx.get_active_memory()
    for _ in range(3):
        mx.eval(ring.update_and_fetch(step, step))
    assert mx.get_peak_memory() - start < ring.nbytes // 8
