"""Encoding on a trellis, naively: the least error that any tail-biting path has, by trying every way to begin and end.

Dynamic programming over contexts (what a state hands on to the next: all but its oldest symbol), once for every context
that a path may begin and end with, in float64. Only for small states: it is there to judge quick searches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.baseline.trellis import codewords

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Stated by QTIP (arXiv 2406.11235), measured again: mean squared error of the best scalar codebook of 2 ** bits values
# (Lloyd-Max) for normal numbers of variance 1. A trellis that is worse has no reason to be.
SCALAR_ERROR = {1: 0.3634, 2: 0.1179, 3: 0.0347, 4: 0.00954}


def error_limit(bits: int) -> float:
    """Return the rate-distortion limit 4 ** -bits: no code has a smaller mean error on normal numbers of variance 1."""
    return 4.0**-bits


def codebook_rms(codebook: str, state_bits: int) -> float:
    """Return the root mean square of the values of all states."""
    values = codewords(np.arange(1 << state_bits, dtype=np.uint32), codebook).astype(np.float64)
    return float(np.sqrt(np.mean(values * values)))


def least_error(numbers: NDArray[np.floating], table: NDArray[np.float32], bits: int) -> float:
    """Return the least sum of squared errors of a tail-biting path for `numbers` [block] over `table` [2^state_bits].

    state[t] = (state[t - 1] * 2^bits + symbol[t]) mod 2^state_bits, and state[0] follows state[block - 1].
    """
    symbols = 1 << bits
    contexts = len(table) // symbols
    # A state is its oldest symbol, then its context; the state before it has as context what this one has highest.
    state = np.arange(len(table)).reshape(symbols, contexts)
    value = table.astype(np.float64)[state]
    metric = np.where(np.eye(contexts, dtype=bool), 0.0, np.inf)
    for number in numbers.astype(np.float64):
        metric = (metric[:, state >> bits] + (value - number) ** 2).min(axis=1)
    return float(metric.diagonal().min())
