"""Statistics of timings: effects that one slow visit can't move, and intervals that hold with few process sets.

A shared machine goes over to half its pace and back every tenth of a second or so. Two visits of one turn, a few
milliseconds apart, mostly see the same pace: so the effect of a round is the median, over its turns, of the ratio
within the turn. On such a machine that scatters a third as much as the ratio of two medians.

Rounds of one set of processes share their memory layout, so they are no independent witnesses: a set counts once, by
the median of its rounds. The interval is Yuen's: a trimmed mean with a winsorized variance and Student's t. The usual
bootstrap of medians is too narrow here (of 4 sets, its 99 % interval misses the truth in 12 % of all cases; see
`python -m tests.bench.verdict_simulation`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from harness.timing.samples import Timing, Visit

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

# Of the sets' effects, this share is left out at either end of the location, and drawn in for the variance.
TRIM = 0.125
OUTLIER_MADS = 5.0
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Rounds:
    """The rounds of one arm in order: their numbers, the median time of one call, the process set; [rounds] each.

    turns: the time of one call by round and turn.
    """

    numbers: Ints
    call_ns: Floats
    sets: Ints
    turns: dict[tuple[int, int], float]


@dataclass(frozen=True)
class Interval:
    """A log ratio with its confidence interval.

    p is that of no difference, two-sided; with fewer than two clusters nothing is known: an infinite interval, p 1.
    """

    effect: float
    low: float
    high: float
    p: float
    clusters: int

    @property
    def excludes_zero(self) -> bool:
        """Whether there is a difference, in either direction."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Spread:
    """Quartiles of the time of one call over rounds, and how many rounds are outliers by MAD; none is dropped."""

    q1_ns: float
    median_ns: float
    q3_ns: float
    outliers: int


def by_round(timing: Timing) -> dict[str, Rounds]:
    """Return the rounds of every arm that was visited; where one was visited twice in a turn, the last counts."""
    visits: dict[str, dict[int, list[Visit]]] = {}
    for visit in timing.visits:
        visits.setdefault(visit.arm, {}).setdefault(visit.round, []).append(visit)
    return {
        arm: Rounds(
            np.array(sorted(rounds), dtype=np.int64),
            np.array([median(v.call_ns for v in rounds[number]) for number in sorted(rounds)], dtype=np.float64),
            np.array([rounds[number][0].process for number in sorted(rounds)], dtype=np.int64),
            {(visit.round, visit.turn): visit.call_ns for each in rounds.values() for visit in each},
        )
        for arm, rounds in visits.items()
    }


def round_effects(baseline: Rounds, candidate: Rounds) -> tuple[Floats, Ints]:
    """Return log(candidate / baseline) of each round that visited both, and its process set; [rounds] each.

    The median over the turns in which both were visited.
    """
    pairs: dict[int, list[float]] = {}
    for (number, turn), base_ns in baseline.turns.items():
        if (number, turn) in candidate.turns:
            pairs.setdefault(number, []).append(math.log(candidate.turns[number, turn] / base_ns))
    sets = dict(zip(baseline.numbers.tolist(), baseline.sets.tolist(), strict=True))
    numbers = sorted(pairs)
    effects = np.array([median(pairs[number]) for number in numbers], dtype=np.float64)
    return effects, np.array([sets[number] for number in numbers], dtype=np.int64)


def cluster_medians(effects: Floats, sets: Ints) -> Floats:
    """Return the median effect of each process set, [sets]."""
    groups: dict[int, list[float]] = {}
    for one, effect in zip(sets.tolist(), effects.tolist(), strict=True):
        groups.setdefault(one, []).append(effect)
    return np.array([median(group) for group in groups.values()], dtype=np.float64)


def trimmed(values: ArrayLike) -> tuple[Floats, Floats, int]:
    """Return trimmed mean, its standard error and degrees of freedom, over the last axis.

    Source: K. K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974).
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    count = ordered.shape[-1]
    cut = int(TRIM * count)
    kept = count - 2 * cut
    drawn_in = np.clip(ordered, ordered[..., cut : cut + 1], ordered[..., count - cut - 1 : count - cut])
    center = ordered[..., cut : count - cut].mean(axis=-1)
    error = drawn_in.std(axis=-1, ddof=1) * np.sqrt((count - 1) / (kept * (kept - 1)))
    return center, error, kept - 1


def trimmed_interval(clusters: ArrayLike, level: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return effect, low, high and p of many samples at once: [..., clusters] to [...]; at least two clusters."""
    from scipy.special import stdtr, stdtrit

    center, error, freedom = trimmed(clusters)
    half = stdtrit(freedom, (1 + level) / 2) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(error > 0, 2 * stdtr(freedom, -np.abs(center) / error), np.where(center == 0, 1.0, 0.0))
    return center, center - half, center + half, p


def interval(effects: Floats, sets: Ints, level: float = 0.99) -> Interval:
    """Return the effect of rounds, clustered by process set, with its interval."""
    medians = cluster_medians(effects, sets)
    if len(medians) < 2:
        center = float(medians[0]) if len(medians) else 0.0
        return Interval(center, -np.inf, np.inf, 1.0, len(medians))
    effect, low, high, p = (float(value) for value in trimmed_interval(medians, level))
    return Interval(effect, low, high, p, len(medians))


def unpaired_interval(base: Floats, new: Floats, level: float = 0.99) -> Interval:
    """Return the difference of the sets' effects of two sessions, new less base; [sets] each, Welch's degrees."""
    from scipy.special import stdtr, stdtrit

    count = min(len(base), len(new))
    if count < 2:
        return Interval(0.0, -np.inf, np.inf, 1.0, count)
    (a, error_a, free_a), (b, error_b, free_b) = trimmed(base), trimmed(new)
    effect, variance = float(b - a), float(error_a**2 + error_b**2)
    if variance == 0:
        return Interval(effect, effect, effect, float(effect == 0), count)
    freedom = variance**2 / float(error_a**4 / free_a + error_b**4 / free_b)
    half = float(stdtrit(freedom, (1 + level) / 2)) * variance**0.5
    p = float(2 * stdtr(freedom, -abs(effect) / variance**0.5))
    return Interval(effect, effect - half, effect + half, p, count)


def spread(times_ns: ArrayLike) -> Spread:
    """Return quartiles and the number of outliers; [rounds], at least one."""
    times = np.asarray(times_ns, dtype=np.float64)
    q1, middle, q3 = (float(value) for value in np.quantile(times, [0.25, 0.5, 0.75]))
    away = np.abs(times - middle)
    # 1.4826 times the MAD is the standard deviation of a normal distribution.
    limit = OUTLIER_MADS * 1.4826 * float(np.median(away))
    return Spread(q1, middle, q3, int(np.sum(away > limit)) if limit else int(np.sum(away > 0)))


def spark(values: ArrayLike, width: int = 16) -> str:
    """Draw values in order as one line of bars, from the least to the greatest; `width` medians of neighbors."""
    given = np.asarray(values, dtype=np.float64)
    if not len(given):
        return ""
    points = np.array([np.median(part) for part in np.array_split(given, min(width, len(given)))])
    low, high = float(points.min()), float(points.max())
    if high == low:
        return _BARS[0] * len(points)
    steps = np.minimum(((points - low) / (high - low) * len(_BARS)).astype(int), len(_BARS) - 1)
    return "".join(_BARS[step] for step in steps)


def false_discoveries(ps: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p of each of the tests of one report."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(ps), method="bh")] if ps else []
