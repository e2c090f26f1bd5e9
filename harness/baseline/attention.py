"""Attention in float64: of one query over tokens that are known to be visible, and of a head with a mask."""

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
    queries: Array, keys: Array, values: Array, scale: float, sees: NDArray[np.bool_], sink: float | None = None
) -> tuple[Array, Array]:
    """Softmax attention of the queries of one head, `queries` [queries, head_dim].

    `sees` [queries, tokens] is True where a query sees a token. `sink` is the logit of one more token that brings no
    value. Returns the output [queries, value_dim] and the weights [queries, tokens]; both are 0 for a query that
    sees nothing.
    """
    scores = np.where(sees, queries @ keys.T * scale, -np.inf)
    if sink is not None:
        scores = np.concatenate([scores, np.full((len(queries), 1), sink)], axis=1)
    largest = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    weights = (weights / np.where(total > 0, total, 1.0))[:, : len(keys)]
    return weights @ values, weights
