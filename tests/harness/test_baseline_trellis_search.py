"""The search of the baseline, against every single path of small blocks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from harness.baseline import trellis
from harness.baseline.trellis_search import SCALAR_ERROR, codebook_rms, error_limit, least_error


@pytest.mark.parametrize(("bits", "state_bits", "block"), [(1, 3, 8), (1, 2, 9), (2, 4, 5), (2, 5, 5)])
def test_no_path_at_all_is_nearer(bits: int, state_bits: int, block: int) -> None:
    rng = np.random.default_rng(block)
    table = rng.standard_normal(1 << state_bits).astype(np.float32)
    numbers = rng.standard_normal(block)
    errors = []
    for symbols in product(range(1 << bits), repeat=block):
        values = []
        for column in range(block):
            state = sum(symbols[(column - i) % block] << (i * bits) for i in range(-(-state_bits // bits)))
            values.append(table[state % (1 << state_bits)])
        errors.append(((np.array(values, np.float64) - numbers) ** 2).sum())
    assert least_error(numbers, table, bits) == pytest.approx(min(errors), rel=1e-12)


def test_a_path_of_codewords_has_no_error() -> None:
    words = np.random.default_rng(1).integers(0, 1 << 32, 24, np.uint32)
    table = trellis.codewords(np.arange(1 << 8, dtype=np.uint32), "1mad")
    assert least_error(table[trellis.states(words, 3, 8)], table, 3) == 0


def test_widths_and_limits() -> None:
    assert codebook_rms("1mad", 12) == pytest.approx(1.0041, abs=1e-4)
    assert codebook_rms("3inst", 12) == pytest.approx(1.2362, abs=1e-4)
    assert codebook_rms("random", 16) == pytest.approx(1, abs=1e-3)
    assert all(error_limit(bits) < error for bits, error in SCALAR_ERROR.items())


def test_the_random_codebook_is_a_sum_of_hashed_bytes() -> None:
    def level(state: int) -> int:
        total = 0
        for draw in (1, 2):
            z = (2 * state + draw) * 0x9E3779B97F4A7C15 % 2**64
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
            z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
            total += sum((z ^ z >> 31).to_bytes(8, "little"))
        return total - 2040

    states = [0, 1, 115, 1550, 65535]
    expected = np.array([level(state) for state in states], np.float32) * np.float32((16 * 65535 / 12) ** -0.5)
    np.testing.assert_array_equal(trellis.codewords(np.array(states, np.uint32), "random"), expected)


@pytest.mark.parametrize("interleave", [False, True])
def test_layouts_come_back(interleave: bool) -> None:
    words = np.arange(3 * 4 * 2, dtype=np.uint32).reshape(3, 4, 2)
    flat = trellis.lay_out(words, interleave=interleave)
    np.testing.assert_array_equal(trellis.split_layout(flat, 3, 4, interleave=interleave), words)


def test_other_orders_of_a_known_block() -> None:
    # Symbols of 2 bits, 0 1 2 3 0 1 2 3 ..., and states of 4 bits: the symbol before and this one.
    symbols = np.arange(16, dtype=np.uint32) % 4
    states = (np.roll(symbols, 1) << 2 | symbols).astype(np.uint32)
    assert trellis.qtip_stream(states, 2, 4).tolist() == [0b11000110] * 4
    assert trellis.exl3_words(states, 2).tolist() == [0x1B1B1B1B]
