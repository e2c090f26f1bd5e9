"""Answers of kernel cases that no expression gives: plain loops over NumPy arrays."""

from __future__ import annotations

import numpy as np


def collatz(x: np.ndarray) -> np.ndarray:
    """Return how many steps of n -> n / 2 or 3 n + 1 lead from each element to 1."""
    steps = []
    for start in x:
        n, count = int(start), 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        steps.append(count)
    return np.array(steps)


def most_of_block(x: np.ndarray) -> np.ndarray:
    """Return the most steps of any element in each block of 64."""
    return collatz(x).reshape(-1, 64).max(axis=1)
