"""Attention written out in float64 NumPy."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

SCALE = 0.125
TOLERANCE = {mx.float32: 2e-5, mx.float16: 6e-3, mx.bfloat16: 5e-2}


def normal(shape: tuple[int, ...], seed: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    """Draw reproducible numbers."""
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def to_float64(x: mx.array) -> np.ndarray:
    """Give the same values to NumPy."""
    return np.array(x.astype(mx.float32), dtype=np.float64)


def dense(
    queries: mx.array, keys: mx.array, values: mx.array, mask: np.ndarray | None, sinks: mx.array | None = None
) -> np.ndarray:
    """Attend to plain keys and values; ``mask`` is broadcast over heads, ``sinks`` are one logit per query head."""
    group = queries.shape[1] // keys.shape[1]
    k, v = (np.repeat(to_float64(x), group, axis=1) for x in (keys, values))
    scores = SCALE * to_float64(queries) @ k.swapaxes(2, 3)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    extra = np.zeros_like(top)
    if sinks is not None:
        logits = to_float64(sinks)[:, None, None]
        top = np.maximum(top, logits)
        extra = np.exp(logits - top)
    weights = np.exp(scores - top)
    result: np.ndarray = (weights / (weights.sum(-1, keepdims=True) + extra)) @ v
    return result
