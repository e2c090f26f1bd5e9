"""The trellis format, naively: every bit of every window is picked from the circular bit string of its block.

Bitshift trellis codes and the codebooks 1MAD, 2MAD and 3INST: Tseng, Sun, Hou, De Sa, "QTIP: Quantization with
Trellises and Incoherence Processing", arXiv 2406.11235. MUL1 and MCG are the multipliers of EXL3.

Words used here: a block holds `block` weights of one row in `block * bits` bits; its bit string is circular; the
window of a column is the `state_bits` bits that select its codeword.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BITS = 32

# The standard deviation of a sum of four uniform bytes is sqrt(21845); the format fixes it to this float32.
SIGMA = np.float32(147.800537109375)
INVERSE_SIGMA = np.float32(1) / SIGMA

BYTE_SUM_CODEBOOKS = ("1mad", "2mad", "mul1")
HALF_PAIR_CODEBOOKS = ("3inst", "mcg")
CODEBOOKS = (*BYTE_SUM_CODEBOOKS, *HALF_PAIR_CODEBOOKS, "random")


def pack(symbols: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Pack symbols [..., block] of `bits` bits into words [..., block * bits / 32].

    Bit p of the string is bit p mod 32 of word p div 32. The last column comes first: the symbol of column t lies at
    bits [(block - 1 - t) * bits, + bits), so that each window is one run of bits with its newest symbol lowest.
    """
    block = symbols.shape[-1]
    string = np.zeros((*symbols.shape[:-1], block * bits), np.uint32)
    first = (block - 1 - np.arange(block)) * bits
    for i in range(bits):
        string[..., first + i] = (symbols >> np.uint32(i)) & 1
    words = np.zeros((*symbols.shape[:-1], block * bits // WORD_BITS), np.uint32)
    for i in range(WORD_BITS):
        words |= string[..., i::WORD_BITS] << np.uint32(i)
    return words


def bit_string(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the bits [..., 32 * words], each 0 or 1, of words [..., words], least significant bit first."""
    string = np.zeros((*words.shape[:-1], words.shape[-1] * WORD_BITS), np.uint32)
    for i in range(WORD_BITS):
        string[..., i::WORD_BITS] = (words >> np.uint32(i)) & 1
    return string


def states(words: NDArray[np.uint32], bits: int, state_bits: int) -> NDArray[np.uint32]:
    """Return the state of every column, [..., block], of blocks given as words [..., block * bits / 32].

    state[t] = sum over i < state_bits of 2^i * bit[((block - 1 - t) * bits + i) mod (block * bits)].
    """
    string = bit_string(words)
    length = string.shape[-1]
    block = length // bits
    first = (block - 1 - np.arange(block)) * bits
    found = np.zeros((*words.shape[:-1], block), np.uint32)
    for i in range(state_bits):
        found |= string[..., (first + i) % length] << np.uint32(i)
    return found


def wrapping_columns(bits: int, state_bits: int) -> int:
    """Count the columns, at the start of every block, whose window runs past the last bit and on from the first."""
    return -(-state_bits // bits) - 1


def levels(state: NDArray[np.uint32], codebook: str) -> NDArray[np.int32]:
    """Return the whole number that a byte-sum codebook (`1mad`, `2mad`, `mul1`) gives each state: -510 to 510."""
    v = state.astype(np.uint32)
    if codebook == "1mad":
        v = v * np.uint32(34038481) + np.uint32(76625530)
    elif codebook == "2mad":
        v = v * np.uint32(264435761) + np.uint32(1013904223)
        v = v + ((v.astype(np.uint64) * np.uint64(1664525)) >> np.uint64(32)).astype(np.uint32)
    else:
        v = v * np.uint32(0x83DCD12D)
    byte_sum: NDArray[np.uint32] = (v & 255) + ((v >> 8) & 255) + ((v >> 16) & 255) + (v >> 24)
    return np.subtract(byte_sum, 510, dtype=np.int32)


def codewords(state: NDArray[np.uint32], codebook: str) -> NDArray[np.float32]:
    """Return the float32 value of each state.

    Byte-sum codebooks: the level as float32, times float32(1 / 147.800537109375), rounded once. `3inst` and `mcg`: the
    float16 sum of two float16 numbers, made of the upper and the lower half of one word. `random`: see below.
    """
    if codebook in BYTE_SUM_CODEBOOKS:
        return levels(state, codebook).astype(np.float32) * INVERSE_SIGMA
    if codebook == "random":
        return _random_codewords(state)
    v = state.astype(np.uint32)
    v = v * np.uint32(89226354) + np.uint32(64248484) if codebook == "3inst" else v * np.uint32(0xCBAC1FED)
    v = (v & np.uint32(0x8FFF8FFF)) ^ np.uint32(0x3B603B60)
    low = (v & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)
    high = (v >> np.uint32(16)).astype(np.uint16).view(np.float16)
    return (low + high).astype(np.float32)


def _random_codewords(state: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return sums of 16 hashed bytes as nearly normal numbers: any machine can make the same ones.

    Outputs 2 * state + 1 and 2 * state + 2 of SplitMix64 (Steele, Lea, Flood 2014) from seed 0 have 8 bytes each; the
    sum less its mean 2040, as float32, times float32(1 / sqrt(16 * 65535 / 12)), rounded once.
    """
    total = np.zeros(state.shape, np.int32)
    for draw in (1, 2):
        z = (2 * state.astype(np.uint64) + np.uint64(draw)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        for byte in range(8):
            total += ((z >> np.uint64(8 * byte)) & np.uint64(255)).astype(np.int32)
    return (total - 2040).astype(np.float32) * np.float32((16 * 65535 / 12) ** -0.5)


def qtip_stream(state: NDArray[np.uint32], bits: int, state_bits: int) -> NDArray[np.uint8]:
    """Return QTIP's stream of blocks of states [..., block]: bytes [..., block * bits / 8], highest bit first.

    All bits of the first state from the highest down, then the newest `bits` of every further state, in the same
    way; the stream ends when it is full, since the last states end with what the first began with.
    """
    block = state.shape[-1]
    first = (state[..., :1] >> np.arange(state_bits - 1, -1, -1, dtype=np.uint32)) & 1
    newest = (state[..., 1:, np.newaxis] >> np.arange(bits - 1, -1, -1, dtype=np.uint32)) & 1
    string = np.concatenate([first, newest.reshape(*state.shape[:-1], -1)], axis=-1)[..., : block * bits]
    return np.packbits(string.astype(np.uint8), axis=-1)


def exl3_words(state: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Return EXL3's words [..., block * bits / 32] of blocks of 16-bit states [..., block].

    Its bit string is read from the highest bit of each word, and bits [t * bits, (t + 1) * bits) are the newest symbol
    of column t: the window [(t + 1) * bits - 16, (t + 1) * bits) is then the state.
    """
    newest = (state[..., np.newaxis] >> np.arange(bits - 1, -1, -1, dtype=np.uint32)) & 1
    string = newest.reshape(*state.shape[:-1], -1, WORD_BITS)
    words = np.zeros(string.shape[:-1], np.uint32)
    for i in range(WORD_BITS):
        words |= string[..., i] << np.uint32(31 - i)
    return words


def lay_out(words: NDArray[np.uint32], *, interleave: bool) -> NDArray[np.uint32]:
    """Put the words [rows, blocks, words] of all blocks into the flat order in which a kernel reads them.

    Plain: [rows][blocks][words]. Interleaved, for an even number of blocks: [blocks / 2][rows][2][words], so that
    the rows of one pair of blocks follow each other.
    """
    if not interleave:
        return words.reshape(-1).copy()
    rows, blocks, count = words.shape
    flat = np.empty((blocks // 2, rows, 2, count), np.uint32)
    for block in range(blocks):
        flat[block // 2, :, block % 2] = words[:, block]
    return flat.reshape(-1)


def split_layout(codes: NDArray[np.uint32], rows: int, blocks: int, *, interleave: bool) -> NDArray[np.uint32]:
    """Return the words [rows, blocks, words] of flat codes: the inverse of `lay_out`."""
    if not interleave:
        return codes.reshape(rows, blocks, -1)
    pairs = codes.reshape(blocks // 2, rows, 2, -1)
    words = np.empty((rows, blocks, pairs.shape[-1]), np.uint32)
    for block in range(blocks):
        words[:, block] = pairs[block // 2, :, block % 2]
    return words


def decode(
    words: NDArray[np.uint32], scales: NDArray[np.float32], bits: int, state_bits: int, codebook: str
) -> NDArray[np.float32]:
    """Return the matrix [rows, columns] of blocks given as words [rows, blocks, words].

    Each weight is its codeword (float32), then times the scale of its row, rounded to float32.
    """
    values = codewords(states(words, bits, state_bits), codebook)
    return values.reshape(len(scales), -1) * scales[:, np.newaxis]


def split_rows(rows: int, splits: int) -> list[range]:
    """Return the rows that each split sums: ceil(rows / splits) a split, then what is left, then none."""
    length = -(-rows // splits)
    return [range(min(split * length, rows), min((split + 1) * length, rows)) for split in range(splits)]


def product(x: NDArray[np.generic], matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return x @ matrix, [batch, columns], in float64, for `x` [batch, rows]."""
    return x.astype(np.float64) @ matrix.astype(np.float64)


def absolute_product(x: NDArray[np.generic], matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of the magnitudes of the terms of `product`, [batch, columns]: what rounding errors scale with."""
    return np.abs(x.astype(np.float64)) @ np.abs(matrix.astype(np.float64))
