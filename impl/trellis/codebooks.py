"""Codebooks of a bitshift trellis: the float32 value that each state stands for, computed or as a table.

1MAD, 2MAD and 3INST are those of "QTIP: Quantization with Trellises and Incoherence Processing", arXiv 2406.11235;
MUL1 and MCG keep their shapes with the multipliers of EXL3. All compute from the state alone, so a kernel needs no
table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import mlx.core as mx

from impl.trellis.errors import TrellisFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

# float32(1 / 147.800537109375), written exactly: a sum of four uniform bytes has the standard deviation sqrt(21845).
INVERSE_SIGMA: Final = float.fromhex("0x1.bb688ep-8")
MAX_LEVEL: Final = 510


def _byte_sum(word: mx.array) -> mx.array:
    total = (word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + (word >> 24)
    return total.astype(mx.int32) - MAX_LEVEL


def _levels_1mad(states: mx.array) -> mx.array:
    return _byte_sum(states * 34038481 + 76625530)


def _levels_2mad(states: mx.array) -> mx.array:
    word = states * 264435761 + 1013904223
    return _byte_sum(word + ((word.astype(mx.uint64) * 1664525) >> 32).astype(mx.uint32))


def _levels_mul1(states: mx.array) -> mx.array:
    return _byte_sum(states * mx.array(0x83DCD12D, mx.uint32))


def _half_pair(word: mx.array) -> mx.array:
    # Each half keeps its sign, two bits of its exponent and its mantissa: a float16 of magnitude 1/8 to 2.
    word = (word & mx.array(0x8FFF8FFF, mx.uint32)) ^ mx.array(0x3B603B60, mx.uint32)
    low = (word & 0xFFFF).astype(mx.uint16).view(mx.float16)
    high = (word >> 16).astype(mx.uint16).view(mx.float16)
    return (low + high).astype(mx.float32)


def _values_3inst(states: mx.array) -> mx.array:
    return _half_pair(states * 89226354 + 64248484)


def _values_mcg(states: mx.array) -> mx.array:
    return _half_pair(states * mx.array(0xCBAC1FED, mx.uint32))


LEVELS: Final[dict[str, Callable[[mx.array], mx.array]]] = {
    "1mad": _levels_1mad,
    "2mad": _levels_2mad,
    "mul1": _levels_mul1,
}
VALUES: Final[dict[str, Callable[[mx.array], mx.array]]] = {"3inst": _values_3inst, "mcg": _values_mcg}
CODEBOOKS: Final = (*LEVELS, *VALUES)


def check_codebook(name: str) -> None:
    """Raise TrellisFormatError unless there is a codebook called `name`."""
    if name not in CODEBOOKS:
        raise TrellisFormatError(f"codebook {name!r} does not exist; use one of {', '.join(CODEBOOKS)}")


def codewords(states: mx.array, codebook: str) -> mx.array:
    """Return the float32 value of each state (uint32, any shape).

    A byte-sum codebook gives a whole number from -510 to 510, which one float32 multiplication scales to unit
    deviation. Raises TrellisFormatError for an unknown codebook.
    """
    check_codebook(codebook)
    if codebook in LEVELS:
        return LEVELS[codebook](states).astype(mx.float32) * INVERSE_SIGMA
    return VALUES[codebook](states)


@lru_cache(maxsize=32)
def codeword_table(codebook: str, state_bits: int) -> mx.array:
    """Return the float32 values of all states, [2 ** state_bits]; made once and kept.

    Raises TrellisFormatError for an unknown codebook.
    """
    table = codewords(mx.arange(1 << state_bits, dtype=mx.uint32), codebook)
    mx.eval(table)
    return table
