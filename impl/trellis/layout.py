"""How a trellis-coded matrix lies in memory: symbols in circular bit strings, bit strings in words, words in layouts.

A block holds `block` columns of one row. The symbol of column t lies at bits [(block - 1 - t) * bits, + bits) of the
block's bit string: in descending order every state is one run of bits, read by a shift and a mask. Bit p of the
string is bit p mod 32 of word p div 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import mlx.core as mx

from impl.trellis.codebooks import check_codebook
from impl.trellis.errors import OddBlocksError, TrellisFormatError, TrellisShapeError, UnevenColumnsError

WORD_BITS: Final = 32
MAX_BITS: Final = 8
MAX_STATE_BITS: Final = 16
BLOCK: Final = 256


@dataclass(frozen=True, slots=True)
class TrellisFormat:
    """The shape and the code of a matrix [rows, columns]; rows are what a product sums over.

    `bits` per weight, `state_bits` per window, `block` weights in a bit string. `interleave` puts the words of two
    neighboring blocks next to each other, row after row. Raises TrellisFormatError, UnevenColumnsError or
    OddBlocksError for a format that can't be.
    """

    rows: int
    columns: int
    bits: int
    state_bits: int
    block: int = BLOCK
    codebook: str = "1mad"
    interleave: bool = False

    def __post_init__(self) -> None:
        """Refuse a format that can't be."""
        check_codebook(self.codebook)
        check_block(self.block, self.bits)
        if self.rows < 1:
            raise TrellisFormatError(f"rows={self.rows}; a matrix has at least one row")
        if not self.bits <= self.state_bits <= MAX_STATE_BITS:
            raise TrellisFormatError(
                f"state_bits={self.state_bits} does not go with bits={self.bits}; use {self.bits} to {MAX_STATE_BITS}"
            )
        if self.columns < 1 or self.columns % self.block:
            fitting = max(-(-self.columns // self.block), 1) * self.block
            raise UnevenColumnsError(
                f"columns={self.columns} is not a multiple of block={self.block}; "
                f"pad the matrix with zeros to {fitting} columns"
            )
        if self.interleave and self.blocks % 2:
            raise OddBlocksError(
                f"columns={self.columns} is an odd number of blocks ({self.blocks}), and an interleaved layout pairs "
                f"them; pad the matrix to {self.columns + self.block} columns, or use interleave=False"
            )

    @property
    def blocks(self) -> int:
        """Blocks in a row."""
        return self.columns // self.block

    @property
    def block_words(self) -> int:
        """Words of 32 bits in a block."""
        return self.block * self.bits // WORD_BITS

    @property
    def words(self) -> int:
        """Words of 32 bits in the matrix."""
        return self.rows * self.blocks * self.block_words


def check_block(block: int, bits: int) -> None:
    """Raise TrellisFormatError unless `block` symbols of `bits` bits fill whole words."""
    if not 1 <= bits <= MAX_BITS:
        raise TrellisFormatError(f"bits={bits} is not supported; use 1 to {MAX_BITS}")
    if block < 1 or block * bits % WORD_BITS:
        raise TrellisFormatError(
            f"block={block} with bits={bits} does not fill whole {WORD_BITS}-bit words; use a multiple of {WORD_BITS}"
        )


def pack_symbols(symbols: mx.array, bits: int) -> mx.array:
    """Pack uint32 symbols [..., block], in the order of columns, into words [..., block * bits / 32].

    Raises TrellisFormatError when they do not fill whole words, TrellisShapeError when they are not uint32.
    """
    block = symbols.shape[-1]
    check_block(block, bits)
    if symbols.dtype != mx.uint32:
        raise TrellisShapeError(f"symbols are {symbols.dtype}; convert them to uint32 first")
    string = (symbols[..., ::-1, None] >> mx.arange(bits, dtype=mx.uint32)) & 1
    in_words = string.reshape(*symbols.shape[:-1], block * bits // WORD_BITS, WORD_BITS)
    return (in_words << mx.arange(WORD_BITS, dtype=mx.uint32)).sum(axis=-1)


def unpack_symbols(words: mx.array, bits: int) -> mx.array:
    """Return the uint32 symbols [..., block], in the order of columns, of words [..., block * bits / 32].

    Raises TrellisFormatError when the words do not hold a whole number of symbols.
    """
    if not 1 <= bits <= MAX_BITS or words.shape[-1] * WORD_BITS % bits:
        raise TrellisFormatError(f"{words.shape[-1]} words do not hold a whole number of symbols of bits={bits}")
    string = (words[..., None] >> mx.arange(WORD_BITS, dtype=mx.uint32)) & 1
    in_symbols = string.reshape(*words.shape[:-1], words.shape[-1] * WORD_BITS // bits, bits)
    return (in_symbols << mx.arange(bits, dtype=mx.uint32)).sum(axis=-1)[..., ::-1]


def join_blocks(words: mx.array, layout: TrellisFormat) -> mx.array:
    """Put the words [rows, blocks, block_words] of all blocks into the flat order of `layout`.

    Plain: [rows][blocks][block_words]. Interleaved: [blocks / 2][rows][2][block_words].
    Raises TrellisShapeError when the shape or type is another.
    """
    shape = (layout.rows, layout.blocks, layout.block_words)
    _check(words, shape, mx.uint32, "blocks")
    if layout.interleave:
        pairs = words.reshape(layout.rows, layout.blocks // 2, 2, layout.block_words)
        words = pairs.transpose(1, 0, 2, 3)
    return words.flatten()


def split_blocks(codes: mx.array, layout: TrellisFormat) -> mx.array:
    """Return the words [rows, blocks, block_words] of all blocks, from the flat `codes` of `layout`.

    Raises TrellisShapeError when there are more or fewer words, or they are not uint32.
    """
    _check(codes, (layout.words,), mx.uint32, "codes")
    if layout.interleave:
        pairs = codes.reshape(layout.blocks // 2, layout.rows, 2, layout.block_words)
        codes = pairs.transpose(1, 0, 2, 3)
    return codes.reshape(layout.rows, layout.blocks, layout.block_words)


def _check(array: mx.array, shape: tuple[int, ...], dtype: mx.Dtype, what: str) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise TrellisShapeError(f"{what} are {array.dtype} {list(array.shape)}; {dtype} {list(shape)} is needed")
