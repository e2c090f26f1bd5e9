"""The naive microscaling formats: their tables, rounding by hand, and what they have in common with other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.baseline import microscaling
from harness.baseline.affine import pack, unpack
from harness.baseline.microscaling import E2M1, E4M3, E8M0, FORMATS, dequantize, encode, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODES = ("mxfp4", "mxfp8", "nvfp4")


def test_the_numbers_of_four_bits_by_hand() -> None:
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert E2M1.tolist() == magnitudes + [-one for one in magnitudes]
    assert np.signbit(E2M1[8])


@pytest.mark.parametrize(
    ("table", "dtype"),
    [(E2M1, ml_dtypes.float4_e2m1fn), (E4M3, ml_dtypes.float8_e4m3fn), (E8M0, ml_dtypes.float8_e8m0fnu)],
)
def test_the_tables_are_those_of_another_library(table: NDArray[np.float64], dtype: Any) -> None:
    codes: NDArray[Any] = np.arange(len(table), dtype=np.uint8).view(dtype)
    assert np.array_equal(table, codes.astype(np.float64), equal_nan=True)


def test_magnitudes_ascend_so_that_a_code_is_its_rank() -> None:
    for form in FORMATS.values():
        assert (np.diff(form.magnitudes) > 0).all()
        assert np.array_equal(form.elements[: len(form.magnitudes)], form.magnitudes)
    assert [FORMATS[mode].top for mode in MODES] == [6, 448, 6]


def test_halfway_goes_to_the_even_code_and_beyond_the_table_to_its_last() -> None:
    table = FORMATS["mxfp4"].magnitudes
    halves = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert table[nearest(halves, table)].tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert table[nearest(np.nextafter(halves, 9), table)].tolist() == [0.5, 1, 1.5, 2, 3, 4, 6]
    assert table[nearest(np.nextafter(halves, 0), table)].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4]
    assert table[nearest(np.array([5.01, 6, 7, 1e30]), table)].tolist() == [6, 6, 6, 6]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 600, width=32), min_size=1, max_size=40))
def test_nearest_is_what_another_library_rounds_to(values: list[float]) -> None:
    x = np.array(values)
    # It has no saturation: beyond 464 there is NaN.
    theirs = np.minimum(x, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert np.array_equal(E4M3[nearest(x, E4M3[:127])], theirs)


def test_a_group_by_hand() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :5] = [-12, 5, 1, 0.5, 0.26]
    packed, scales = encode(x, "mxfp4")
    # 12 / 6 = 2, which is a power of two.
    assert scales.tolist() == [[128]]
    assert unpack(packed, 4)[0, :6].tolist() == [0xF, 4, 1, 0, 0, 0]
    assert dequantize(packed, scales, "mxfp4")[0, :5].tolist() == [-12, 4, 1, 0, 0]
    x[0, 0] = -12.5
    # A little more than 2 goes up to 4, and nothing is cut off.
    assert encode(x, "mxfp4")[1].tolist() == [[129]]
    assert dequantize(*encode(x, "mxfp4"), "mxfp4")[0, :4].tolist() == [-12, 4, 0, 0]


def test_scales_of_nvfp4_are_numbers_of_their_own() -> None:
    x = np.zeros((2, 16), np.float32)
    x[:, 0] = [6 * 1.1, 6 * 448 * 8]
    _, scales = encode(x, "nvfp4")
    # 1.125 is next to 1.1; the largest is 448.
    assert E4M3[scales].tolist() == [[1.125], [448]]
    assert dequantize(*encode(x, "nvfp4"), "nvfp4")[:, 0].tolist() == [6.75, 2688]


@pytest.mark.parametrize("mode", MODES)
def test_zeros_are_zeros_and_signs_stay(mode: str) -> None:
    packed, scales = encode(np.zeros((2, 64), np.float32), mode)
    assert not dequantize(packed, scales, mode).any()
    x = np.tile(np.array([-3.0, 3.0, -0.0, 0.0], np.float32), 16)[np.newaxis]
    assert np.array_equal(np.signbit(dequantize(*encode(x, mode), mode)), np.signbit(x))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_the_format_come_back(mode: str) -> None:
    form = FORMATS[mode]
    rng = np.random.default_rng(3)
    numbers = np.where(np.isnan(form.elements), 0, form.elements)
    codes = rng.choice(len(numbers), (4, 4 * form.group_size))
    # The largest element is in every group, so the scale is found again.
    codes[:, :: form.group_size] = len(form.magnitudes) - 1
    x = numbers[codes] * 0.25
    packed, scales = encode(x.astype(np.float32), mode)
    assert np.array_equal(dequantize(packed, scales, mode), x)
    assert packed.shape == (4, 4 * form.group_size * form.bits // 32)
    assert np.array_equal(pack(unpack(packed, form.bits), form.bits), packed)


def test_small_floats_of_other_widths() -> None:
    five = microscaling._small_floats(5, 2, bias=15)
    theirs = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float64)
    finite = np.isfinite(theirs)
    assert np.array_equal(five[finite], theirs[finite])
