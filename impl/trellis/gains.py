"""Gains: how much wider than its numbers a codebook should be, found on a sample.

The alphabets of byte sums and of pairs of halves are short-tailed, so they are best spread out, the more bits the more:
1MAD with 12 bits a state by 1.04, 1.12, 1.16 at 2, 3 and 4 bits a weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from impl.trellis.codebooks import codebook_rms, codeword_table
from impl.trellis.viterbi import encode_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

GRID: Final = (0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25)
SAMPLE_BLOCKS: Final = 256


def error_by_gain(
    numbers: mx.array, codebook: str, bits: int, state_bits: int, gains: Sequence[float] = GRID
) -> list[float]:
    """Return the mean squared error at every gain for numbers float32 [blocks, block] whose root mean square is 1."""
    table, rms = codeword_table(codebook, state_bits), codebook_rms(codebook, state_bits)
    costs = [encode_blocks(numbers, table * (gain / rms), bits).costs for gain in gains]
    return [float(np.mean(np.array(cost, np.float64))) / numbers.shape[1] for cost in costs]


def best_gain(numbers: mx.array, codebook: str, bits: int, state_bits: int, gains: Sequence[float] = GRID) -> float:
    """Return the gain with the least error: the lowest point of the parabola around the best of `gains`.

    `numbers`: float32 [blocks, block] whose root mean square is 1; no more than `SAMPLE_BLOCKS` of them are looked at,
    evenly spread.
    """
    stride = -(-numbers.shape[0] // SAMPLE_BLOCKS)
    errors = error_by_gain(numbers[::stride], codebook, bits, state_bits, gains)
    place = int(np.argmin(errors))
    if not 0 < place < len(gains) - 1:
        return float(gains[place])
    near = slice(place - 1, place + 2)
    curve, slope, _ = np.polyfit(gains[near], errors[near], 2)
    return float(-slope / (2 * curve)) if curve > 0 else float(gains[place])
