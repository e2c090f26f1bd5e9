"""Affine planes: format, row operations, refusals."""

from __future__ import annotations

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import BITS, GROUP_SIZES, AffinePlanes, affine_matmul, concatenate, dequantize, quantize
from impl.errors import AffineError, ImplError

DTYPES = (mx.float32, mx.float16, mx.bfloat16)


def normal(shape: tuple[int, ...], dtype: mx.Dtype = mx.float32, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def same_bits(left: AffinePlanes, right: AffinePlanes) -> bool:
    return all(bool(mx.array_equal(a, b)) for a, b in zip(left.parts, right.parts, strict=True))


def take_columns(plane: mx.array, columns: slice) -> mx.array:
    return plane[:, :, columns]


def unpack(packed: np.ndarray, head_dim: int, bits: int) -> np.ndarray:
    words = packed.astype(np.uint64)
    stream = ((words[..., None] >> np.arange(32, dtype=np.uint64)) & np.uint64(1)).reshape(*packed.shape[:-1], -1)
    codes = stream.reshape(*packed.shape[:-1], head_dim, bits)
    result: np.ndarray = (codes << np.arange(bits, dtype=np.uint64)).sum(-1)
    return result


@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("bits", BITS)
def test_format_is_a_bit_stream_of_codes_with_scale_and_bias(bits: int, group_size: int) -> None:
    x = normal((2, 3, 5, 256))
    planes = quantize(x, group_size, bits)
    assert planes.packed.shape == (2, 3, 5, 256 * bits // 32)
    assert planes.scales.shape == planes.biases.shape == (2, 3, 5, 256 // group_size)
    assert (planes.shape, planes.head_dim, planes.ndim, planes.dtype) == (x.shape, 256, 4, x.dtype)
    assert planes.nbytes == 30 * (256 * bits // 8 + 2 * 4 * (256 // group_size))
    codes = unpack(np.array(planes.packed), 256, bits).reshape(2, 3, 5, -1, group_size)
    scales, biases = (np.array(part, dtype=np.float64)[..., None] for part in (planes.scales, planes.biases))
    expected = (codes * scales + biases).reshape(x.shape)
    np.testing.assert_allclose(np.array(dequantize(planes)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_a_token_quantizes_alike_alone_and_in_a_block(bits: int, dtype: mx.Dtype) -> None:
    x = normal((2, 2, 6, 64), dtype)
    block = quantize(x, 32, bits)
    for token in range(6):
        here = slice(token, token + 1)
        assert same_bits(quantize(x[:, :, here], 32, bits), block.map(partial(take_columns, columns=here)))


def test_concatenate_keeps_the_bits() -> None:
    x = normal((2, 2, 6, 64), mx.bfloat16)
    parts = [quantize(x[:, :, :2], 64, 4), quantize(x[:, :, 2:], 64, 4)]
    assert same_bits(concatenate(parts, axis=2), quantize(x, 64, 4))


def test_concatenate_refuses_mixed_precision() -> None:
    x = normal((1, 1, 1, 64))
    with pytest.raises(AffineError, match=r"\(32, 4\), \(32, 8\)"):
        concatenate([quantize(x, 32, 4), quantize(x, 32, 8)], axis=0)


@pytest.mark.parametrize("bits", BITS)
def test_matmul_equals_the_decoded_product(bits: int) -> None:
    planes = quantize(normal((1, 2, 7, 64)), 32, bits)
    queries, weights = normal((1, 2, 3, 64), seed=1), normal((1, 2, 3, 7), seed=2)
    decoded = np.array(dequantize(planes), dtype=np.float64)
    scores = affine_matmul(queries, planes, transpose=True)
    np.testing.assert_allclose(np.array(scores), np.array(queries) @ decoded.swapaxes(2, 3), rtol=1e-4, atol=1e-4)
    mixed = affine_matmul(weights, planes, transpose=False)
    np.testing.assert_allclose(np.array(mixed), np.array(weights) @ decoded, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "group_size", "bits", "message"),
    [
        ((1, 1, 1, 96), 64, 4, "head_dim=96 is not a multiple of group_size=64; use group_size=32"),
        ((1, 1, 1, 80), 32, 4, "head_dim=80 is not a multiple of group_size=32; keep this tensor plain"),
        ((1, 1, 1, 64), 16, 4, "group_size=16"),
        ((1, 1, 1, 64), 32, 7, "bits=7"),
    ],
)
def test_impossible_formats_are_named(shape: tuple[int, ...], group_size: int, bits: int, message: str) -> None:
    with pytest.raises(AffineError, match=message) as caught:
        quantize(mx.zeros(shape), group_size, bits)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ImplError)


def test_integers_are_refused() -> None:
    with pytest.raises(AffineError, match="float32"):
        quantize(mx.zeros((1, 1, 1, 32), dtype=mx.int32), 32, 4)
