"""Tolerance policies: what each one allows, to the last bit, and where it says that arrays disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from harness.compare import UNIT_ROUNDOFF, Bound, Exact, Lsb, Mismatch, Nmse, Policy, Ulp, dot_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAN, INF = np.nan, np.inf
TINY = float(np.nextafter(0, 1))


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def f64(*values: float) -> NDArray[np.float64]:
    return np.array(values, np.float64)


def found(wrong: Mismatch | None) -> Mismatch:
    assert wrong is not None
    return wrong


@pytest.mark.parametrize("policy", [Exact(), Bound(np.array(INF)), Ulp(1 << 40), Nmse(1e9), Lsb(1.0)])
def test_shapes_must_be_equal_even_if_they_broadcast(policy: Policy) -> None:
    wrong = found(policy.check(np.zeros((2, 1), np.int32), np.zeros((2, 3), np.int32)))
    assert wrong == Mismatch("shape", "[2, 1]", "[2, 3]")
    assert wrong.index == ()


@pytest.mark.parametrize("policy", [Exact(), Bound(f64(1, 1, 1, 1).reshape(2, 2)), Ulp(1), Lsb(0.0)])
def test_the_index_is_a_place_in_the_array(policy: Policy) -> None:
    expected = np.zeros((2, 2), np.int32) if isinstance(policy, Lsb) else np.zeros((2, 2), np.float32)
    actual = expected.copy()
    actual[1, 0] = 9
    wrong = found(policy.check(expected, actual))
    assert wrong.index == (1, 0)
    assert all(type(part) is int for part in wrong.index)
    assert (wrong.where, wrong.expected, wrong.actual) == ("[1, 0]", "0", "9")
    assert "1 of 4" in wrong.note


@pytest.mark.parametrize("policy", [Exact(), Bound(np.array(0.5)), Ulp(1), Lsb(0.0), Nmse(0.1)])
def test_scalar_and_empty_arrays(policy: Policy) -> None:
    one, other = np.array(1, np.int32), np.array(9, np.int32)
    if not isinstance(policy, Lsb):
        one, other = one.astype(np.float32), other.astype(np.float32)
    assert policy.check(one, one.copy()) is None
    assert found(policy.check(one, other)).index == ()
    assert policy.check(np.zeros((0, 3), one.dtype), np.zeros((0, 3), one.dtype)) is None


class TestExact:
    """The same bits."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint32, np.uint8, np.bool_])
    def test_the_last_bit_counts(self, dtype: Any) -> None:
        expected = np.array([1, 0, 1], dtype)
        bits = expected.view(f"u{expected.dtype.itemsize}").copy()
        assert Exact().check(expected, bits.view(dtype)) is None
        bits[2] ^= 1
        assert found(Exact().check(expected, bits.view(dtype))).index == (2,)

    def test_the_sign_of_zero_counts(self) -> None:
        wrong = found(Exact().check(f32(0, 0), f32(0, -0.0)))
        assert (wrong.index, wrong.expected, wrong.actual) == ((1,), "0", "-0")

    def test_nan_equals_itself_and_no_other_nan(self) -> None:
        nans = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
        assert Exact().check(nans, nans.copy()) is None
        for other in (1, 2):
            assert Exact().check(nans[:1], nans[other : other + 1]) is not None

    @pytest.mark.parametrize("other", [np.float16, ml_dtypes.bfloat16, np.int32, np.uint32, np.float64])
    def test_the_dtype_counts_even_where_bits_are_equal(self, other: Any) -> None:
        wrong = found(Exact().check(f32(0, 0), np.zeros(2, other)))
        assert (wrong.where, wrong.expected, wrong.actual) == ("dtype", "float32", np.dtype(other).name)

    def test_the_first_of_several_is_shown_and_all_are_counted(self) -> None:
        wrong = found(Exact().check(f32(1, 2, 3, 4), f32(1, 5, 3, 6)))
        assert (wrong.index, wrong.note) == ((1,), "2 of 4 elements differ")

    def test_strides_don_t_matter(self) -> None:
        grid = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert Exact().check(grid.T, np.ascontiguousarray(grid.T)) is None
        assert found(Exact().check(grid.T, grid.reshape(3, 2))).index == (0, 1)


