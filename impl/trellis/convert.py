"""Trellis-coded blocks in the orders of two other programs, QTIP and EXL3, and back.

All three hold the same path; they differ in which bit comes first. Both conversions are of the words of single blocks:
how a program lays its blocks out (tiles of 16 x 16 in both) is another matter.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

from impl.trellis.errors import TrellisFormatError, TrellisShapeError
from impl.trellis.layout import MAX_BITS, WORD_BITS

EXL3_STATE_BITS: Final = 16


def to_qtip(words: mx.array, bits: int, state_bits: int) -> mx.array:
    """Return QTIP's stream, uint8 [..., bytes] with the highest bit first, of words uint32 [..., block * bits / 32].

    That stream begins with all bits of the first state, then come `bits` a column, and of the last ones those are left
    out that the beginning has already: ours read from its highest bit down, turned left by state_bits - bits.
    Raises TrellisShapeError for words that are no block.
    """
    return _bytes(mx.roll(_string(words, bits)[..., ::-1], state_bits - bits, -1))


def from_qtip(stream: mx.array, bits: int, state_bits: int) -> mx.array:
    """Return words uint32 [..., bytes / 4] of QTIP's stream, uint8 [..., bytes]: the inverse of `to_qtip`."""
    if stream.dtype != mx.uint8 or not stream.shape or stream.shape[-1] % 4:
        raise TrellisShapeError(f"a stream is uint8 [..., 4 * words], not {stream.dtype} {list(stream.shape)}")
    string = ((stream[..., None] >> mx.arange(7, -1, -1, dtype=mx.uint8)) & 1).reshape(*stream.shape[:-1], -1)
    words = _words(mx.roll(string, bits - state_bits, -1)[..., ::-1])
    _string(words, bits)
    return words


def to_exl3(words: mx.array, state_bits: int) -> mx.array:
    """Return EXL3's words, uint32 [..., words], of ours: the same ones, the last first.

    The window of column t there is bits [(t + 1) * bits - 16, (t + 1) * bits) of a circular string that is read from
    the highest bit of each word. Its inverse is itself. Raises TrellisFormatError unless a state has 16 bits, as all
    of EXL3's have, TrellisShapeError for words of another type.
    """
    if state_bits != EXL3_STATE_BITS:
        raise TrellisFormatError(f"state_bits={state_bits}; EXL3 has states of {EXL3_STATE_BITS} bits only")
    if words.dtype != mx.uint32:
        raise TrellisShapeError(f"words are {words.dtype}; uint32 is needed")
    return words[..., ::-1]


from_exl3 = to_exl3


def _string(words: mx.array, bits: int) -> mx.array:
    if words.dtype != mx.uint32 or not words.shape or not 1 <= bits <= MAX_BITS or words.shape[-1] * WORD_BITS % bits:
        raise TrellisShapeError(f"{words.dtype} {list(words.shape)} are no words of blocks with bits={bits}")
    return ((words[..., None] >> mx.arange(WORD_BITS, dtype=mx.uint32)) & 1).reshape(*words.shape[:-1], -1)


def _bytes(string: mx.array) -> mx.array:
    in_bytes = string.reshape(*string.shape[:-1], -1, 8)
    return (in_bytes << mx.arange(7, -1, -1, dtype=mx.uint32)).sum(axis=-1).astype(mx.uint8)


def _words(string: mx.array) -> mx.array:
    in_words = string.astype(mx.uint32).reshape(*string.shape[:-1], -1, WORD_BITS)
    return (in_words << mx.arange(WORD_BITS, dtype=mx.uint32)).sum(axis=-1)
