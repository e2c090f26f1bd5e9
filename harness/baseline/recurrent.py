"""A recurrent layer for one row alone, token by token: what any batch, padding and chunking must amount to.

Formulas: gated delta rule from Yang, Kautz, Hatamizadeh (Gated Delta Networks, 2024); selective scan from Gu, Dao
(Mamba, 2023), with one decay a head as in Mamba-2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """`conv` [channels, kernel] and `skip` [heads]; `name` is gated-delta or ssm.

    `absolute`: every product and difference of the layer with its absolute value, which bounds what any rounding
    error is relative to.
    """

    name: str
    heads: int
    key_dim: int
    value_dim: int
    conv: Array
    skip: Array
    absolute: bool = False


@dataclass(frozen=True)
class Token:
    """One token's inputs [channels], decay [heads] and gate [heads]."""

    inputs: Array
    decay: Array
    gate: Array


@dataclass
class Row:
    """One row: its tokens so far, the inputs that the next convolution still needs, and one state a head."""

    layer: Layer
    tokens: list[Token] = field(default_factory=list)
    window: list[Array] = field(default_factory=list)
    states: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with zeros."""
        self.restart()

    def restart(self) -> None:
        """Forget every token."""
        channels, kernel = self.layer.conv.shape
        self.tokens = []
        self.window = [np.zeros(channels) for _ in range(kernel - 1)]
        self.states = [np.zeros((self.layer.value_dim, self.layer.key_dim)) for _ in range(self.layer.heads)]

    def push(self, token: Token) -> Array:
        """Take one token; returns its output [heads, value_dim]."""
        layer = self.layer
        inputs = np.abs(token.inputs) if layer.absolute else token.inputs
        seen = [*self.window, inputs]
        convolved = sum((seen[tap] * layer.conv[:, tap] for tap in range(len(seen))), np.zeros_like(inputs))
        self.window = seen[1:]
        self.tokens.append(token)
        step = gated_delta if layer.name == "gated-delta" else selective_scan
        outputs = []
        for head in range(layer.heads):
            decay, gate = float(token.decay[head]), float(token.gate[head])
            self.states[head], output = step(layer, self.states[head], convolved, head, decay, gate)
            outputs.append(output)
        return np.stack(outputs)

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens: the others never happened."""
        kept = self.tokens[:length]
        self.restart()
        for token in kept:
            self.push(token)

    def conv_state(self) -> Array:
        """Return [kernel - 1, channels]."""
        return np.array(self.window).reshape(len(self.window), self.layer.conv.shape[0])

    def state(self) -> Array:
        """Return [heads, value_dim, key_dim]."""
        return np.stack(self.states)


def gated_delta(layer: Layer, state: Array, x: Array, head: int, decay: float, gate: float) -> tuple[Array, Array]:
    """S = decay S; S = S + gate (value - S key) key^T; output S query."""
    keys = layer.heads * layer.key_dim
    query = x[head * layer.key_dim :][: layer.key_dim]
    key = x[keys + head * layer.key_dim :][: layer.key_dim]
    value = x[2 * keys + head * layer.value_dim :][: layer.value_dim]
    state = decay * state
    recalled = state @ key
    change = gate * (value + recalled if layer.absolute else value - recalled)
    state = state + np.outer(change, key)
    return state, state @ query


def selective_scan(layer: Layer, state: Array, x: Array, head: int, decay: float, gate: float) -> tuple[Array, Array]:
    """S = decay S + gate x B^T; output S C + skip x."""
    values = layer.heads * layer.value_dim
    value = x[head * layer.value_dim :][: layer.value_dim]
    entrance, exit_ = x[values:][: layer.key_dim], x[values + layer.key_dim :][: layer.key_dim]
    state = decay * state + gate * np.outer(value, entrance)
    return state, state @ exit_ + layer.skip[head] * value


def magnitudes(layer: Layer) -> Layer:
    """Return the layer that computes with absolute values."""
    fields: dict[str, Any] = {**vars(layer), "conv": np.abs(layer.conv), "skip": np.abs(layer.skip), "absolute": True}
    return Layer(**fields)


def roundings(layer: Layer, tokens: int) -> int:
    """Bound how many roundings any one term of a state or an output has met after `tokens` tokens.

    A term is a product of inputs, weights, decays and gates. Convolutions round each of their sums kernel + 1 times,
    and a token puts at most three convolved numbers into a term (key twice and value; the query is counted below). A
    step adds one rounding for the decay, key_dim + 1 for what is recalled, and one each for the difference, the gate,
    the product with the key and the addition: key_dim + 6. Decays that are made as exp(-sum of rate * gate) over a
    chunk, as chunked scans do, have a relative error of at most the sum's own, in which `tokens` terms not above 1 are
    added, tokens u a token, and 16 u for making each of them by logarithm, softplus and exponential. The output adds
    a convolved number, key_dim products and their sum, the skipped value and the last rounding.
    """
    kernel = int(layer.conv.shape[1])
    token = 3 * (kernel + 2) + layer.key_dim + 6 + 16 + tokens
    return tokens * token + (kernel + 2) + layer.key_dim + 4
