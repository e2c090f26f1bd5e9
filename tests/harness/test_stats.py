"""Effects, intervals and counts of timings, against scipy and against what can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mstats, ttest_1samp, ttest_ind

from harness.stats import (
    by_round,
    cluster_medians,
    false_discoveries,
    interval,
    round_effects,
    spark,
    spread,
    trimmed_interval,
    unpaired_interval,
)
from harness.timing.samples import Arm, Role, Timing, Visit

ARMS = (Arm("base", Role.BASELINE), Arm("new", Role.CANDIDATE))


def timing(*visits: Visit) -> Timing:
    return Timing("case", "0", "work", False, ARMS, visits, overhead_ns=1, seed=0)


def test_a_round_counts_once_by_the_median_of_its_visits_and_calls_are_divided_out() -> None:
    rounds = by_round(
        timing(
            Visit("base", 1, 7, 0, 10, 1000),
            Visit("base", 0, 3, 0, 10, 100),
            Visit("base", 0, 3, 1, 10, 900),
            Visit("base", 0, 3, 2, 10, 200),
        )
    )["base"]
    assert rounds.numbers.tolist() == [3, 7]
    assert rounds.call_ns.tolist() == [20, 100]
    assert rounds.sets.tolist() == [0, 1]


def test_effects_pair_the_same_round_and_leave_out_what_has_no_partner() -> None:
    found = by_round(
        timing(
            Visit("base", 0, 0, 0, 1, 100),
            Visit("base", 0, 1, 0, 1, 500),
            Visit("base", 1, 2, 0, 1, 100),
            Visit("new", 0, 0, 1, 2, 400),
            Visit("new", 1, 2, 1, 2, 100),
            Visit("new", 1, 3, 1, 1, 9),
        )
    )
    effects, sets = round_effects(found["base"], found["new"])
    assert np.exp(effects).tolist() == pytest.approx([2, 0.5])
    assert sets.tolist() == [0, 1]


def test_a_machine_that_changes_its_pace_between_turns_changes_no_effect() -> None:
    # Half the pace from turn 3 on, and one visit that was disturbed; the medians of the arms are 2.2 apart.
    base, new = (100, 100, 100, 200, 900), (110, 110, 110, 220, 220)
    visits = [Visit("base", 0, 0, 0, 1, took, turn) for turn, took in enumerate(base)]
    visits += [Visit("new", 0, 0, 1, 1, took, turn) for turn, took in enumerate(new) if turn not in (1, 2)]
    found = by_round(timing(*visits))
    effects, _ = round_effects(found["base"], found["new"])
    assert np.exp(effects).tolist() == pytest.approx([1.1])


def test_a_process_set_counts_once() -> None:
    effects, sets = np.array([0.0, 0.1, 5.0, 1.0]), np.array([0, 0, 0, 4])
    assert cluster_medians(effects, sets).tolist() == [0.1, 1.0]


@pytest.mark.parametrize("count", [4, 7])
def test_few_sets_get_students_interval(count: int) -> None:
    values = np.random.default_rng(count).normal(0.1, 1, count)
    effect, low, high, p = trimmed_interval(values, 0.99)
    expected = ttest_1samp(values, 0).confidence_interval(0.99)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert p == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert effect == pytest.approx(values.mean())


def test_more_sets_are_trimmed_as_scipy_does() -> None:
    values = np.random.default_rng(3).normal(0.1, 1, (5, 16))
    effect, low, high, _ = trimmed_interval(values, 0.99)
    # scipy has Tukey and McLaughlin's standard error here; Yuen's is a little wider.
    wider = math.sqrt(15 / (12 * 11)) / math.sqrt(16 / 12**2)
    for row in range(5):
        start, end = mstats.trimmed_mean_ci(values[row], limits=(0.125, 0.125), alpha=0.01)
        assert high[row] - low[row] == pytest.approx((end - start) * wider)
        assert high[row] + low[row] == pytest.approx(end + start)
    assert effect == pytest.approx(np.sort(values, axis=1)[:, 2:-2].mean(axis=1))


def test_one_slow_set_of_sixteen_moves_nothing() -> None:
    calm = np.random.default_rng(1).normal(0, 0.01, 16)
    spiked = calm.copy()
    spiked[np.argmax(calm)] += 10.0
    assert interval(spiked, np.arange(16)) == interval(calm, np.arange(16))


def test_equal_rounds_in_one_set_are_no_evidence() -> None:
    alone = interval(np.full(48, 0.5), np.zeros(48, dtype=np.int64))
    assert (alone.low, alone.high, alone.p, alone.clusters) == (-math.inf, math.inf, 1.0, 1)
    assert interval(np.zeros(0), np.zeros(0, dtype=np.int64)).clusters == 0


def test_no_scatter_at_all() -> None:
    nothing = interval(np.zeros(16), np.arange(16))
    assert (nothing.effect, nothing.p, nothing.excludes_zero) == (0, 1, False)
    certain = interval(np.full(16, 0.1), np.arange(16))
    assert certain.p == 0
    assert certain.excludes_zero


def test_two_sessions_are_compared_by_welch_with_the_sign_of_new_less_base() -> None:
    rng = np.random.default_rng(2)
    base, new = rng.normal(0, 1, 7), rng.normal(1, 3, 5)
    found, expected = unpaired_interval(base, new), ttest_ind(new, base, equal_var=False)
    wanted = expected.confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.p == pytest.approx(expected.pvalue)
    assert unpaired_interval(base[:1], new).p == 1


def test_two_sessions_are_trimmed_as_scipy_does() -> None:
    rng = np.random.default_rng(5)
    base, new = rng.normal(0, 1, 16), rng.normal(1, 3, 17)
    found = unpaired_interval(base, new)
    assert found.p == pytest.approx(ttest_ind(new, base, equal_var=False, trim=0.125).pvalue)


def test_outliers_are_counted_and_kept() -> None:
    times = [100, 101, 99, 100, 102, 98, 100, 101, 900]
    found = spread(times)
    assert (found.q1_ns, found.median_ns, found.q3_ns, found.outliers) == (100, 100, 101, 1)
    assert spread([5, 5, 5, 6]).outliers == 1
    assert spread([7]).outliers == 0


def test_sparks_show_the_order() -> None:
    assert spark([1, 2, 3, 8]) == "▁▂▃█"
    assert spark([4, 4]) == "▁▁"
    assert spark([]) == ""
    assert len(spark(np.arange(48.0))) == 16


def test_many_tests_are_corrected_together() -> None:
    assert false_discoveries([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.04, 0.04, 0.5])
    assert false_discoveries([0.2]) == [0.2]
    assert false_discoveries([]) == []
