"""What verdicts are worth on a noisy machine, by simulation: ``python -m tests.bench.verdict_simulation``.

The machine is described by `Machine`; every trial makes the samples of one comparison and gives them to the real rules,
and to the rules of other tools in the order in which those measure: one arm after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
import numpy as np
from scipy.signal import lfilter
from scipy.stats import bootstrap, mannwhitneyu
from tabulate import tabulate

from harness.regress_session import Context, in_looks, with_confirmation
from harness.stats import trimmed_interval
from harness.timing.plan import TURNS
from harness.timing.samples import Arm, Role, Timing, Visit
from harness.verdict import DEFAULT_RULE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from harness.timing.record import Key

    Floats = NDArray[np.float64]

ARMS = (
    Arm("base", Role.BASELINE),
    Arm("base again", Role.CONTROL),
    Arm("new", Role.CANDIDATE),
    Arm("canary", Role.CANARY),
)
CANDIDATE = 2
CALL_NS = 1e6
SERIAL_SAMPLES = 80


@dataclass(frozen=True)
class Machine:
    """Noise of a machine, as shares of the time of a visit.

    drift: standard deviation of an AR(1) process over visits, that each visit remembers to `memory`. jitter: of each
    visit alone. spikes: share of visits that take longer, by an exponential of mean `spike`. steps: share of visits
    at which the machine goes over to its other level, `step` slower, or back. bias: standard deviation of what each
    process is slower or faster by for as long as it lives.
    """

    name: str
    drift: float = 0.03
    memory: float = 0.95
    jitter: float = 0.01
    spikes: float = 0.05
    spike: float = 0.10
    steps: float = 0.005
    step: float = 0.12
    bias: float = 0.02

    def course(self, rng: np.random.Generator, visits: int) -> Floats:
        """Log of how much longer each of `visits` visits in a row takes, processes left out of account; [visits]."""
        pushes = rng.normal(0, self.drift * np.sqrt(1 - self.memory**2), visits)
        pushes[0] = rng.normal(0, self.drift)
        course: Floats = lfilter([1.0], [1.0, -self.memory], pushes)
        course += self.step * (np.cumsum(rng.random(visits) < self.steps) % 2)
        course += rng.normal(0, self.jitter, visits)
        return course + (rng.random(visits) < self.spikes) * rng.exponential(self.spike, visits)


QUIET = Machine("quiet", drift=0.005, jitter=0.005, spikes=0.01, steps=0.0, bias=0.005)
SHARED = Machine("shared")
ROUGH = Machine("rough", drift=0.08, memory=0.9, jitter=0.04, spikes=0.15, spike=0.3, steps=0.02, bias=0.03)
# As virtual machines on a busy host are: at half their pace every other tenth of a second.
TWO_PACED = Machine("two-paced", drift=0.02, jitter=0.08, spikes=0.05, spike=0.2, steps=0.03, step=0.7, bias=0.005)
MACHINES = (QUIET, SHARED, ROUGH)


def sample(
    machine: Machine,
    rng: np.random.Generator,
    change: float,
    *,
    rounds: int,
    sets: int,
    turns: int = 1,
    name: str = "simulated",
) -> Timing:
    """Return the samples of one interleaved comparison; the candidate's time is changed by the share `change`."""
    order = rng.permuted(np.tile(np.arange(len(ARMS)), (rounds * turns, 1)), axis=1)
    log_ns = machine.course(rng, order.size).reshape(order.shape) + np.where(order == CANDIDATE, np.log1p(change), 0.0)
    bias = rng.normal(0, machine.bias, (sets, len(ARMS)))
    visits = []
    for one, arms in enumerate(order.tolist()):
        number, turn = divmod(one, turns)
        process = number * sets // rounds
        for position, arm in enumerate(arms):
            took_ns = int(CALL_NS * np.exp(log_ns[one, position] + bias[process, arm]))
            visits.append(Visit(ARMS[arm].name, process, number, position, 1, took_ns, turn))
    return Timing(name, "0", "work", False, ARMS, tuple(visits), overhead_ns=1000, seed=0)


