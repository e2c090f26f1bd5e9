"""What a custom kernel of mlx-lm is compared with: answers in float64, and a bound for each.

u is 2^-24: all inputs are float32. `relative` bounds what is summed of terms of one sign; else the roundings are
counted on the sum of magnitudes, to first order, as `harness.compare.dot_bound` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

UNIT = 2.0**-24
# Absolute error that the specification allows fast::sin and fast::cos in [-pi, pi].
FAST_ANGLE = 2.0**-13


@dataclass(frozen=True)
class Arm:
    """One kernel: the names that MLX knows it by, how to call it, the answers, and what each may be off.

    reference: where the answers come from, in words.
    """

    kernel: str
    place: str
    size: str
    call: Callable[[], list[mx.array]]
    expected: list[Floats]
    limits: list[Floats]
    reference: str
    note: str = ""


def numbers(seed: int, *shape: int) -> Floats:
    """Return normal numbers that float32 holds exactly."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(np.float64)


def single(x: Floats) -> mx.array:
    """Return an array of float32."""
    return mx.array(x.astype(np.float32))


def double(x: Floats) -> mx.array:
    """Return an array of float64."""
    return mx.array(x, dtype=mx.float64)


def answers(*made: Any) -> list[Floats]:
    """Evaluate on the CPU in float64."""
    return [np.array(one, dtype=np.float64) for one in made]


def relative(roundings: float, *expected: Floats) -> list[Floats]:
    """Bound each answer by so many roundings of itself."""
    return [roundings * UNIT * np.abs(one) + 2.0**-126 for one in expected]