class TestLsb:
    """Integer codes, a few of them off by one."""

    def test_two_may_be_off_in_a_small_array(self) -> None:
        expected = np.zeros(10, np.uint8)
        assert Lsb().check(expected, np.array([1, 1] + [0] * 8, np.uint8)) is None
        wrong = found(Lsb().check(expected, np.array([0, 1, 1, 1] + [0] * 6, np.uint8)))
        assert (wrong.index, wrong.note) == ((1,), "3 of 10 codes are off by one; 2 may be")

    def test_a_share_may_be_off_in_a_large_one(self) -> None:
        expected = np.ones(1000, np.int32)
        actual = expected.copy()
        actual[:5] = [0, 2, 0, 2, 0]
        assert Lsb().check(expected, actual) is None
        actual[999] = 2
        assert found(Lsb().check(expected, actual)).note == "6 of 1000 codes are off by one; 5 may be"

    def test_none_may_be_off_by_two_and_the_order_of_subtraction_does_not_wrap(self) -> None:
        assert Lsb(1.0).check(np.array([0, 255], np.uint8), np.array([1, 254], np.uint8)) is None
        wrong = found(Lsb(1.0).check(np.array([0, 7], np.uint8), np.array([1, 9], np.uint8)))
        assert (wrong.index, wrong.note) == ((1,), "1 of 2 codes are off by more than one")
        assert Lsb(1.0).check(np.array([0], np.uint8), np.array([255], np.uint8)) is not None

    def test_numbers_with_fractions_are_no_codes(self) -> None:
        assert found(Lsb(1.0).check(np.array([1, 2], np.int32), f32(1.9, 2))).where == "dtype"
        assert found(Lsb(1.0).check(f32(NAN), np.array([0], np.int32))).where == "dtype"


class TestBound:
    """An error no larger than derived, element by element."""

    def test_the_bound_itself_is_allowed_and_nothing_above(self) -> None:
        policy = Bound(f64(0.3))
        assert policy.check(f64(0), f64(0.3)) is None
        assert policy.check(f64(0), f64(-0.3)) is None
        for above in (np.nextafter(0.3, 1), -np.nextafter(0.3, 1)):
            assert found(policy.check(f64(0), f64(above))).index == (0,)

    def test_a_bound_of_zero_allows_equality_only(self) -> None:
        policy = Bound(f64(0, 0))
        assert policy.check(f64(1, 0), f64(1, -0.0)) is None
        assert found(policy.check(f64(1, 0), f64(1, TINY))).index == (1,)

    def test_each_element_has_its_own(self) -> None:
        policy = Bound(f64(1, 0.1))
        assert policy.check(f64(0, 0), f64(1, 0.1)) is None
        assert found(policy.check(f64(0, 0), f64(1, 1))).index == (1,)

    def test_the_worst_place_is_the_one_furthest_beyond_its_own_bound(self) -> None:
        wrong = found(Bound(f64(10, 1, 1)).check(f64(0, 0, 0), f64(30, 4, 2)))
        assert (wrong.index, wrong.note) == ((1,), "error 4, bound 1; 3 of 3 exceed theirs")

    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    def test_what_is_not_finite_matches_its_like_only(self, value: float) -> None:
        policy = Bound(f64(INF))
        assert policy.check(f64(value), f64(value)) is None
        for other in {0.0, NAN, INF, -INF, 1e308} - {value}:
            if not (np.isnan(other) and np.isnan(value)):
                assert policy.check(f64(value), f64(other)) is not None, other
                assert policy.check(f64(other), f64(value)) is not None, other

    def test_an_infinite_bound_takes_any_number(self) -> None:
        assert Bound(f64(INF)).check(f64(0), f64(1e300)) is None

    def test_a_bound_that_is_no_number_allows_nothing(self) -> None:
        assert Bound(f64(NAN)).check(f64(1), f64(1)) is None
        assert Bound(f64(NAN)).check(f64(1), f64(2)) is not None
        assert Bound(f64(-1)).check(f64(1), f64(2)) is not None

    def test_one_nan_is_worse_than_any_error(self) -> None:
        assert found(Bound(f64(1, 1)).check(f64(0, 0), f64(1e9, NAN))).index == (1,)

    def test_errors_are_taken_in_float64(self) -> None:
        # Both round to 1 in float16.
        assert Bound(f64(0)).check(f64(1), np.array([1], np.float16)) is None
        assert Bound(f64(1e-9)).check(f64(1 + 1e-6), np.array([1], np.float16)) is not None

    def test_an_error_beyond_float64_is_an_error(self) -> None:
        assert Bound(f64(1e308)).check(f64(-1.7e308), f64(1.7e308)) is not None


