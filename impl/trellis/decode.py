"""Decoding by plain MLX operations: a window is a shift and a mask of two neighboring words."""

from __future__ import annotations

import mlx.core as mx

from impl.trellis.codebooks import codeword_table
from impl.trellis.errors import TrellisShapeError
from impl.trellis.layout import WORD_BITS, TrellisFormat, split_blocks


def decode_states(codes: mx.array, layout: TrellisFormat) -> mx.array:
    """Return the uint32 states [rows, columns] of flat `codes`.

    Raises TrellisShapeError when the codes do not belong to the format.
    """
    words = split_blocks(codes, layout)
    first_bit = (layout.block - 1 - mx.arange(layout.block, dtype=mx.uint32)) * layout.bits
    index, shift = first_bit // WORD_BITS, first_bit % WORD_BITS
    # A window is shorter than a word, so it ends in the word after the one it starts in; after the last comes word 0.
    # In 64 bits there is no shift by the whole width of a word, which hardware does each in its own way.
    here = mx.take(words, index, axis=-1).astype(mx.uint64)
    after = mx.take(words, (index + 1) % layout.block_words, axis=-1).astype(mx.uint64)
    windows = ((here | (after << WORD_BITS)) >> shift) & ((1 << layout.state_bits) - 1)
    return windows.astype(mx.uint32).reshape(layout.rows, layout.columns)


def decode(codes: mx.array, scales: mx.array, layout: TrellisFormat) -> mx.array:
    """Return the float32 matrix [rows, columns] of flat `codes`, with one scale (float32) a row.

    The codeword is rounded to float32 first, then its product with the scale: the order of the kernels.
    Raises TrellisShapeError when codes or scales do not belong to the format.
    """
    if scales.shape != (layout.rows,) or scales.dtype != mx.float32:
        raise TrellisShapeError(
            f"scales are {scales.dtype} {list(scales.shape)}; {mx.float32} {[layout.rows]} is needed"
        )
    table = codeword_table(layout.codebook, layout.state_bits)
    return table[decode_states(codes, layout)] * scales[:, None]
