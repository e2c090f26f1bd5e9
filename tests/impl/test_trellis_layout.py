"""Bit strings, words and layouts: round trips, the order of bits, refusals."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.trellis.errors import OddBlocksError, TrellisFormatError, TrellisShapeError, UnevenColumnsError
from impl.trellis.layout import TrellisFormat, join_blocks, pack_symbols, split_blocks, unpack_symbols


def layout(**changes: Any) -> TrellisFormat:
    return TrellisFormat(**{"rows": 3, "columns": 512, "bits": 3, "state_bits": 12, **changes})


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.sampled_from((32, 64, 256)), st.integers(0, 1000))
def test_symbols_survive_packing(bits: int, block: int, seed: int) -> None:
    symbols = mx.array(np.random.default_rng(seed).integers(0, 1 << bits, (2, 3, block), np.uint32))
    words = pack_symbols(symbols, bits)
    assert words.shape == (2, 3, block * bits // 32)
    assert words.dtype == mx.uint32
    assert mx.array_equal(unpack_symbols(words, bits), symbols)


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_last_column_is_coded_first_and_lowest(bits: int) -> None:
    symbols = np.zeros(256, np.uint32)
    symbols[-1] = 1
    assert pack_symbols(mx.array(symbols), bits).tolist() == [1] + [0] * (8 * bits - 1)
    symbols = np.zeros(256, np.uint32)
    symbols[0] = 1 << (bits - 1)
    assert pack_symbols(mx.array(symbols), bits).tolist() == [0] * (8 * bits - 1) + [1 << 31]


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 512), (3, 512), (5, 2048)])
def test_blocks_survive_a_layout(rows: int, columns: int, *, interleave: bool) -> None:
    form = layout(rows=rows, columns=columns, interleave=interleave)
    blocks = mx.arange(form.words, dtype=mx.uint32).reshape(form.rows, form.blocks, form.block_words)
    codes = join_blocks(blocks, form)
    assert codes.shape == (form.words,)
    assert mx.array_equal(split_blocks(codes, form), blocks)


def test_interleaved_blocks_alternate_row_by_row() -> None:
    form = layout(rows=2, columns=1024, interleave=True)
    names = mx.arange(8, dtype=mx.uint32).reshape(2, 4, 1) * mx.ones((1, 1, form.block_words), mx.uint32)
    # Row r has blocks 4r..4r+3: the first pair of both rows, then the second.
    assert join_blocks(names, form)[:: form.block_words].tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_sizes() -> None:
    form = layout(rows=5, columns=1024, bits=3)
    assert (form.blocks, form.block_words, form.words) == (4, 24, 480)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"columns": 768, "interleave": True}, OddBlocksError, r"odd number of blocks \(3\).*1024.*interleave=False"),
        ({"columns": 500}, UnevenColumnsError, r"columns=500 is not a multiple of block=256.*to 512 columns"),
        ({"columns": 0}, UnevenColumnsError, "to 256 columns"),
        ({"rows": 0}, TrellisFormatError, "rows=0"),
        ({"bits": 0}, TrellisFormatError, "bits=0 is not supported; use 1 to 8"),
        ({"bits": 9}, TrellisFormatError, "bits=9"),
        ({"state_bits": 17}, TrellisFormatError, "use 3 to 16"),
        ({"bits": 4, "state_bits": 3}, TrellisFormatError, "use 4 to 16"),
        ({"block": 20}, TrellisFormatError, "does not fill whole 32-bit words; use a multiple of 32"),
        ({"codebook": "lut"}, TrellisFormatError, "use one of"),
    ],
)
def test_a_format_that_can_not_be_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        layout(**changes)


def test_arrays_that_do_not_belong_to_the_format_are_refused() -> None:
    form = layout()
    with pytest.raises(TrellisShapeError, match=r"codes are .*uint32 \[143\]; .*uint32 \[144\] is needed"):
        split_blocks(mx.zeros(143, mx.uint32), form)
    with pytest.raises(TrellisShapeError, match="int32"):
        split_blocks(mx.zeros(144, mx.int32), form)
    with pytest.raises(TrellisShapeError, match=r"blocks are .* \[3, 2, 24\] is needed"):
        join_blocks(mx.zeros((2, 3, 24), mx.uint32), form)
    with pytest.raises(TrellisShapeError, match="convert them to uint32"):
        pack_symbols(mx.zeros(256, mx.int32), 3)
    with pytest.raises(TrellisFormatError, match="whole 32-bit words"):
        pack_symbols(mx.zeros(20, mx.uint32), 3)
    with pytest.raises(TrellisFormatError, match="whole number of symbols"):
        unpack_symbols(mx.zeros(8, mx.uint32), 3)