class TestUlp:
    """Representable numbers apart."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    @pytest.mark.parametrize("start", [1.0, -1.0, 2.0, 0.0, 1e-7])
    def test_the_count_is_allowed_and_one_more_is_not(self, dtype: Any, start: float) -> None:
        expected = np.array([start], dtype)
        for direction in (INF, -INF):
            actual = expected
            for _ in range(3):
                actual = np.nextafter(actual, dtype(direction))
            assert Ulp(3).check(expected, actual) is None
            assert Ulp(2).check(expected, actual) is not None
            assert Ulp(2).check(actual, expected) is not None

    def test_zeros_are_one_number(self) -> None:
        assert Ulp(0).check(f32(0.0), f32(-0.0)) is None

    def test_it_counts_across_zero(self) -> None:
        least = float(np.nextafter(np.float32(0), np.float32(1)))
        assert Ulp(2).check(f32(-least), f32(least)) is None
        assert Ulp(1).check(f32(-least), f32(least)) is not None

    def test_infinity_and_nan_are_no_rounding_away_from_anything(self) -> None:
        largest = float(np.finfo(np.float32).max)
        next_to_infinity = np.array([0x7F800001], np.uint32).view(np.float32)
        policy = Ulp(1 << 33)
        assert policy.check(f32(INF, -INF, NAN), f32(INF, -INF, NAN)) is None
        assert policy.check(f32(NAN), next_to_infinity) is None, "any NaN is a NaN"
        for left, right in [(f32(largest), f32(INF)), (f32(INF), next_to_infinity), (f32(1), f32(NAN))]:
            assert policy.check(left, right) is not None
            assert policy.check(right, left) is not None
        assert Ulp(1).check(f32(INF), f32(-INF)) is not None

    def test_dtypes_must_be_equal(self) -> None:
        assert found(Ulp(9).check(f32(1), np.array([1], np.float16))).where == "dtype"

    def test_the_first_far_element_is_shown(self) -> None:
        wrong = found(Ulp(1).check(f32(1, 1, 1), f32(1, 2, 3)))
        assert (wrong.index, wrong.note) == ((1,), "2 of 3 elements are more than 1 ulp away")


class TestNmse:
    """Squared error relative to the expected array."""

    def test_the_limit_itself_is_allowed(self) -> None:
        # Errors of 1 and 0 over squares of 4 and 0: 0.25.
        assert Nmse(0.25).check(f64(2, 0), f64(3, 0)) is None
        assert Nmse(float(np.nextafter(0.25, 0))).check(f64(2, 0), f64(3, 0)) is not None

    def test_it_is_relative_to_the_expected_array_and_not_to_the_actual(self) -> None:
        assert Nmse(0.5).check(f64(1, 1), f64(3, 3)) is not None
        assert Nmse(0.5).check(f64(3, 3), f64(1, 1)) is None

    @pytest.mark.parametrize("value", [NAN, INF, 1e200])
    def test_what_is_not_finite_is_no_small_error(self, value: float) -> None:
        assert Nmse(1e9).check(f64(1, 1), f64(1, value)) is not None

    def test_zeros_must_stay_zeros(self) -> None:
        assert Nmse(1e-9).check(f64(0, 0), f64(0, 0)) is None
        assert found(Nmse(1e-9).check(f64(0, 0), f64(0, 1e-20))).index == ()


class TestDotBound:
    """The bound of a dot product."""

    def test_gamma_by_hand(self) -> None:
        # (4 + 2) / 64 over 1 - 6 / 64 is 6 / 58.
        assert dot_bound(4, f64(1, 2), 1 / 64) == pytest.approx(f64(6 / 58, 12 / 58), rel=1e-15)
        assert dot_bound(4, f64(1), 1 / 64, extra=0) == pytest.approx(f64(4 / 60), rel=1e-15)

    def test_it_is_infinite_where_the_analysis_ends(self) -> None:
        assert np.isfinite(dot_bound(61, f64(1), 1 / 64)).all()
        assert np.isinf(dot_bound(62, f64(1, 0), 1 / 64)).all()

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
    def test_unit_roundoffs_are_half_the_spacing_at_one(self, dtype: Any) -> None:
        name = np.dtype(dtype).name
        half = dtype(1 + UNIT_ROUNDOFF[name])
        assert half == dtype(1), "ties go to even"
        assert dtype(1 + UNIT_ROUNDOFF[name] * 1.01) > dtype(1)

    def test_sums_in_any_order_stay_within_it(self) -> None:
        rng = np.random.default_rng(1)
        for _ in range(20):
            a, b = rng.normal(size=(2, 100)).astype(np.float16)
            total = np.float16(0)
            for x, y in zip(a, b, strict=True):
                total = np.float16(total + np.float16(x * y))
            exact = float(a.astype(np.float64) @ b.astype(np.float64))
            limit = dot_bound(100, f64(np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))), 2.0**-11)
            assert Bound(limit).check(f64(exact), f64(float(total))) is None
