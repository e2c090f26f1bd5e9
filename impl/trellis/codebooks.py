"""Codebooks of a bitshift trellis: the float32 value that each state stands for, computed or as a table.

1MAD, 2MAD and 3INST are those of "QTIP: Quantization with Trellises and Incoherence Processing", arXiv 2406.11235;
MUL1 and MCG keep their shapes with the multipliers of EXL3. These compute from the state alone, so a kernel needs no
table. `random` is near to a table of independent normal numbers, and is one of sums of hashed bytes, so that every
machine has the same. `register_table` adds any other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import mlx.core as mx
import numpy as np

from impl.trellis.errors import TrellisFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

# float32(1 / 147.800537109375), written exactly: a sum of four uniform bytes has the standard deviation sqrt(21845).
INVERSE_SIGMA: Final = float.fromhex("0x1.bb688ep-8")
MAX_LEVEL: Final = 510
# float32(1 / sqrt(16 * 65535 / 12)).
RANDOM_FACTOR: Final = float.fromhex("0x1.bb688c0000000p-9")


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


def _wide(constant: int) -> mx.array:
    # MLX takes Python's integers up to 2 ** 63 - 1 only.
    return mx.array(np.array(constant, np.uint64))


def _values_random(states: mx.array) -> mx.array:
    """Sum the 16 bytes of two hashes of the state (SplitMix64 by Steele, Lea, Flood), less their mean.

    A uniform byte has the variance (256 ** 2 - 1) / 12; the factor is float32(1 / sqrt(16 * 65535 / 12)).
    """
    total = mx.zeros(states.shape, mx.uint32)
    for draw in (0, 1):
        word = (states.astype(mx.uint64) * 2 + (draw + 1)) * _wide(0x9E3779B97F4A7C15)
        word = (word ^ (word >> 30)) * _wide(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> 27)) * _wide(0x94D049BB133111EB)
        word = word ^ (word >> 31)
        for byte in range(8):
            total = total + ((word >> (8 * byte)) & 255).astype(mx.uint32)
    return (total.astype(mx.int32) - 2040).astype(mx.float32) * RANDOM_FACTOR


LEVELS: Final[dict[str, Callable[[mx.array], mx.array]]] = {
    "1mad": _levels_1mad,
    "2mad": _levels_2mad,
    "mul1": _levels_mul1,
}
VALUES: Final[dict[str, Callable[[mx.array], mx.array]]] = {
    "3inst": _values_3inst,
    "mcg": _values_mcg,
    "random": _values_random,
}
CODEBOOKS: Final = (*LEVELS, *VALUES)
_TABLES: Final[dict[str, mx.array]] = {}


def register_table(name: str, table: mx.array) -> None:
    """Add a codebook of your own under `name`: float32 values of 2 ** state_bits states; smaller states use its start.

    Raises TrellisFormatError for a name that is taken by other values, or a table of another length or type.
    """
    size = table.size
    if table.ndim != 1 or table.dtype != mx.float32 or size < 2 or size & (size - 1):
        raise TrellisFormatError(f"a table is float32 [2 ** state_bits], not {table.dtype} {list(table.shape)}")
    if not mx.isfinite(table).all().item():
        raise TrellisFormatError(f"table {name!r} has values that are not finite")
    known = _TABLES.get(name)
    same = known is not None and known.shape == table.shape and mx.array_equal(known, table).item()
    if name in CODEBOOKS or (known is not None and not same):
        raise TrellisFormatError(f"codebook {name!r} exists with other values; choose another name")
    if known is None:
        _TABLES[name] = mx.array(table)


def check_codebook(name: str) -> None:
    """Raise TrellisFormatError unless there is a codebook called `name`."""
    if name not in CODEBOOKS and name not in _TABLES:
        names = ", ".join((*CODEBOOKS, *_TABLES))
        raise TrellisFormatError(f"codebook {name!r} does not exist; use one of {names}")


def codewords(states: mx.array, codebook: str) -> mx.array:
    """Return the float32 value of each state (uint32, any shape).

    A byte-sum codebook gives a whole number from -510 to 510, which one float32 multiplication scales to unit
    deviation. Raises TrellisFormatError for an unknown codebook.
    """
    check_codebook(codebook)
    if codebook in _TABLES:
        return _TABLES[codebook][states]
    if codebook in LEVELS:
        return LEVELS[codebook](states).astype(mx.float32) * INVERSE_SIGMA
    return VALUES[codebook](states)


@lru_cache(maxsize=32)
def codeword_table(codebook: str, state_bits: int) -> mx.array:
    """Return the float32 values of all states, [2 ** state_bits]; made once and kept.

    Raises TrellisFormatError for an unknown codebook, or a registered table of fewer states.
    """
    if codebook in _TABLES and _TABLES[codebook].size < 1 << state_bits:
        size = _TABLES[codebook].size
        raise TrellisFormatError(f"table {codebook!r} has {size} values; states of {state_bits} bits need more")
    table = codewords(mx.arange(1 << state_bits, dtype=mx.uint32), codebook)
    mx.eval(table)
    return table


@lru_cache(maxsize=32)
def codebook_rms(codebook: str, state_bits: int) -> float:
    """Return the root mean square of all values: gains are counted from a codebook scaled to 1.

    Raises TrellisFormatError for an unknown codebook.
    """
    # In float64: a last bit here would move every scale.
    values = np.array(codeword_table(codebook, state_bits), np.float64)
    return float(np.sqrt(np.mean(values * values)))
