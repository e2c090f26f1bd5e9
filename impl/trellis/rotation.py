"""Random Hadamard rotations: a matrix whose entries look normal, whatever they looked like before.

The incoherence processing of "QuIP#", arXiv 2402.04396, and of QTIP: signs at random, then a Hadamard matrix over the
orthonormal 2 ** n points. Dimensions of a model are often no powers of two, so it is blocks of neighboring entries that
are rotated, of the largest power of two that divides the dimension: 4096 whole, 11008 in blocks of 256, 896 in blocks
of 128. Even 32 spread an outlier over many codewords.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

from impl.trellis.errors import TrellisFormatError

LEAST_BLOCK: Final = 32
# What MLX's kernel on GPUs takes.
MOST_BLOCK: Final = 8192


def rotation_block(size: int) -> int:
    """Return the largest power of two from 32 to 8192 that divides `size`; raises TrellisFormatError without one."""
    block = min(size & -size, MOST_BLOCK)
    if block < LEAST_BLOCK:
        raise TrellisFormatError(
            f"{size} entries can't be rotated in blocks of {LEAST_BLOCK}; pad them, or use rotate_both_sides=False"
        )
    return block


def random_signs(size: int, seed: int) -> mx.array:
    """Return int8 [size] of 1 and -1, the same for the same seed."""
    draws = mx.random.bernoulli(0.5, (size,), mx.random.key(seed))
    return (2 * draws.astype(mx.int8) - 1).astype(mx.int8)


def rotate(numbers: mx.array, signs: mx.array) -> mx.array:
    """Return float32 numbers [..., size] times signs [size], then rotated block by block."""
    return _hadamard(numbers.astype(mx.float32) * signs.astype(mx.float32))


def rotate_back(numbers: mx.array, signs: mx.array) -> mx.array:
    """Undo `rotate`: rotate float32 numbers [..., size] block by block, then multiply by signs [size]."""
    return _hadamard(numbers.astype(mx.float32)) * signs.astype(mx.float32)


def _hadamard(numbers: mx.array) -> mx.array:
    # Symmetric and orthonormal, so it is its own inverse.
    size = numbers.shape[-1]
    return mx.hadamard_transform(numbers.reshape(-1, rotation_block(size))).reshape(numbers.shape)
