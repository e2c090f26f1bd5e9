"""Codebooks in MLX: every state, bit for bit."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from harness.baseline import trellis as baseline
from impl.errors import ImplError
from impl.trellis.codebooks import CODEBOOKS, INVERSE_SIGMA, LEVELS, codeword_table, codewords
from impl.trellis.errors import TrellisFormatError


@pytest.mark.parametrize("codebook", CODEBOOKS)
def test_every_state_of_16_bits_has_the_value_of_the_baseline(codebook: str) -> None:
    table = np.array(codeword_table(codebook, 16))
    expected = baseline.codewords(np.arange(1 << 16, dtype=np.uint32), codebook)
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("codebook", CODEBOOKS)
@pytest.mark.parametrize("state_bits", [1, 8, 12])
def test_a_smaller_table_is_the_start_of_a_larger_one(codebook: str, state_bits: int) -> None:
    table = codeword_table(codebook, state_bits)
    assert table.shape == (1 << state_bits,)
    assert mx.array_equal(table, codeword_table(codebook, 16)[: 1 << state_bits])


@pytest.mark.parametrize("codebook", LEVELS)
def test_levels_are_byte_sums_around_zero(codebook: str) -> None:
    levels = np.array(LEVELS[codebook](mx.arange(1 << 16, dtype=mx.uint32)))
    assert levels.dtype == np.int32
    assert levels.min() >= -510
    assert levels.max() <= 510


def test_known_values() -> None:
    states = mx.array([3265, 1550, 115, 920], mx.uint32)
    assert LEVELS["1mad"](states).tolist() == [55, 3, 200, -172]
    assert LEVELS["2mad"](states).tolist() == [-178, 71, -266, 31]
    assert LEVELS["mul1"](states).tolist() == [199, 82, -99, 227]
    assert codewords(states, "3inst").tolist() == [-2.22265625, -0.7939453125, 1.85546875, -0.82666015625]
    assert codewords(states, "mcg").tolist() == [0.10400390625, 0.9296875, 1.34765625, -0.89453125]


def test_the_constant_is_a_float32() -> None:
    assert np.float32(INVERSE_SIGMA) == INVERSE_SIGMA == np.float32(1) / np.float32(147.800537109375)


def test_an_unknown_codebook_is_named() -> None:
    with pytest.raises(TrellisFormatError, match="'4mad' does not exist; use one of 1mad, 2mad") as caught:
        codewords(mx.zeros(1, mx.uint32), "4mad")
    assert isinstance(caught.value, ImplError)
    assert isinstance(caught.value, ValueError)
