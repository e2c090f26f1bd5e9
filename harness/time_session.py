"""One run of `assay time`: what is asked for, its record, and what came of it."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from harness.errors import RecordError
from harness.fingerprint import fingerprint
from harness.timing.driver import measure
from harness.timing.machine import known_machine
from harness.timing.physical import Bounds
from harness.timing.plan import ArmLimits, Plan, arms_of
from harness.timing.progress import TimingProgress
from harness.timing.record import TimingWriter, different, key_of, read_timing_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.timing.machine import Machine
    from harness.timing.record import Key, TimingRecord
    from harness.timing.samples import Timing


@dataclass(frozen=True)
class Asked:
    """What the command line asks for. seed None: draw one, or take that of the record that is gone on with."""

    subjects: list[str]
    baseline: str | None = None
    rounds: int = 16
    processes: int = 8
    seed: int | None = None
    amortized: bool | None = None
    limits: ArmLimits = field(default_factory=ArmLimits)


@dataclass(frozen=True)
class Timed:
    """Timings in the order of the instances, why some can't be true, the machine, and the seed."""

    timings: list[Timing]
    impossible: dict[Key, str]
    machine: Machine
    seed: int
    record: Path | None = None

    @property
    def exit_code(self) -> int:
        """1: an answer was wrong. 4: something could not be timed, or in a time that can't be true. Else 0."""
        if any(timing.wrong for timing in self.timings):
            return 1
        return 4 if self.impossible or not self.timings or any(timing.failed for timing in self.timings) else 0


def time_cases(
    instances: Sequence[Instance], asked: Asked, *, record: Path | None = None, resume: Path | None = None, quiet: bool
) -> Timed:
    """Measure and keep every timing in the record as it comes; raises RecordError where a record does not fit."""
    earlier = None if resume is None else read_timing_record(resume)
    seed = _seed(asked, earlier)
    plan = Plan(
        tuple(instances),
        arms_of(asked.subjects, asked.baseline),
        rounds=asked.rounds,
        processes=asked.processes,
        seed=seed,
        amortized=asked.amortized,
        limits=asked.limits,
    )
    header = {
        "fingerprint": fingerprint(),
        "subjects": [spec.arm.name for spec in plan.arms],
        "seed": seed,
        "rounds": plan.rounds,
        "processes": plan.processes,
        "amortized": plan.amortized,
    }
    done: dict[Key, Timing] = {}
    writer = None
    if earlier is not None and resume is not None:
        _fits(resume, earlier, header)
        digests = {instance.id: instance.digest for instance in instances}
        done = {key: one for key, one in earlier.timings().items() if digests.get(one.instance) == one.case_digest}
        writer = TimingWriter.resume(resume)
    elif record is not None:
        writer = TimingWriter.create(record, header)
    left = {instance.id for instance in instances} - {key[0] for key in done}
    machine, timings = known_machine(), dict(done)
    finished = False
    try:
        with TimingProgress(quiet=quiet) as progress:
            wanted = tuple(instance for instance in instances if instance.id in left)
            for timing in measure(replace(plan, instances=wanted), watcher=progress.watcher):
                timings[key_of(timing)] = timing
                if writer is not None:
                    writer.timing(timing)
        finished = True
    finally:
        if writer is not None:
            writer.close({} if finished else None)
    bounds = Bounds(machine, partial(known_machine, refresh=True))
    impossible = {key: why for key, timing in timings.items() if (why := bounds(timing))}
    order = {instance.id: number for number, instance in enumerate(instances)}
    ordered = sorted(timings.values(), key=lambda timing: order.get(timing.instance, 0))
    return Timed(ordered, impossible, bounds.machine, seed, record or resume)


def _seed(asked: Asked, earlier: TimingRecord | None) -> int:
    if earlier is not None:
        return int(earlier.header.get("seed", 0))
    if asked.seed is not None:
        return asked.seed
    seed = secrets.randbelow(2**16)
    print(f"seed {seed}", file=sys.stderr, flush=True)  # noqa: T201 - it belongs to what is measured
    return seed


def _fits(path: Path, earlier: TimingRecord, header: dict[str, object]) -> None:
    wrong = different(earlier.fingerprint, fingerprint())
    for key in ("subjects", "rounds", "processes", "amortized"):
        if earlier.header.get(key) != header[key]:
            wrong.append(f"{key}: {earlier.header.get(key)} and {header[key]}")
    if wrong:
        raise RecordError(f"{path}: was measured otherwise ({'; '.join(wrong)}); start a new record")
