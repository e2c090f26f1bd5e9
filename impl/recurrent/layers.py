"""Two small recurrent layers in plain MLX operations: a gated delta rule, and a selective scan as in Mamba.

Both convolve their inputs and then go through the tokens one by one; they differ in what a step does to the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from impl.errors import PendingPrefillError
from impl.recurrent.convolution import causal_convolution
from impl.recurrent.errors import RecurrentError
from impl.recurrent.rows import checked_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from impl.recurrent.cache import RecurrentCache

    Arrays = tuple[mx.array, ...]
    # convolved channels [rows, tokens, channels] -> what one token meets, each [rows, tokens, heads or 1, ., .]
    Parts = Callable[[mx.array], Arrays]
    # state, one token's parts, decay and gate [rows, 1, heads, 1, 1] -> new state, output [rows, 1, heads, value_dim]
    Step = Callable[[mx.array, Arrays, mx.array, mx.array], tuple[mx.array, mx.array]]


@dataclass(frozen=True, eq=False)
class RecurrentLayer:
    """A recurrent layer without its projections: what it convolves, and what one token does to its state.

    ``weight`` is ``[channels, kernel]``; the state is float32 ``[rows, heads, value_dim, key_dim]``.
    """

    weight: mx.array
    heads: int
    key_dim: int
    value_dim: int
    parts: Parts
    step: Step


def gated_delta_layer(weight: mx.array, heads: int, key_dim: int, value_dim: int) -> RecurrentLayer:
    """Return a layer with the gated delta rule (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024).

    Channels are queries, keys ``[heads * key_dim]`` each and values ``[heads * value_dim]``. With S the state of a
    head: S = decay * S, then S = S + gate * (value - S key) key^T, and the output is S query.
    Raises RecurrentError for a weight of another number of channels.
    """
    keys = heads * key_dim

    def parts(x: mx.array) -> Arrays:
        query, key, value = mx.split(x, [keys, 2 * keys], axis=-1)
        wide, tall = (*x.shape[:2], heads, 1, key_dim), (*x.shape[:2], heads, value_dim, 1)
        return query.reshape(wide), key.reshape(wide), value.reshape(tall)

    def step(state: mx.array, token: Arrays, decay: mx.array, gate: mx.array) -> tuple[mx.array, mx.array]:
        query, key, value = token
        state = state * decay
        change = (value - (state * key).sum(axis=-1, keepdims=True)) * gate
        state = state + change * key
        return state, (state * query).sum(axis=-1)

    _check_channels(weight, 2 * keys + heads * value_dim)
    return RecurrentLayer(weight, heads, key_dim, value_dim, parts, step)


def selective_scan_layer(weight: mx.array, skip: mx.array, heads: int, key_dim: int, value_dim: int) -> RecurrentLayer:
    """Return a layer with a selective state space (Gu, Dao: Mamba, 2023; Dao, Gu: Mamba-2, 2024).

    Channels are x ``[heads * value_dim]``, and B and C ``[key_dim]`` each, which all heads share. With S the state of
    a head: S = decay * S + gate * x B^T (the gate is the step's length), and the output is S C + ``skip[head]`` * x.
    Raises RecurrentError for a weight of another number of channels.
    """
    values = heads * value_dim
    through = skip.astype(mx.float32)[:, None]

    def parts(x: mx.array) -> Arrays:
        value, entrance, exit_ = mx.split(x, [values, values + key_dim], axis=-1)
        wide = (*x.shape[:2], 1, 1, key_dim)
        return value.reshape(*x.shape[:2], heads, value_dim, 1), entrance.reshape(wide), exit_.reshape(wide)

    def step(state: mx.array, token: Arrays, decay: mx.array, gate: mx.array) -> tuple[mx.array, mx.array]:
        value, entrance, exit_ = token
        state = state * decay + (value * gate) * entrance
        return state, (state * exit_).sum(axis=-1) + through * value.squeeze(-1)

    _check_channels(weight, values + 2 * key_dim)
    return RecurrentLayer(weight, heads, key_dim, value_dim, parts, step)


def run_layer(
    layer: RecurrentLayer, inputs: mx.array, decay: mx.array, gate: mx.array, cache: RecurrentCache
) -> mx.array:
    """Take one chunk, and return its outputs ``[rows, tokens, heads, value_dim]`` in the dtype of the inputs.

    ``inputs`` is ``[rows, tokens, channels]``; ``decay`` and ``gate`` are ``[rows, tokens, heads]``. At padding, which
    may hold anything, the state stays and the output is 0. Everything is evaluated before the cache changes.
    Raises RecurrentError for arrays that do not fit the layer or the cache.
    """
    _check_chunk(layer, inputs, decay, gate, cache)
    rows, tokens, channels = inputs.shape
    mask = cache.make_mask(tokens)
    conv_state, state = cache.conv_state, cache.state
    if conv_state is None or state is None:
        conv_state = mx.zeros((rows, layer.weight.shape[1] - 1, channels), inputs.dtype)
        state = mx.zeros((rows, layer.heads, layer.value_dim, layer.key_dim), mx.float32)
    convolved, conv_state = causal_convolution(
        inputs, layer.weight, conv_state, mask, cache.convolution_lengths(tokens)
    )
    outputs, state = _scan(layer, convolved, decay, gate, state, mask)
    result = outputs.astype(inputs.dtype)
    mx.eval(result, conv_state, state)
    cache.update(conv_state, state, tokens)
    return result


def _scan(
    layer: RecurrentLayer, x: mx.array, decay: mx.array, gate: mx.array, state: mx.array, mask: mx.array | None
) -> tuple[mx.array, mx.array]:
    """Go through the columns of a chunk; returns outputs ``[rows, tokens, heads, value_dim]`` and the new state."""
    tokens = x.shape[1]
    arrays = [*layer.parts(x.astype(mx.float32)), *(part.astype(mx.float32)[..., None, None] for part in (decay, gate))]
    columns = zip(*(mx.split(array, tokens, axis=1) for array in arrays), strict=True)
    real = [None] * tokens if mask is None else mx.split(mask[..., None, None, None], tokens, axis=1)
    state = state[:, None]
    outputs = []
    for (*token, shrink, open_), is_token in zip(columns, real, strict=True):
        after, output = layer.step(state, tuple(token), shrink, open_)
        # A choice, not a product with 0 or 1: neither decay nor gate of a padding may touch the state.
        state = after if is_token is None else mx.where(is_token, after, state)
        outputs.append(output)
    result = mx.concatenate(outputs, axis=1)
    if mask is not None:
        result = mx.where(mask[..., None, None], result, 0)
    return result, state.squeeze(1)


def rollback(
    layer: RecurrentLayer,
    cache: RecurrentCache,
    before: RecurrentCache,
    block: tuple[mx.array, mx.array, mx.array],
    keep: Sequence[int],
) -> None:
    """Keep the first ``keep[b]`` tokens of a block that was written since ``before``, a copy of the cache.

    Restores the copy and takes the block (inputs, decay, gate) again, with what is not kept as right padding.
    Raises PendingPrefillError in an open prefill, RecurrentError for a ``keep`` that does not fit the block.
    """
    rows, tokens = block[0].shape[:2]
    kept = checked_counts("kept tokens", keep, rows)
    if max(kept, default=0) > tokens:
        raise RecurrentError(f"kept tokens {kept} of a block of {tokens}")
    if before.padding is not None or cache.padding is not None:
        raise PendingPrefillError("a padded prefill is open; call finalize_prefill first")
    again = before.copy()
    again.prepare_prefill(kept)
    run_layer(layer, *block, again)
    again.finalize_prefill()
    cache.restore(again)


def _check_channels(weight: mx.array, channels: int) -> None:
    if weight.ndim != 2 or weight.shape[0] != channels:
        raise RecurrentError(f"a weight of shape {weight.shape} where [{channels}, kernel] is needed")


def _check_chunk(
    layer: RecurrentLayer, inputs: mx.array, decay: mx.array, gate: mx.array, cache: RecurrentCache
) -> None:
    rows, channels = cache.batch_size, layer.weight.shape[0]
    if inputs.ndim != 3 or inputs.shape[0] != rows or inputs.shape[2] != channels or inputs.shape[1] < 1:
        raise RecurrentError(f"inputs of shape {inputs.shape} where [{rows}, tokens, {channels}] is needed")
    wanted = (rows, inputs.shape[1], layer.heads)
    if tuple(decay.shape) != wanted or tuple(gate.shape) != wanted:
        raise RecurrentError(f"decay {decay.shape} and gate {gate.shape} where {wanted} is needed")
    if cache.conv_state is not None and cache.conv_state.dtype != inputs.dtype:
        raise RecurrentError(f"inputs are {inputs.dtype}, those of earlier chunks were {cache.conv_state.dtype}")
