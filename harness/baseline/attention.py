"""Attention for one query, in float64, over tokens that are known to be visible."""

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