@dataclass
class Simulated:
    """Measures by drawing samples; fits `harness.regress_session.Measure`."""

    machine: Machine
    rng: np.random.Generator
    changes: Sequence[float]
    sets: int = 16
    turns: int = 1

    def __call__(self, wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
        """Yield a timing for each change."""
        del session, part
        names = None if wanted is None else {key[0] for key in wanted}
        for index, change in enumerate(self.changes):
            name = f"work[n={index}]"
            if names is None or name in names:
                how = {"rounds": rounds, "sets": self.sets, "turns": self.turns}
                yield sample(self.machine, self.rng, change, **how, name=name)


def shares(
    machine: Machine,
    change: float,
    *,
    trials: int,
    sets: int = 16,
    turns: int = 1,
    looks: int = 1,
    confirm: bool = False,
    seed: int = 1,
) -> dict[Call, float]:
    """Return the share of each verdict, one comparison a report."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(Call, 0)
    # Fewer looks, with what each may spend left as it is.
    rule = replace(DEFAULT_RULE, spent=DEFAULT_RULE.spent[:looks]) if looks < len(DEFAULT_RULE.spent) else DEFAULT_RULE
    for _ in range(trials):
        measure = Simulated(machine, rng, [change], sets, turns)
        done = with_confirmation(measure, Context(rule)) if confirm else in_looks(measure, Context(rule))
        counts[done.verdicts[0].call] += 1
    return {call: count / trials for call, count in counts.items()}


def serial(machine: Machine, rng: np.random.Generator, change: float) -> tuple[Floats, Floats]:
    """Return times of two arms measured one after the other, each in one process; [samples] each."""
    course = machine.course(rng, 2 * SERIAL_SAMPLES).reshape(2, -1) + rng.normal(0, machine.bias, (2, 1))
    return np.exp(course[0]), np.exp(course[1]) * (1 + change)


def pytest_benchmark_rule(base: Floats, new: Floats) -> bool:
    """`--benchmark-compare-fail=median:10%`."""
    return bool(np.median(new) > 1.1 * np.median(base))


def u_test_rule(base: Floats, new: Floats) -> bool:
    """google/benchmark's compare.py: U test at 5 %, and the median went up."""
    return bool(mannwhitneyu(base, new).pvalue < 0.05 and np.median(new) > np.median(base))


def asv_rule(base: Floats, new: Floats) -> bool:
    """Asv's default: U test at 0.2 % and a factor of 1.1."""
    return bool(mannwhitneyu(base, new).pvalue < 0.002 and np.median(new) > 1.1 * np.median(base))


OTHERS: dict[str, Callable[[Floats, Floats], bool]] = {
    "pytest-benchmark's compare, median:10%": pytest_benchmark_rule,
    "U test, p < 0.05": u_test_rule,
    "asv: U test, p < 0.002, and 1.1x": asv_rule,
}


def alarms(
    rule: Callable[[Floats, Floats], bool], machine: Machine, change: float, trials: int, seed: int = 1
) -> float:
    """Return the share of serial comparisons that a rule calls slower."""
    rng = np.random.default_rng(seed)
    return sum(rule(*serial(machine, rng, change)) for _ in range(trials)) / trials


def misses(sets: int, trials: int, *, resampled: bool, machine: Machine = SHARED, seed: int = 1) -> float:
    """Return how often a 99 % interval over `sets` process sets leaves out the true effect, 0."""
    rng = np.random.default_rng(seed)
    effects = np.empty((trials, sets))
    for trial in range(trials):
        course = machine.course(rng, 2 * sets).reshape(sets, 2) + rng.normal(0, machine.bias, (sets, 2))
        effects[trial] = course[:, 1] - course[:, 0]
    if not resampled:
        _, low, high, _ = trimmed_interval(effects, 0.99)
        return float(np.mean((low > 0) | (high < 0)))
    found = bootstrap(
        (effects,), np.median, axis=1, confidence_level=0.99, n_resamples=5000, method="percentile", rng=rng, batch=50
    ).confidence_interval
    return float(np.mean((found.low > 0) | (found.high < 0)))


@click.command()
@click.option("--trials", default=2000, show_default=True, help="Comparisons a cell.")
@click.option("--seed", default=1, show_default=True)
def main(trials: int, seed: int) -> None:
    """Print three tables: verdicts by machine (one turn a round unless named), other rules, what intervals miss."""
    rows = []
    for machine, label, options in _rows():
        found = [shares(machine, change, trials=trials, seed=seed, **options) for change in (0, 0.05, 0.1)]  # type: ignore[arg-type]  # of `_rows`
        cells = [_percent(shown[Call.SLOWER]) for shown in found]
        rows.append([machine.name, label, *cells, _percent(found[0][Call.FASTER]), _percent(found[0][Call.SAME])])
        click.echo(f"{machine.name}, {label}", err=True)
    headers = ["machine", "rounds", "SLOWER at 0 %", "at 5 %", "at 10 %", "FASTER at 0 %", "SAME at 0 %"]
    click.echo(tabulate(rows, headers, tablefmt="github", colalign=["left"] * 2 + ["right"] * 5))
    click.echo(f"\nRules of others, {SERIAL_SAMPLES} samples an arm, one arm after the other: share called slower\n")
    table = [
        [machine.name, name, *(_percent(alarms(rule, machine, change, trials, seed)) for change in (0, 0.05, 0.1))]
        for machine in MACHINES
        for name, rule in OTHERS.items()
    ]
    click.echo(tabulate(table, ["machine", "rule", "0 %", "5 %", "10 %"], tablefmt="github"))
    click.echo("\n99 % intervals that leave the truth out, shared machine, one round a set of processes\n")
    intervals = [
        [
            sets,
            _percent(misses(sets, trials, resampled=True, seed=seed)),
            _percent(misses(sets, trials, resampled=False, seed=seed)),
        ]
        for sets in (4, 8, 16, 48)
    ]
    click.echo(tabulate(intervals, ["sets", "bootstrap of the median", "trimmed t"], tablefmt="github"))


def _rows() -> Iterator[tuple[Machine, str, dict[str, object]]]:
    for machine in MACHINES:
        yield machine, "16 rounds", {"looks": 1}
        yield machine, "up to 48", {"looks": 3}
        yield machine, "up to 48, confirmed", {"looks": 3, "confirm": True}
        yield machine, "16 rounds in 4 sets", {"looks": 1, "sets": 4}
    for turns in (1, 5, TURNS):
        yield TWO_PACED, f"16 rounds of {turns} turns", {"looks": 1, "turns": turns}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


if __name__ == "__main__":
    main()
