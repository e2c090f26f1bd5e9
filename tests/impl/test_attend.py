"""Attention over plain and affine tensors against float64 NumPy."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import BITS, dequantize, quantize
from impl.attention import Mask, Tensor, attend, causal_mask, open_blind_rows
from impl.errors import AttentionError

SCALE = 0.125
TOLERANCE = {mx.float32: 2e-5, mx.float16: 6e-3, mx.bfloat16: 5e-2}


def normal(shape: tuple[int, ...], seed: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def to_float64(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32), dtype=np.float64)


def dense(queries: mx.array, keys: mx.array, values: mx.array, mask: np.ndarray | None) -> np.ndarray:
    group = queries.shape[1] // keys.shape[1]
    k, v = (np.repeat(to_float64(x), group, axis=1) for x in (keys, values))
    scores = SCALE * to_float64(queries) @ k.swapaxes(2, 3)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray = (weights / weights.sum(-1, keepdims=True)) @ v
    return result


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
    stored: tuple[Tensor, Tensor] = (keys, values)
    if bits is not None:
        packed = quantize(keys, 32, bits), quantize(values, 32, bits)
        stored, (keys, values) = packed, (dequantize(packed[0]), dequantize(packed[1]))
    got = attend(queries, *stored, SCALE, mask)
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
    stored: tuple[Tensor, Tensor] = (keys, values)
    if affine:
        stored = quantize(keys, 32, 8), quantize(values, 32, 8)
    got = to_float64(attend(queries, *stored, SCALE, mx.array(shown)))
    everything = to_float64(attend(queries, *stored, SCALE))
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[1], everything[1])
    np.testing.assert_array_equal(got[0][:, [0, 2]], everything[0][:, [0, 2]])


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
    with pytest.raises(AttentionError, match="5 queries"):
        attend(mx.zeros((1, 2, 5, 32)), x, x, SCALE, "causal")
