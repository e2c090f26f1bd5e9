"""Attention in float64: of one query over visible tokens, of a head with a mask; and rotary positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attend(query: Array, keys: Array, values: Array, scale: float) -> tuple[Array, Array]:
    """Softmax attention of one query.

    `query` [head_dim], `keys` [tokens, head_dim], `values` [tokens, value_dim]. Returns the output [value_dim] and
    the weights [tokens].
    """
    scores = keys @ query * scale
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights @ values, weights


def attend_head(
    queries: Array,
    keys: Array,
    values: Array,
    scale: float,
    sees: NDArray[np.bool_],
    sink: float | None = None,
    bias: Array | None = None,
) -> tuple[Array, Array]:
    """Softmax attention of the queries of one head, `queries` [queries, head_dim].

    `sees` [queries, tokens] is True where a query sees a token; `bias`, of the same shape, is added to the scaled
    scores. `sink` is the logit of one more token that brings no
    value. Returns the output [queries, value_dim] and the weights [queries, tokens]; both are 0 for a query that
    sees nothing.
    """
    scores = queries @ keys.T * scale + (0.0 if bias is None else bias)
    scores = np.where(sees, scores, -np.inf)
    if sink is not None:
        scores = np.concatenate([scores, np.full((len(queries), 1), sink)], axis=1)
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    weights = (weights / np.where(total > 0, total, 1.0))[:, : len(keys)]
    return weights @ values, weights


def rotate(x: Array, positions: Array, dims: int, base: float, *, traditional: bool) -> Array:
    """Turn pairs of the first `dims` channels of `x` [tokens, head_dim]: rotary position embedding (Su et al., 2021).

    Pair i turns by positions[token] * base ** (-2 i / dims). It is channels i and i + dims / 2, or 2 i and 2 i + 1 if
    `traditional`. The other channels stay.
    """
    turned = x.copy()
    half = dims // 2
    for i in range(half):
        angle = positions * base ** (-i / half)
        first, second = (2 * i, 2 * i + 1) if traditional else (i, i + half)
        turned[:, first] = x[:, first] * np.cos(angle) - x[:, second] * np.sin(angle)
        turned[:, second] = x[:, first] * np.sin(angle) + x[:, second] * np.cos(angle)
    return turned
