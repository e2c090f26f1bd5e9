"""A padded batch is its rows alone, bit for bit, whatever the chunks and whatever padding holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.errors import ImplError, PendingPrefillError, RowIndexError
from impl.recurrent import (
    RecurrentCache,
    RecurrentError,
    RecurrentLayer,
    StateNotTrimmableError,
    gated_delta_layer,
    rollback,
    run_layer,
    selective_scan_layer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS, KEY, VALUE = 2, 2, 3
CHANNELS = {"gated-delta": 2 * HEADS * KEY + HEADS * VALUE, "ssm": HEADS * VALUE + 2 * KEY}
Chunk = tuple[mx.array, mx.array, mx.array]


def layer_of(name: str, kernel: int) -> RecurrentLayer:
    rng = np.random.default_rng(kernel)
    weight = mx.array(rng.integers(-1, 2, (CHANNELS[name], kernel)).astype(np.float32))
    if name == "gated-delta":
        return gated_delta_layer(weight, HEADS, KEY, VALUE)
    return selective_scan_layer(weight, mx.array([1.0, -2.0]), HEADS, KEY, VALUE)


@dataclass
class Prompt:
    """One row's numbers: everything stays exact in float32 for a dozen tokens."""

    inputs: np.ndarray
    decay: np.ndarray
    gate: np.ndarray

    @classmethod
    def of(cls, name: str, row: int, tokens: int) -> Prompt:
        rng = np.random.default_rng(row + 10)
        inputs = rng.integers(-1, 2, (tokens, CHANNELS[name])).astype(np.float32)
        decay = np.where(rng.random((tokens, HEADS)) < 0.2, 0.5, 1.0).astype(np.float32)
        gate = np.where(rng.random((tokens, HEADS)) < 0.2, 0.5, 0.0 if name == "gated-delta" else 1.0)
        return cls(inputs, decay, gate.astype(np.float32))

    def padded(self, left: int, width: int, filler: float) -> Prompt:
        def pad(array: np.ndarray) -> np.ndarray:
            behind = width - left - len(array)
            return np.pad(array, [(left, behind), (0, 0)], constant_values=filler)

        return Prompt(pad(self.inputs), pad(self.decay), pad(self.gate))


def chunk_of(prompts: list[Prompt], start: int, stop: int) -> Chunk:
    inputs, decay, gate = (
        mx.array(np.stack([getattr(prompt, name)[start:stop] for prompt in prompts]))
        for name in ("inputs", "decay", "gate")
    )
    return inputs, decay, gate


def same(first: mx.array | None, second: mx.array | None) -> bool:
    assert first is not None
    assert second is not None
    return first.shape == second.shape and bool(mx.array_equal(first, second).item())


def alone(layer: RecurrentLayer, warm: Prompt, prompt: Prompt) -> tuple[list[mx.array], RecurrentCache]:
    cache = RecurrentCache(1)
    outputs: list[mx.array] = []
    for part in (warm, prompt):
        columns = range(len(part.inputs))
        outputs += [run_layer(layer, *chunk_of([part], token, token + 1), cache)[0, 0] for token in columns]
    return outputs[len(warm.inputs) :], cache


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_padded_batch_is_its_rows_alone(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CHANNELS)))
    layer = layer_of(name, data.draw(st.sampled_from([1, 2, 4])))
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3).filter(any))
    rows = len(lengths)
    warmth = data.draw(st.integers(0, 2))
    left = [data.draw(st.integers(0, 2)) if not warmth else 0 for _ in lengths]
    width = max(a + b for a, b in zip(left, lengths, strict=True))
    filler = data.draw(st.sampled_from([0.0, 7.0, np.nan]))
    warm = [Prompt.of(name, row + 20, warmth) for row in range(rows)]
    prompts = [Prompt.of(name, row, count) for row, count in enumerate(lengths)]
    padded = [prompt.padded(pad, width, filler) for prompt, pad in zip(prompts, left, strict=True)]
    cache = RecurrentCache(rows)
    if warmth:
        run_layer(layer, *chunk_of(warm, 0, warmth), cache)
    cache.prepare_prefill([a + b for a, b in zip(left, lengths, strict=True)], left)
    order, done = list(range(rows)), 0
    seen: list[list[mx.array]] = [[] for _ in lengths]
    while done < width:
        size = data.draw(st.integers(1, width - done))
        output = run_layer(layer, *chunk_of([padded[row] for row in order], done, done + size), cache)
        for place, row in enumerate(order):
            reals = range(max(done, left[row]), min(done + size, left[row] + lengths[row]))
            seen[row] += [output[place, column - done] for column in reals]
        done += size
        if len(order) > 1 and data.draw(st.booleans()):
            kept = data.draw(st.permutations(range(len(order))))[:-1]
            cache.filter_rows(kept)
            order = [order[row] for row in kept]
    cache.finalize_prefill()
    for place, row in enumerate(order):
        outputs, solo = alone(layer, warm[row], prompts[row])
        assert len(outputs) == len(seen[row])
        assert all(same(a, b) for a, b in zip(outputs, seen[row], strict=True))
        mine = cache.extract_row(place)
        assert mine.offsets == solo.offsets == (warmth + lengths[row],)
        if solo.state is not None:
            assert same(mine.state, solo.state)
            assert same(mine.conv_state, solo.conv_state)
        else:
            assert not np.array(mine.state).any()


