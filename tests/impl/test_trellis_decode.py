"""Decoding and products: against bits picked one by one, and exactly where nothing is rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline import trellis as baseline
from impl.trellis.codebooks import CODEBOOKS
from impl.trellis.decode import decode, decode_states
from impl.trellis.errors import TrellisFormatError, TrellisShapeError
from impl.trellis.gemv import gemv, partial_sums, reduce_partials, split_rows
from impl.trellis.layout import TrellisFormat, join_blocks, pack_symbols

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORM = TrellisFormat(rows=7, columns=512, bits=3, state_bits=12, interleave=True)


def random_words(form: TrellisFormat, seed: int = 0) -> NDArray[np.uint32]:
    shape = (form.rows, form.blocks, form.block_words)
    return np.random.default_rng(seed).integers(0, 1 << 32, shape, np.uint32)


def random_scales(form: TrellisFormat) -> NDArray[np.float32]:
    return np.random.default_rng(1).uniform(0.5, 2, form.rows).astype(np.float32)


def codes_and_scales(form: TrellisFormat) -> tuple[mx.array, mx.array]:
    return join_blocks(mx.array(random_words(form)), form), mx.array(random_scales(form))


def test_golden_states() -> None:
    column = np.arange(256, dtype=np.uint32)
    symbols = mx.array(((5 * column + 1) % 8 + column // 7) % 8)
    form = TrellisFormat(rows=1, columns=256, bits=3, state_bits=12)
    states = decode_states(pack_symbols(symbols, 3), form)
    assert states.dtype == mx.uint32
    assert states[0, mx.array([0, 1, 2, 255])].tolist() == [3265, 1550, 115, 920]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 8), st.integers(1, 16), st.sampled_from((32, 64, 256)), st.booleans(), st.integers(0, 1000))
def test_shifted_words_show_the_bits_picked_one_by_one(
    bits: int, state_bits: int, block: int, interleave: bool, seed: int
) -> None:
    state_bits = max(bits, state_bits)
    form = TrellisFormat(3, 2 * block, bits, state_bits, block, interleave=interleave)
    words = random_words(form, seed)
    states = np.array(decode_states(join_blocks(mx.array(words), form), form))
    np.testing.assert_array_equal(states, baseline.states(words, bits, state_bits).reshape(3, -1))


@pytest.mark.parametrize("codebook", CODEBOOKS)
def test_weights_have_the_bits_of_the_baseline(codebook: str) -> None:
    form = TrellisFormat(rows=7, columns=512, bits=3, state_bits=12, codebook=codebook)
    weights = np.array(decode(*codes_and_scales(form), form))
    expected = baseline.decode(random_words(form), random_scales(form), 3, 12, codebook)
    np.testing.assert_array_equal(weights.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 20])
def test_one_hot_vectors_give_back_the_matrix(splits: int) -> None:
    codes, scales = codes_and_scales(FORM)
    product = gemv(codes, scales, mx.eye(FORM.rows), FORM, splits)
    assert mx.array_equal(product, decode(codes, scales, FORM))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("splits", [1, 3, 9])
def test_products_are_within_their_bound(splits: int, dtype: mx.Dtype) -> None:
    codes, scales = codes_and_scales(FORM)
    x = mx.random.normal((4, FORM.rows), key=mx.random.key(2)).astype(dtype)
    product = gemv(codes, scales, x, FORM, splits)
    assert product.dtype == mx.float32
    weights = baseline.decode(random_words(FORM), random_scales(FORM), 3, 12, "1mad")
    wide = np.array(x.astype(mx.float32))
    bound = (FORM.rows + 2 + splits) * 2.0**-24 * baseline.absolute_product(wide, weights)
    assert (np.abs(np.array(product) - baseline.product(wide, weights)) <= bound).all()


def test_parts_hold_their_own_rows_and_empty_parts_are_zero() -> None:
    codes, scales = codes_and_scales(FORM)
    x = mx.ones((1, FORM.rows))
    parts = partial_sums(codes, scales, x, FORM, 5)
    assert parts.shape == (1, 5, FORM.columns)
    weights = decode(codes, scales, FORM)
    assert mx.allclose(parts[0, 1], weights[2:4].sum(axis=0), rtol=1e-6, atol=1e-6)
    assert mx.array_equal(parts[0, 3], weights[6])
    assert mx.array_equal(parts[0, 4], mx.zeros(FORM.columns))


def test_parts_are_added_in_ascending_order() -> None:
    # 1 is lost beside 2**24; in descending order it would be left over.
    assert reduce_partials(mx.array([[[2.0**24], [1.0], [-(2.0**24)]]])).tolist() == [[0.0]]


@pytest.mark.parametrize(("rows", "splits"), [(1, 1), (7, 3), (6, 5), (3, 7), (40, 6)])
def test_splits_cover_every_row_once(rows: int, splits: int) -> None:
    parts = split_rows(rows, splits)
    assert len(parts) == splits
    assert [row for part in parts for row in part] == list(range(rows))


def test_arrays_that_do_not_belong_to_the_matrix_are_refused() -> None:
    codes, scales = codes_and_scales(FORM)
    with pytest.raises(TrellisShapeError, match=r"scales are .* \[6\]; .*float32 \[7\]"):
        decode(codes, scales[:6], FORM)
    with pytest.raises(TrellisShapeError, match="float16"):
        decode(codes, scales.astype(mx.float16), FORM)
    with pytest.raises(TrellisShapeError, match=r"\[batch, 7\]"):
        gemv(codes, scales, mx.ones((1, 8)), FORM)
    with pytest.raises(TrellisShapeError, match="int32"):
        gemv(codes, scales, mx.ones((1, 7), mx.int32), FORM)
    with pytest.raises(TrellisFormatError, match="splits=0"):
        gemv(codes, scales, mx.ones((1, 7)), FORM, 0)
