"""Today beside a stored baseline of this class of machines, and storing one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.compare_session import (
    drawn_seed,
    measured_bounds,
    measuring,
    note,
    recorded,
    slowdowns,
    timed_instances,
)
from harness.errors import NothingRanError
from harness.fingerprint import fingerprint
from harness.regress_records import APART_EFFECT, Apart, compare_records
from harness.report.timing import TimingReport
from harness.timing.baselines import baseline_path, read_baseline, stored_records, worth_storing
from harness.timing.plan import ArmSpec, Plan
from harness.timing.record import TimingRecord, TimingWriter, quiet_effects, read_timing_record
from harness.timing.samples import Arm, Role
from harness.verdict import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.compare_session import Wanted
    from harness.regress_session import Measure
    from harness.timing.samples import Timing


def against_baseline(wanted: Wanted, folder: Path) -> TimingReport:
    """Measure, and compare with the stored baseline of this class of machines; what got slower is measured again."""
    stored = read_baseline(folder, fingerprint(), wanted.subject)
    chosen = bool(wanted.paths or wanted.patterns or wanted.kinds)
    instances = timed_instances(wanted)
    plan = _plan(wanted, instances)
    effect = wanted.min_effect or APART_EFFECT
    with recorded(wanted, plan, {"subject": wanted.subject}) as kept:
        measure = measuring(plan, quiet=wanted.quiet)
        done = beside_baseline(stored, folder, instances, measure, min_effect=effect, rounds=wanted.rounds, kept=kept)
    left_out = [
        (name, why) for name, why in done.left_out if not chosen or any(name.startswith(i.id) for i in instances)
    ]
    when = stored.header.get("started", "an unknown day")
    weak = (
        f"the baseline was stored {when}, not measured beside this: weak evidence, which only changes of "
        f"{100 * effect:.0f} % and more can use; `--rev A --rev B` interleaves"
    )
    return TimingReport(
        f"the baseline of {when}",
        wanted.subject,
        tuple(done.verdicts),
        fingerprint(),
        left_out=tuple(left_out),
        notes=(weak,),
        interleaved=False,
    )


def beside_baseline(
    stored: TimingRecord,
    folder: Path,
    instances: Sequence[Instance],
    measure: Measure,
    *,
    min_effect: float = APART_EFFECT,
    rounds: int = 16,
    kept: Callable[[Timing, int, int], None] = lambda _timing, _session, _part: None,
) -> Apart:
    """Measure and compare with what is stored; what got slower is measured in a second session, which confirms it.

    A case's `limits.slowdown` takes the place of `min_effect`.
    """
    quiet, own = quiet_effects(stored_records(folder, fingerprint())), slowdowns(instances)

    def compared(new: TimingRecord, again: TimingRecord | None = None) -> Apart:
        return compare_records(stored, new, again=again, min_effect=min_effect, quiet_effects=quiet, slowdowns=own)

    new = _filled(measure(None, rounds=rounds, session=0, part=0), kept)
    done = compared(new)
    slower = list(dict.fromkeys(v.evidence.key for v in done.verdicts if v.call is Call.SLOWER))
    if not slower:
        return done
    note(f"{len(slower)} got slower: a second session shows whether that holds")
    return compared(new, _filled(measure(slower, rounds=rounds, session=1, part=0), kept))


def _filled(timings: Iterable[Timing], kept: Callable[[Timing, int, int], None]) -> TimingRecord:
    record = TimingRecord({"fingerprint": fingerprint()})
    for timing in timings:
        record.parts.append((0, timing))
        kept(timing, 0, 0)
    return record


def store_baseline(wanted: Wanted, folder: Path) -> str:
    """Measure and store; says what was stored. Wrong answers, impossible times and few rounds make no baseline.

    What is stored of other instances stays.
    """
    instances = timed_instances(wanted)
    path = baseline_path(folder, fingerprint(), wanted.subject)
    plan = _plan(wanted, instances)
    with recorded(wanted, plan, {"subject": wanted.subject}) as kept:
        measure = measuring(plan, quiet=wanted.quiet)
        found = _filled(measure(None, rounds=wanted.rounds, session=0, part=0), kept)
    bounds = measured_bounds()
    unfit = worth_storing(found)
    unfit += [f"{t.instance} {t.operation}: {why}" for t in found.timings().values() if (why := bounds(t))]
    if unfit or not found.parts:
        raise NothingRanError("no baseline was stored:\n" + "\n".join(f"  {line}" for line in unfit or ["no timing"]))
    earlier = read_timing_record(path).timings() if path.is_file() else {}
    stored = {**earlier, **found.timings()}
    # Whole or not at all: the old baseline stays until the new one is complete.
    draft = path.with_suffix(".part")
    draft.unlink(missing_ok=True)
    writer = TimingWriter.create(draft, {"fingerprint": fingerprint(), "subject": wanted.subject, "seed": plan.seed})
    for timing in stored.values():
        writer.timing(timing)
    writer.close({"timings": len(stored)})
    draft.replace(path)
    return f"stored {len(found.parts)} timings in {path}, which has {len(stored)}"


def _plan(wanted: Wanted, instances: Sequence[Instance]) -> Plan:
    arm = ArmSpec(Arm(wanted.subject, Role.BASELINE), wanted.subject)
    return Plan(tuple(instances), (arm,), wanted.rounds, wanted.sets, drawn_seed(wanted))