@pytest.mark.parametrize("name", sorted(CHANNELS))
@pytest.mark.parametrize("keep", [[0, 3], [3, 3], [1, 2]])
def test_a_rollback_is_as_if_the_rest_had_never_come(name: str, keep: list[int]) -> None:
    layer, prompts = layer_of(name, 3), [Prompt.of(name, row, 6) for row in range(2)]
    cache = RecurrentCache(2)
    run_layer(layer, *chunk_of(prompts, 0, 3), cache)
    before = cache.copy()
    block = chunk_of(prompts, 3, 6)
    run_layer(layer, *block, cache)
    rollback(layer, cache, before, block, keep)
    for row, kept in enumerate(keep):
        part = Prompt(*(getattr(prompts[row], key)[: 3 + kept] for key in ("inputs", "decay", "gate")))
        _, solo = alone(layer, Prompt.of(name, 0, 0), part)
        mine = cache.extract_row(row)
        assert (same(mine.state, solo.state), same(mine.conv_state, solo.conv_state)) == (True, True)
        assert mine.offsets == (3 + kept,)
    assert before.offsets == (3, 3)


def warm_cache() -> tuple[RecurrentLayer, RecurrentCache, Chunk]:
    layer, prompts = layer_of("ssm", 3), [Prompt.of("ssm", row, 4) for row in range(2)]
    cache = RecurrentCache(2)
    chunk = chunk_of(prompts, 0, 2)
    run_layer(layer, *chunk, cache)
    cache.prepare_prefill([1, 3])
    return layer, cache, chunk


def look(cache: RecurrentCache) -> tuple[object, ...]:
    lengths = None if cache.padding is None else cache.padding.lengths
    return (cache.offsets, lengths, id(cache.conv_state), id(cache.state))


def attempts(layer: RecurrentLayer, cache: RecurrentCache, chunk: Chunk) -> dict[str, Callable[[], object]]:
    inputs, decay, gate = chunk
    conv_state, state = cache.conv_state, cache.state
    assert conv_state is not None
    assert state is not None
    return {
        "trim": lambda: cache.trim(1),
        "prepare twice": lambda: cache.prepare_prefill([1, 1]),
        "filter": lambda: cache.filter_rows([0, 2]),
        "extract": lambda: cache.extract_row(2),
        "extend by another type": lambda: cache.extend(_other(mx.float16, mx.float32)),
        "extend by another state": lambda: cache.extend(_other(mx.float32, mx.float16)),
        "channels": lambda: run_layer(layer, inputs[..., :-1], decay, gate, cache),
        "rows": lambda: run_layer(layer, inputs[:1], decay[:1], gate[:1], cache),
        "gates": lambda: run_layer(layer, inputs, decay, gate[:, :1], cache),
        "a dtype": lambda: run_layer(layer, inputs.astype(mx.float16), decay, gate, cache),
        "no columns": lambda: run_layer(layer, inputs[:, :0], decay[:, :0], gate[:, :0], cache),
        "rollback in a prefill": lambda: rollback(layer, cache, RecurrentCache(2), chunk, [1, 1]),
        "keep": lambda: rollback(layer, cache, cache.copy(), chunk, [1]),
        "keep too many": lambda: rollback(layer, cache, cache.copy(), chunk, [1, 3]),
        "update": lambda: cache.update(conv_state[:1], state, 1),
    }


def _other(conv: mx.Dtype, state: mx.Dtype) -> RecurrentCache:
    other = RecurrentCache(1)
    other.update(mx.zeros((1, 2, CHANNELS["ssm"]), conv), mx.zeros((1, HEADS, VALUE, KEY), state), 1)
    return other


def test_what_is_refused_changes_nothing() -> None:
    layer, cache, chunk = warm_cache()
    before = look(cache)
    for name, attempt in attempts(layer, cache, chunk).items():
        with pytest.raises(ImplError):
            attempt()
        assert look(cache) == before, name


def test_refusals_have_their_own_classes() -> None:
    _, cache, _ = warm_cache()
    assert not cache.is_trimmable()
    with pytest.raises(StateNotTrimmableError):
        cache.trim(1)
    with pytest.raises(PendingPrefillError):
        cache.prepare_prefill([1, 1])
    with pytest.raises(RowIndexError):
        cache.filter_rows([-1])
    cache.finalize_prefill()
    with pytest.raises(RecurrentError, match="left padding needs rows without tokens"):
        cache.prepare_prefill([2, 2], [1, 0])
    with pytest.raises(RecurrentError, match="3 lengths for 2 rows"):
        cache.prepare_prefill([1, 2, 3])
    assert cache.padding is None
    with pytest.raises(RecurrentError):
        gated_delta_layer(mx.zeros((3, 2)), HEADS, KEY, VALUE)


def test_no_padding_is_no_length_of_zero() -> None:
    _, cache, _ = warm_cache()
    cache.finalize_prefill()
    cache.finalize_prefill()
    assert cache.make_mask(3) is None
    assert cache.convolution_lengths(3) == [3, 3]
    assert cache.nbytes == 2 * (2 * CHANNELS["ssm"] + HEADS * VALUE * KEY) * 4


def test_an_empty_row_joins_warm_ones_as_zeros() -> None:
    _, cache, _ = warm_cache()
    batch = RecurrentCache.merge([RecurrentCache(1), cache])
    assert batch.offsets == (0, 2, 2)
    assert batch.padding is not None
    assert batch.padding.lengths[1:] == (1, 3)
    assert batch.state is not None
    assert not np.array(batch.state[0]).any()
    assert same(batch.state[1:], cache.state)
    assert RecurrentCache.merge([]).batch_size == 0
    with pytest.raises(RecurrentError):
        RecurrentCache(-1)
