"""The trellis baseline against published values, whole-number arithmetic and the bit orders of other formats."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline import trellis
from harness.kinds.trellis.inputs import golden_symbols

if TYPE_CHECKING:
    from numpy.typing import NDArray

GOLDEN = {
    (2, 12): (-2009, "7eb2d3999f832e22"),
    (3, 12): (4064, "64537bbf75debc6d"),
    (4, 12): (11283, "615dab0880f1e6c1"),
    (3, 16): (4595, "ba0fd72d8e0b723b"),
}
FORMATS = st.tuples(st.integers(1, 8), st.integers(1, 16), st.sampled_from((32, 64, 256))).filter(
    lambda drawn: drawn[0] <= drawn[1]
)


def random_block(bits: int, block: int, seed: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << bits, block, np.uint32)


@pytest.mark.parametrize(("bits", "state_bits"), GOLDEN)
def test_golden_levels(bits: int, state_bits: int) -> None:
    words = trellis.pack(golden_symbols(256, bits), bits)
    levels = trellis.levels(trellis.states(words, bits, state_bits), "1mad")
    digest = hashlib.sha256(levels.astype("<i4").tobytes()).hexdigest()
    assert (int(levels.sum()), digest[:16]) == GOLDEN[bits, state_bits]


def test_golden_words_states_and_levels() -> None:
    words = trellis.pack(golden_symbols(256, 3), 3)
    assert [f"{word:08x}" for word in words[:3]] == ["57873398", "1cce62af", "398abd5e"]
    states = trellis.states(words, 3, 12)[[0, 1, 2, 255]]
    assert states.tolist() == [3265, 1550, 115, 920]
    assert trellis.levels(states, "1mad").tolist() == [55, 3, 200, -172]


@settings(deadline=None, max_examples=60)
@given(FORMATS, st.integers(0, 1000))
def test_states_are_fields_of_one_large_number(drawn: tuple[int, int, int], seed: int) -> None:
    bits, state_bits, block = drawn
    words = trellis.pack(random_block(bits, block, seed), bits)
    number, length = int.from_bytes(words.astype("<u4").tobytes(), "little"), block * bits
    twice = number | number << length
    expected = [(twice >> (block - 1 - t) * bits) & ((1 << state_bits) - 1) for t in range(block)]
    assert trellis.states(words, bits, state_bits).tolist() == expected


@settings(deadline=None, max_examples=60)
@given(FORMATS, st.integers(0, 1000))
def test_states_are_a_shift_register_that_symbols_are_fed_into(drawn: tuple[int, int, int], seed: int) -> None:
    bits, state_bits, block = drawn
    symbols = random_block(bits, block, seed)
    state = 0
    # One turn fills the register: the block is circular, so its end stands before its start.
    for symbol in symbols.tolist():
        state = (state << bits | symbol) % (1 << state_bits)
    expected = []
    for symbol in symbols.tolist():
        state = (state << bits | symbol) % (1 << state_bits)
        expected.append(state)
    assert trellis.states(trellis.pack(symbols, bits), bits, state_bits).tolist() == expected


@pytest.mark.parametrize(("bits", "state_bits"), [(1, 8), (2, 12), (3, 12), (3, 16), (4, 16), (8, 8)])
def test_only_wrapping_columns_change_when_the_string_is_cut(bits: int, state_bits: int) -> None:
    words = np.full(8 * bits, 0xFFFFFFFF, np.uint32)
    string = "0" * state_bits + "1" * (256 * bits)
    cut = [int(string[-((255 - t) * bits + state_bits) :][:state_bits], 2) for t in range(256)]
    changed = np.flatnonzero(trellis.states(words, bits, state_bits) != cut)
    assert changed.tolist() == list(range(trellis.wrapping_columns(bits, state_bits)))


def test_levels_by_whole_number_arithmetic() -> None:
    def byte_sum(word: int) -> int:
        return sum((word % 2**32).to_bytes(4, "little")) - 510

    def second(state: int) -> int:
        word = (264435761 * state + 1013904223) % 2**32
        return byte_sum(word + (word * 1664525 >> 32))

    states = np.arange(1 << 12, dtype=np.uint32)
    numbers = states.tolist()
    assert trellis.levels(states, "1mad").tolist() == [byte_sum(34038481 * s + 76625530) for s in numbers]
    assert trellis.levels(states, "2mad").tolist() == [second(s) for s in numbers]
    assert trellis.levels(states, "mul1").tolist() == [byte_sum(0x83DCD12D * s) for s in numbers]


@pytest.mark.parametrize(("codebook", "factor", "term"), [("3inst", 89226354, 64248484), ("mcg", 0xCBAC1FED, 0)])
def test_half_pairs_are_sums_rounded_to_float16(codebook: str, factor: int, term: int) -> None:
    def value(state: int) -> Any:
        word = ((factor * state + term) % 2**32 & 0x8FFF8FFF) ^ 0x3B603B60
        low, high = struct.unpack("<2e", word.to_bytes(4, "little"))
        # Their sum is exact in float64; packing rounds it once.
        return struct.unpack("<e", struct.pack("<e", low + high))[0]

    states = np.arange(1 << 12, dtype=np.uint32)
    assert trellis.codewords(states, codebook).tolist() == [value(state) for state in states.tolist()]


@pytest.mark.parametrize("codebook", trellis.CODEBOOKS)
def test_codewords_look_like_unit_noise(codebook: str) -> None:
    values = trellis.codewords(np.arange(1 << 16, dtype=np.uint32), codebook).astype(np.float64)
    assert abs(values.mean()) < 0.01
    # The sum of two halves is wider: its users scale it.
    assert values.std() == pytest.approx(1.244 if codebook in trellis.HALF_PAIR_CODEBOOKS else 1.0, abs=0.002)


def test_the_constant_is_the_rounded_deviation_of_four_bytes() -> None:
    assert abs(float(trellis.SIGMA) - 21845**0.5) < 1e-5
    assert float(trellis.INVERSE_SIGMA).hex() == "0x1.bb688e0000000p-8"


def test_decoding_rounds_the_codeword_before_the_scale() -> None:
    words = trellis.pack(random_block(3, 256, 0), 3)
    scales = np.array([1.1], np.float32)
    levels = trellis.levels(trellis.states(words, 3, 12), "1mad")
    expected = [np.float32(np.float32(level) * trellis.INVERSE_SIGMA) * scales[0] for level in levels]
    assert trellis.decode(words[None, None], scales, 3, 12, "1mad")[0].tolist() == [float(w) for w in expected]


@pytest.mark.parametrize("interleave", [False, True])
def test_layouts_are_where_a_kernel_computes_its_addresses(*, interleave: bool) -> None:
    rows, blocks, count = 3, 4, 6
    words = np.arange(rows * blocks * count, dtype=np.uint32).reshape(rows, blocks, count)
    flat = trellis.lay_out(words, interleave=interleave)
    for row, block, word in np.ndindex(rows, blocks, count):
        pair = block // 2 * rows * 2 * count + block % 2 * count + row * 2 * count
        assert flat[(pair if interleave else (row * blocks + block) * count) + word] == words[row, block, word]


@pytest.mark.parametrize(("rows", "splits"), [(1, 1), (7, 3), (6, 5), (3, 7), (40, 6)])
def test_splits_cover_every_row_once(rows: int, splits: int) -> None:
    parts = trellis.split_rows(rows, splits)
    assert len(parts) == splits
    assert [row for part in parts for row in part] == list(range(rows))


@pytest.mark.parametrize("state_bits", [12, 16])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_stream_of_qtip_is_the_same_string_highest_bit_first_and_rotated(bits: int, state_bits: int) -> None:
    words = trellis.pack(random_block(bits, 256, 5), bits)
    states = trellis.states(words, bits, state_bits).tolist()
    # The first state whole, then the newest symbol of each, highest bit first; the last bits are the first again.
    stream = f"{states[0]:0{state_bits}b}" + "".join(f"{s % (1 << bits):0{bits}b}" for s in states[1:])
    ours = "".join(map(str, trellis.bit_string(words)[::-1]))
    turn = state_bits - bits
    assert ours[-turn:] + ours[:-turn] == stream[: 256 * bits]


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_tiles_of_exl3_are_the_same_words_in_reverse_order(bits: int) -> None:
    words = trellis.pack(random_block(bits, 256, 6), bits)
    stream = "".join(f"{word:032b}" for word in words[::-1])
    windows = [
        int((stream * 3)[len(stream) + (t + 1) * bits - 16 : len(stream) + (t + 1) * bits], 2) for t in range(256)
    ]
    assert trellis.states(words, bits, 16).tolist() == windows
