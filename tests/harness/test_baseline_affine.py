"""The naive affine baseline: values worked out by hand, and bit for bit what MLX makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline import affine as baseline
from harness.dtypes import numpy_dtype
from harness.subjects.arrays import to_mlx, to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = (1, 2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
DTYPES = ("float32", "float16", "bfloat16")
# The range of a group must not overflow in MLX's float32 arithmetic.
LARGEST = {"float32": 2.0**126, "float16": 65504.0, "bfloat16": 2.0**126}


def group_of(*values: float) -> NDArray[np.float32]:
    """Repeat `values` until a group of 32 is full."""
    return np.resize(np.array(values, np.float32), (1, 32))


def same_bits(left: NDArray[Any], right: NDArray[Any]) -> bool:
    unsigned = f"u{left.dtype.itemsize}"
    return left.dtype == right.dtype and np.array_equal(left.view(unsigned), right.view(unsigned))


def test_the_minimum_is_the_bias_when_it_is_larger() -> None:
    # range 15 in 15 steps: scale 1, from the edge -15 upward.
    packed, scales, biases = baseline.encode(group_of(*range(-15, 1)), 32, 4)
    assert (scales.item(), biases.item()) == (1.0, -15.0)
    assert [hex(word) for word in packed[0]] == ["0x76543210", "0xfedcba98"] * 2


def test_the_maximum_is_the_bias_otherwise_and_the_scale_negative() -> None:
    packed, scales, biases = baseline.encode(group_of(*range(16)), 32, 4)
    assert (scales.item(), biases.item()) == (-1.0, 15.0)
    assert [hex(word) for word in packed[0]] == ["0x89abcdef", "0x1234567"] * 2


def test_equal_magnitudes_go_to_the_maximum() -> None:
    # scale -2/3; 1 / (2/3) = 1.5 steps to zero become 2 (halves to even), so the scale is adjusted to -1/2.
    _, scales, biases = baseline.encode(group_of(1, -1), 32, 2)
    assert (scales.item(), biases.item()) == (-0.5, 1.0)


def test_the_step_is_adjusted_so_that_zero_is_exact() -> None:
    # scale -(1.6 + 1.4) / 3 = -1; 1.6 steps to zero become 2, so -0.8. -1.4 is 3.75 steps away, beyond the last code.
    packed, scales, biases = baseline.encode(group_of(1.6, 0, -1.4, 0.9), 32, 2)
    assert scales.item() == np.float32(1.6) / np.float32(-2)
    assert baseline.unpack(packed, 2)[0, :4].tolist() == [0, 2, 3, 1]
    decoded = baseline.dequantize(packed, scales, biases, 32, 2)[0, :4]
    assert decoded == pytest.approx([1.6, 0.0, -0.8, 0.8], abs=1e-7)
    assert decoded[1] == 0.0


def test_one_bit_picks_one_of_the_extremes() -> None:
    packed, scales, biases = baseline.encode(group_of(-1, 3, 0.5, 1.5), 32, 1)
    assert (scales.item(), biases.item()) == (4.0, -1.0)
    # 0.5 is 0.375 of a step above the minimum, 1.5 is 0.625.
    assert packed.tolist() == [[0xAAAAAAAA]]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("value", [0.0, 3.0, -0.25])
def test_a_group_of_equal_values_has_the_smallest_step(bits: int, value: float) -> None:
    packed, scales, biases = baseline.encode(group_of(value), 32, bits)
    assert abs(scales.item()) == pytest.approx(1e-7)
    assert biases.item() == value
    assert not packed.any()


def test_a_whole_row_of_groups() -> None:
    # The second group is the first times -2: its scale and bias are, too, and its codes are the same.
    one = group_of(*range(-15, 1))
    packed, scales, biases = baseline.encode(np.hstack([one, -2 * one]).astype(np.float16), 32, 4)
    assert scales.dtype == np.float16
    assert (scales.tolist(), biases.tolist()) == ([[1.0, -2.0]], [[-15.0, 30.0]])
    assert np.array_equal(packed[:, :4], packed[:, 4:])


def test_codes_of_three_bits_straddle_words() -> None:
    # 0 to 7, first code lowest: 111 110 101 100 011 010 001 000, the bytes 88 C6 FA.
    words = baseline.pack(np.arange(32, dtype=np.uint32) % 8, 3)
    assert [hex(word) for word in words] == ["0x88fac688", "0xc688fac6", "0xfac688fa"]


def test_dequantize_is_scale_times_code_plus_bias() -> None:
    packed = baseline.pack(np.arange(64, dtype=np.uint32)[np.newaxis] % 16, 4)
    scales, biases = np.array([[0.5, -2.0]], np.float16), np.array([[1.0, 100.0]], np.float16)
    decoded = baseline.dequantize(packed, scales, biases, 32, 4)
    assert decoded.dtype == np.float64
    assert decoded[0].tolist() == [i % 16 * 0.5 + 1 for i in range(32)] + [i % 16 * -2.0 + 100 for i in range(32)]


def test_product_in_both_orientations() -> None:
    x, matrix = np.array([[1, 2]], np.float16), np.array([[1.0, 10.0], [100.0, 1000.0]])
    assert baseline.product(x, matrix, transpose=False).tolist() == [[201.0, 2010.0]]
    assert baseline.product(x, matrix, transpose=True).tolist() == [[21.0, 2100.0]]


@given(st.data(), st.sampled_from(BITS), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_unpack_undoes_pack(data: st.DataObject, bits: int, groups: int) -> None:
    count = 32 * groups
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count))
    words = baseline.pack(np.array([codes], np.uint32), bits)
    # As one number, code j stands at bit j * bits.
    assert sum(int(word) << 32 * i for i, word in enumerate(words[0])) == sum(
        c << bits * j for j, c in enumerate(codes)
    )
    assert words.shape == (1, count * bits // 32)
    assert baseline.unpack(words, bits)[0].tolist() == codes


def agrees_with_mlx(x: NDArray[Any], group: int, bits: int) -> None:
    packed, scales, biases = baseline.encode(x, group, bits)
    mlx_packed, mlx_scales, mlx_biases = map(to_numpy, mx.quantize(to_mlx(x), group_size=group, bits=bits))
    assert same_bits(scales, mlx_scales)
    # Which zero is the minimum of 0 and -0 depends on the order of looking.
    zero = x.dtype.type(0)
    assert same_bits(np.where(biases == 0, zero, biases), np.where(mlx_biases == 0, zero, mlx_biases))
    assert same_bits(packed, mlx_packed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", BITS)
def test_encode_agrees_with_mlx_on_random_values(bits: int, group: int, dtype: str) -> None:
    rng = np.random.default_rng(bits * group)
    for scale in (1e-6, 1.0, 3e3):
        for shift in (0, -3, 3):
            agrees_with_mlx(((rng.standard_normal((8, 256)) + shift) * scale).astype(numpy_dtype(dtype)), group, bits)


@given(st.data(), st.sampled_from(BITS), st.sampled_from(GROUPS), st.sampled_from(DTYPES))
@settings(max_examples=100, deadline=None)
def test_encode_agrees_with_mlx_on_adversarial_values(data: st.DataObject, bits: int, group: int, dtype: str) -> None:
    largest = LARGEST[dtype]
    steps = 2**bits - 1
    hard = [0.0, -0.0, 1.0, -1.0, 0.5, -steps, steps, steps / 2, 1e-7, -6e-8, 1e-30, largest, -largest, largest / steps]
    values = (
        st.sampled_from(hard)
        | st.floats(-largest, largest, width=32)
        | st.integers(-2 * steps, 2 * steps).map(lambda half: half / 2)
    )
    palette = np.array(data.draw(st.lists(values, min_size=1, max_size=8)))
    picks = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, len(palette), (2, group))
    agrees_with_mlx(palette[picks].astype(numpy_dtype(dtype)), group, bits)
