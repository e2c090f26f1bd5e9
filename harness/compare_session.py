"""What comparisons that measure share: what is wanted, how it is measured, where its samples are kept."""

from __future__ import annotations

import math
import secrets
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.errors import NothingRanError
from harness.fingerprint import fingerprint
from harness.regress_session import Context
from harness.timing.baselines import stored_records
from harness.timing.record import TimingWriter, quiet_effects
from harness.verdict import DEFAULT_RULE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.regress_session import Measure
    from harness.timing.plan import Plan
    from harness.timing.record import Key
    from harness.timing.samples import Timing
    from harness.verdict import Rule


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for. min_effect 0: the default of what is done. record: where the samples go.

    minutes: of a session, after which no further look is begun.
    """

    paths: tuple[str, ...]
    patterns: tuple[str, ...]
    kinds: tuple[str, ...]
    subject: str
    rounds: int
    sets: int
    seed: int | None
    min_effect: float
    record: Path
    quiet: bool
    minutes: float = math.inf

    def rule(self) -> Rule:
        """Return the rule of an interleaved comparison."""
        return replace(DEFAULT_RULE, min_effect=self.min_effect or DEFAULT_RULE.min_effect, least_rounds=self.rounds)


def note(text: str) -> None:
    """Tell what is being done, beside the report."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress


def timed_instances(wanted: Wanted) -> list[Instance]:
    """Return the chosen instances that say what to time; raises NothingRanError when there is none."""
    from harness.select import load_selected

    chosen = load_selected(wanted.paths, wanted.patterns, wanted.kinds)
    timed = [instance for instance in chosen if getattr(instance.case, "time", None)]
    if not timed:
        raise NothingRanError(f"none of the {len(chosen)} chosen instances has `time:`, so there is nothing to compare")
    return timed


def measuring(plan: Plan, *, quiet: bool) -> Measure:
    """Return how to measure a plan, or the part of it that is wanted; progress is shown unless `quiet`."""

    def measure(wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
        from harness.timing.driver import measure as drive
        from harness.timing.progress import TimingProgress

        sets = min(plan.processes, rounds)
        share = replace(plan, rounds=rounds, processes=sets, session=session, part=part)
        with TimingProgress(quiet=quiet) as progress:
            yield from drive(share, wanted=wanted, watcher=progress.watcher)

    return measure


def drawn_seed(wanted: Wanted) -> int:
    """Return the seed that was given, or draw one, and print it."""
    seed = secrets.randbelow(2**16) if wanted.seed is None else wanted.seed
    note(f"seed {seed}")
    return seed


def context(
    wanted: Wanted, instances: Sequence[Instance], baselines: Path, kept: Callable[[Timing, int, int], None]
) -> Context:
    """Return what judging needs."""
    return Context(
        wanted.rule(),
        quiet_effects=quiet_effects(stored_records(baselines, fingerprint())),
        slowdowns=slowdowns(instances),
        impossible=measured_bounds(),
        seconds=60 * wanted.minutes,
        kept=kept,
        note=note,
    )


def measured_bounds() -> Callable[[Timing], str]:
    """Return what says of a timing why it can't be true, from what this machine was measured to do."""
    from functools import partial

    from harness.timing.machine import known_machine
    from harness.timing.physical import Bounds

    return Bounds(known_machine(), partial(known_machine, refresh=True))


def slowdowns(instances: Sequence[Instance]) -> dict[str, float]:
    """Return `limits.slowdown` of the cases that have it."""
    found = {one.case_name: one.case.limits.slowdown for one in instances}
    return {name: share for name, share in found.items() if share is not None}


@contextmanager
def recorded(wanted: Wanted, plan: Plan, more: Mapping[str, object]) -> Iterator[Callable[[Timing, int, int], None]]:
    """Keep every timing in a record as it comes."""
    header = {"fingerprint": fingerprint(), "seed": plan.seed, "rounds": wanted.rounds, "processes": wanted.sets}
    writer = TimingWriter.create(wanted.record, {**header, **more})
    finished = False
    try:
        yield lambda timing, session, _part: writer.timing(timing, session)
        finished = True
    finally:
        writer.close({} if finished else None)
        note(f"samples: {wanted.record}")
