"""Attention over plain and affine tensors against float64 NumPy."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import BITS, dequantize, quantize
from impl.attention import AttentionView, Mask, Tensor, attend, causal_mask, open_blind_rows, range_mask
from impl.errors import AttentionError
from tests.impl.dense_attention import SCALE, TOLERANCE, dense, normal, to_float64


def stored(keys: mx.array, values: mx.array, bits: int | None) -> tuple[tuple[Tensor, Tensor], mx.array, mx.array]:
    """Planes in that precision, and what they decode to."""
    if bits is None:
        return (keys, values), keys, values
    packed = quantize(keys, 32, bits), quantize(values, 32, bits)
    return packed, dequantize(packed[0]), dequantize(packed[1])


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("masked", ["none", "causal", "array", "shared array"])
@pytest.mark.parametrize("bits", [None, 4])
def test_equals_dense_attention(bits: int | None, masked: str, heads: tuple[int, int], dtype: mx.Dtype) -> None:
    tokens, columns = 3, 7
    queries = normal((2, heads[0], tokens, 64), 1, dtype)
    keys, values = normal((2, heads[1], columns, 64), 2, dtype), normal((2, heads[1], columns, 32), 3, dtype)
    rows = 1 if masked == "shared array" else 2
    shown = np.random.default_rng(4).random((rows, 1, tokens, columns)) < 0.5
    shown[..., 2] = True
    masks: dict[str, tuple[Mask, np.ndarray | None]] = {
        "none": (None, None),
        "causal": ("causal", np.tril(np.ones((tokens, columns), dtype=bool), columns - tokens)),
        "array": (mx.array(shown), shown),
        "shared array": (mx.array(shown), shown),
    }
    mask, seen = masks[masked]
    planes, keys, values = stored(keys, values, bits)
    got = attend(queries, *planes, SCALE, mask)
    assert got.shape == (2, heads[0], tokens, 32)
    assert got.dtype == dtype
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(to_float64(got), dense(queries, keys, values, seen), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bits", BITS)
def test_every_bit_width(bits: int) -> None:
    queries, keys, values = normal((1, 2, 2, 128), 1), normal((1, 1, 9, 128), 2), normal((1, 1, 9, 256), 3)
    packed = quantize(keys, 64, bits), quantize(values, 128, bits)
    got = attend(queries, *packed, SCALE)
    expected = dense(queries, dequantize(packed[0]), dequantize(packed[1]), None)
    np.testing.assert_allclose(to_float64(got), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("affine", [False, True])
def test_a_query_that_sees_nothing_is_finite_and_disturbs_nobody(dtype: mx.Dtype, affine: bool) -> None:
    queries, keys, values = (normal((2, 2, 3, 32), seed, dtype) for seed in (1, 2, 3))
    shown = np.ones((2, 1, 3, 3), dtype=bool)
    shown[0, :, 1] = False
    planes, _, _ = stored(keys, values, 8 if affine else None)
    got = to_float64(attend(queries, *planes, SCALE, mx.array(shown)))
    everything = to_float64(attend(queries, *planes, SCALE))
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[1], everything[1])
    np.testing.assert_array_equal(got[0][:, [0, 2]], everything[0][:, [0, 2]])


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("masked", [None, "causal", "array"])
@pytest.mark.parametrize("bits", [None, 8])
def test_sinks_take_part_in_the_softmax_and_bring_no_value(
    bits: int | None, masked: str | None, dtype: mx.Dtype
) -> None:
    queries, keys, values = (
        normal((2, 6, 3, 64), 1, dtype),
        normal((2, 2, 7, 64), 2, dtype),
        normal((2, 2, 7, 32), 3, dtype),
    )
    sinks = mx.array([2.0, -1.0, 0.5, 5.0, -30.0, 0.0])
    shown = np.random.default_rng(4).random((2, 1, 3, 7)) < 0.6
    shown[..., 2] = True
    mask: Mask = None
    seen: np.ndarray | None = None
    if masked == "causal":
        mask, seen = "causal", np.tril(np.ones((3, 7), dtype=bool), 4)
    elif masked == "array":
        mask, seen = mx.array(shown), shown
    planes, keys, values = stored(keys, values, bits)
    got = attend(queries, *planes, SCALE, mask, sinks)
    assert got.dtype == dtype
    tolerance = TOLERANCE[dtype]
    expected = dense(queries, keys, values, seen, sinks)
    np.testing.assert_allclose(to_float64(got), expected, rtol=tolerance, atol=tolerance)
    theirs = mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=SCALE, mask=mask, sinks=sinks.astype(dtype)
    )
    np.testing.assert_allclose(to_float64(got), to_float64(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bits", [None, 4])
def test_a_sink_as_large_as_they_come_takes_everything_and_none_nothing(bits: int | None) -> None:
    queries, keys, values = (normal((1, 2, 2, 32), seed) for seed in (1, 2, 3))
    planes, _, _ = stored(keys, values, bits)
    without = attend(queries, *planes, SCALE)
    assert not attend(queries, *planes, SCALE, sinks=mx.full((2,), 1e30)).any()
    none = attend(queries, *planes, SCALE, sinks=mx.full((2,), -mx.inf))
    np.testing.assert_allclose(to_float64(none), to_float64(without), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("bits", [None, 8])
def test_a_query_that_sees_nothing_but_a_sink_gets_zeros(bits: int | None, dtype: mx.Dtype) -> None:
    queries, keys, values = (normal((1, 2, 2, 32), seed, dtype) for seed in (1, 2, 3))
    planes, _, _ = stored(keys, values, bits)
    got = attend(queries, *planes, SCALE, mx.array([[[[False, False], [True, False]]]]), mx.zeros((2,)))
    assert not got[:, :, 0].any()
    assert got[:, :, 1].any()


@pytest.mark.parametrize("bits", [None, 4])
def test_one_mask_for_all_tokens(bits: int | None) -> None:
    queries, keys, values = normal((2, 4, 3, 64), 1), normal((2, 2, 5, 64), 2), normal((2, 2, 5, 32), 3)
    planes, keys, values = stored(keys, values, bits)
    mask = range_mask((1, 0), (4, 5), 5)
    assert mask is not None
    got = attend(queries, *planes, SCALE, mask)
    np.testing.assert_allclose(to_float64(got), dense(queries, keys, values, np.array(mask)), rtol=1e-4, atol=1e-4)


def test_ranges_are_half_open_and_whole_rows_need_no_mask() -> None:
    mask = range_mask((0, 1, 3), (2, 4, 3), 4)
    assert mask is not None
    assert mask.tolist() == [[[[True, True, False, False]]], [[[False, True, True, True]]], [[[False] * 4]]]
    assert range_mask((0, 0), (4, 4), 4) is None
    assert range_mask((0, 0), (4, 3), 4) is not None


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_rows_in_parts_are_attended_in_their_own_precision(dtype: mx.Dtype) -> None:
    queries = normal((4, 4, 2, 64), 1, dtype)
    keys, values = normal((4, 2, 5, 64), 2, dtype), normal((4, 2, 5, 32), 3, dtype)
    sinks = mx.array([1.0, 0.0, -1.0, 2.0])
    precisions = {(0, 1): None, (1, 3): 4, (3, 4): 8}
    parts, plain = [], []
    for (first, stop), bits in precisions.items():
        planes, *decoded = stored(keys[first:stop], values[first:stop], bits)
        parts.append(planes)
        plain.append(decoded)
    view = AttentionView(tuple(parts))
    assert (view.rows, view.width, view.dtype) == (4, 5, dtype)
    shown = np.tril(np.ones((2, 5), dtype=bool), 3) & (np.arange(5) >= np.array([0, 2, 1, 0])[:, None, None, None])
    keys, values = (mx.concatenate(list(same)) for same in zip(*plain, strict=True))
    tolerance = TOLERANCE[dtype]
    for mask, seen in ((mx.array(shown), shown), (mx.array(shown[1:2]), shown[1:2]), (None, None)):
        got = view.attend(queries, SCALE, mask, sinks)
        expected = dense(queries, keys, values, seen, sinks)
        np.testing.assert_allclose(to_float64(got), expected, rtol=tolerance, atol=tolerance)
    with pytest.raises(AttentionError, match="3 query rows and 1 mask rows for 4 rows"):
        view.attend(queries[:3], SCALE)
    with pytest.raises(AttentionError, match="4 query rows and 2 mask rows for 4 rows"):
        view.attend(queries, SCALE, mx.array(shown[:2]))


def test_only_blind_queries_are_opened() -> None:
    mask = mx.array([[[[True, False], [False, False]]]])
    assert open_blind_rows(mask).tolist() == [[[[True, False], [True, True]]]]


def test_causal_lines_up_at_the_end() -> None:
    assert causal_mask(2, 4).tolist() == [[[[True, True, True, False], [True, True, True, True]]]]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (mx.zeros((1, 1, 2, 4)), "boolean array"),
        (mx.ones((1, 1, 2, 3), dtype=mx.bool_), "boolean array"),
        (mx.ones((3, 1, 2, 4), dtype=mx.bool_), "boolean array"),
        (mx.ones((2, 4), dtype=mx.bool_), "boolean array"),
        ("bidirectional", "'causal'"),
    ],
)
def test_wrong_masks_are_refused(mask: Mask, message: str) -> None:
    x = mx.zeros((1, 1, 4, 32))
    with pytest.raises(AttentionError, match=message):
        attend(x[:, :, :2], x, x, SCALE, mask)


def test_wrong_operands_are_refused() -> None:
    x = mx.zeros((1, 2, 4, 32))
    with pytest.raises(AttentionError, match="use a multiple of 2"):
        attend(mx.zeros((1, 3, 1, 32)), x, x, SCALE)
    with pytest.raises(AttentionError, match="both plain or both affine"):
        attend(x, x, quantize(x, 32, 4), SCALE)
    with pytest.raises(AttentionError, match="do not fit together"):
        attend(x, x, x[:, :, :3], SCALE)
    with pytest.raises(AttentionError, match="one logit per query head"):
        attend(x, x, x, SCALE, sinks=mx.zeros((1,)))
    with pytest.raises(AttentionError, match="5 queries"):
        attend(mx.zeros((1, 2, 5, 32)), x, x, SCALE, "causal")
