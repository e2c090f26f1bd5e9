"""Conversions against decoders of the other formats, which follow those formats' own definitions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline import trellis as baseline
from impl.trellis.convert import from_exl3, from_qtip, to_exl3, to_qtip
from impl.trellis.errors import TrellisFormatError, TrellisShapeError


def words_of(bits: int, seed: int, blocks: tuple[int, ...] = (2, 3)) -> mx.array:
    return mx.array(np.random.default_rng(seed).integers(0, 1 << 32, (*blocks, 8 * bits), np.uint32))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(4, 16), st.integers(0, 999))
def test_a_shift_register_reads_our_states_from_qtips_stream(bits: int, state_bits: int, seed: int) -> None:
    words = words_of(bits, seed)
    stream = to_qtip(words, bits, state_bits)
    assert stream.dtype == mx.uint8
    # What the end leaves out is at the beginning.
    string = np.unpackbits(np.array(stream), axis=-1)
    string = np.concatenate([string, string[..., : state_bits - bits]], axis=-1)
    states = np.zeros((2, 3, 256), np.int64)
    for column in range(256):
        for bit in range(state_bits):
            states[..., column] = 2 * states[..., column] + string[..., column * bits + bit]
    np.testing.assert_array_equal(states, baseline.states(np.array(words), bits, state_bits))
    assert mx.array_equal(from_qtip(stream, bits, state_bits), words)


@pytest.mark.parametrize("bits", range(1, 9))
def test_funnel_shifts_read_our_states_from_exl3s_words(bits: int) -> None:
    words = words_of(bits, bits)
    theirs = np.array(to_exl3(words, 16)).astype(np.uint64)
    count = theirs.shape[-1]
    for column in range(256):
        end = (column + 1) * bits + 256 * bits
        last = (end - 1) // 32
        pair = (theirs[..., (end - 16) // 32 % count] << np.uint64(32)) | theirs[..., last % count]
        window = (pair >> np.uint64((last + 1) * 32 - end)) & np.uint64(0xFFFF)
        np.testing.assert_array_equal(window, baseline.states(np.array(words), bits, 16)[..., column])
    assert mx.array_equal(from_exl3(to_exl3(words, 16), 16), words)


def test_golden_block() -> None:
    column = np.arange(256, dtype=np.uint32)
    words = mx.array(baseline.pack(((5 * column + 1) % 8 + column // 7) % 8, 3))
    # The first state is 3265, 110011000001, and then come the symbols of columns 1 and 2, 110 and 011.
    string = "".join(f"{byte:08b}" for byte in np.array(to_qtip(words, 3, 12))[:3])
    assert string.startswith("110011000001" + "110" + "011")
    assert [f"{word:08x}" for word in np.array(to_exl3(words, 16))[-3:]] == ["398abd5e", "1cce62af", "57873398"]


def test_what_is_no_block_is_refused() -> None:
    with pytest.raises(TrellisShapeError, match="no words of blocks"):
        to_qtip(words_of(3, 0).astype(mx.int32), 3, 12)
    with pytest.raises(TrellisShapeError, match="no words of blocks"):
        to_qtip(words_of(2, 0)[..., :1], 3, 12)
    with pytest.raises(TrellisShapeError, match="uint8"):
        from_qtip(words_of(3, 0), 3, 12)
    with pytest.raises(TrellisShapeError, match="4 \\* words"):
        from_qtip(mx.zeros((2, 6), mx.uint8), 3, 12)
    with pytest.raises(TrellisFormatError, match="16 bits only"):
        to_exl3(words_of(3, 0), 12)
    with pytest.raises(TrellisShapeError, match="uint32 is needed"):
        to_exl3(words_of(3, 0).astype(mx.int32), 16)
