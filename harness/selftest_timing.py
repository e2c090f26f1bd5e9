"""The selftest of timing: what verdicts say on this machine where nothing changed, and where a known delay was planted.

Everything is real but the work: the driver, its processes, the rules. Samples are kept in a folder, a record a chunk;
what is complete there is not measured again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from harness.errors import RecordError
from harness.fingerprint import fingerprint
from harness.regress import decide, examine
from harness.regress_session import Context, in_looks
from harness.timing import planted
from harness.timing.plan import TURNS, ArmSpec, Plan
from harness.timing.record import TimingRecord, TimingWriter, different, merged, read_timing_record
from harness.timing.samples import Arm, Role
from harness.verdict import DEFAULT_RULE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.case.expand import Instance
    from harness.regress_session import Measure
    from harness.timing.samples import Timing
    from harness.verdict import Evidence

# Comparisons of nothing with nothing, for one of each planted delay.
SAME_ARMS = 3
DELAYS = (0.05, 0.10)
CHUNK = 34
CALL_NS = 125_000
CHANGES = (0.0, *DELAYS)
_SUBJECT = f"{Path(planted.__file__).resolve()}:Planted"
_CASE = """\
assay: 1
kind: affine
title: Work of known length
why: >
  What verdicts say of it is known beforehand.
matrix:
  seed: [{seeds}]
given: {{dtype: float32, bits: 4, group: 32, outputs: 8, inputs: 64, seed: seed}}
check: [decode]
time: [dequantize]
"""


@dataclass(frozen=True)
class Settings:
    """How much to measure: work of so many sorts, each compared SAME_ARMS times with itself and once with each delay.

    load: keep one core busy meanwhile. seed: order of the visits.
    """

    sorts: int = 102
    sets: int = 16
    load: bool = False
    seed: int = 0


@dataclass
class Counts:
    """Comparisons of one true change: verdicts after each look, how many were confirmed, and other rules.

    What was settled by an earlier look stays as it was.
    """

    change: float
    compared: int = 0
    looks: tuple[dict[Call, int], ...] = field(
        default_factory=lambda: tuple(dict.fromkeys(Call, 0) for _ in DEFAULT_RULE.spent)
    )
    confirmed: int = 0
    alarms: dict[str, int] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)

    @property
    def last(self) -> dict[Call, int]:
        """Verdicts after the last look."""
        return self.looks[-1]


@dataclass(frozen=True)
class Found:
    """The counts by true change, and how long measuring took this time."""

    counts: tuple[Counts, ...]
    seconds: float
    chunks: int
    resumed: int


def run(settings: Settings, folder: Path, *, note: Callable[[str], None], measure: Callable[[Plan], Measure]) -> Found:
    """Measure what is not yet in `folder`, and count; raises RecordError for a folder of another selftest."""
    begun = time.monotonic()
    chunks = [range(start, min(start + CHUNK, settings.sorts)) for start in range(0, settings.sorts, CHUNK)]
    counts = tuple(Counts(change) for change in CHANGES)
    resumed = 0
    with TemporaryDirectory(prefix="assay-selftest-") as place:
        # On an idle core: a busy one would make the delays longer than they are called.
        loops = calibrate(_instances(Path(place), range(1))[0])
        for number, sorts in enumerate(chunks):
            path = folder / f"{number:03}.jsonl"
            record = _complete(path, settings, sorts)
            if record is None:
                note(f"{number + 1} of {len(chunks)}: {len(sorts)} sorts of work")
                plan = _plan(settings, sorts, _instances(Path(place), sorts), loops)
                with _load(settings):
                    record = _measured(path, settings, sorts, measure(plan), note)
            else:
                resumed += 1
            _count(record, counts)
    return Found(counts, time.monotonic() - begun, len(chunks), resumed)


def calibrate(instance: Instance) -> dict[float, int]:
    """Return how far to count for each change, so that a call as a whole takes that much longer."""
    from harness.kinds import get_kind
    from harness.timing.visit import Operation

    prepare = partial(get_kind(instance.kind).timed, instance.case, planted.Planted(), "dequantize", 1)
    rest_ns = min(Operation(prepare).calibrate()[1] for _ in range(3))
    loops = 1000
    while (took := min(_took(partial(planted.count, loops)) for _ in range(21))) < CALL_NS:
        loops = int(1.1 * loops * min(10.0, CALL_NS / took))
    # A share of the whole call, all of it put into the counting.
    return {change: round(loops * (1 + change * (1 + rest_ns / took))) for change in CHANGES}


def _took(work: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - start)


def _instances(place: Path, sorts: range) -> tuple[Instance, ...]:
    from harness.case.load import load_file

    # Below a folder `cases`, so that ids are short.
    file = place / "cases" / "affine" / f"planted-{sorts.start}-{sorts.stop}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_CASE.format(seeds=", ".join(map(str, sorts))), encoding="utf-8")
    return tuple(load_file(file))


def _plan(settings: Settings, sorts: range, instances: tuple[Instance, ...], loops: dict[float, int]) -> Plan:
    arms = [_arm("base", Role.BASELINE, loops[0.0])]
    arms += [_arm(f"same {number}", Role.CANDIDATE, loops[0.0]) for number in range(SAME_ARMS)]
    arms += [_arm(f"slower {delay}", Role.CANDIDATE, loops[delay]) for delay in DELAYS]
    rounds = DEFAULT_RULE.least_rounds
    return Plan(instances, tuple(arms), rounds, settings.sets, settings.seed + sorts.start, batch=CHUNK)


def _arm(name: str, role: Role, loops: int) -> ArmSpec:
    return ArmSpec(Arm(name, role), _SUBJECT, environment=((planted.LOOPS_VARIABLE, str(loops)),))


def _header(settings: Settings, sorts: range) -> dict[str, object]:
    wanted = {
        "sorts": [sorts.start, sorts.stop],
        "sets": settings.sets,
        "turns": TURNS,
        "load": settings.load,
        "seed": settings.seed,
    }
    return {"fingerprint": fingerprint(), "selftest": wanted}


def _complete(path: Path, settings: Settings, sorts: range) -> TimingRecord | None:
    if not path.exists():
        return None
    record = read_timing_record(path)
    header = _header(settings, sorts)
    if record.header.get("selftest") != header["selftest"] or different(record.fingerprint, fingerprint()):
        raise RecordError(f"{path}: is of another selftest or another machine; choose another folder with --samples")
    return record if record.footer is not None else None


def _measured(
    path: Path, settings: Settings, sorts: range, measure: Measure, note: Callable[[str], None]
) -> TimingRecord:
    writer = TimingWriter.create(path, _header(settings, sorts))
    finished = False
    try:

        def keep(timing: Timing, session: int, _part: int) -> None:
            writer.timing(timing, session)

        context = Context(kept=keep, note=note)
        judged = in_looks(measure, context)
        # Of the planted delays it is known that they are there: only alarms about nothing are looked at again.
        alarmed = {
            one.evidence.key
            for one in judged.verdicts
            if _change(one.evidence) == 0.0 and _alone(one.evidence) is Call.SLOWER
        }
        if alarmed:
            in_looks(measure, context, wanted=sorted(alarmed), session=1)
        finished = True
    finally:
        writer.close({} if finished else None)
    return read_timing_record(path)


def _change(one: Evidence) -> float:
    return float(one.candidate.removeprefix("slower ")) if one.candidate.startswith("slower") else 0.0


def _alone(one: Evidence) -> Call:
    """Return the verdict on one comparison that is its whole report: what is counted is the error of each."""
    return decide([one])[0].call


def _count(record: TimingRecord, counts: tuple[Counts, ...]) -> None:
    by_change = {one.change: one for one in counts}
    again = _parts(record, 1)
    for instance, parts in _parts(record, 0).items():
        second = _calls(again[instance]) if instance in again else {}
        early = {one.candidate: one for one in examine(parts[0])}
        for candidate, calls in _calls(parts).items():
            one = early[candidate]
            count = by_change[_change(one)]
            count.compared += 1
            for number, look in enumerate(count.looks):
                look[calls[min(number, len(calls) - 1)]] += 1
            twice = candidate in second and second[candidate][-1] is Call.SLOWER
            count.confirmed += calls[-1] is Call.SLOWER and twice
            if one.base is not None and one.new is not None:
                count.ratios.append(one.new.median_ns / one.base.median_ns)
                for rule, fails in _other_rules().items():
                    alarm = fails(one.base.median_ns, one.new.median_ns)
                    count.alarms[rule] = count.alarms.get(rule, 0) + alarm


def _parts(record: TimingRecord, session: int) -> dict[str, list[Timing]]:
    """Return the parts of each instance's session."""
    parts: dict[str, list[Timing]] = {}
    for number, timing in record.parts:
        if number == session:
            parts.setdefault(timing.instance, []).append(timing)
    return parts


def _calls(parts: list[Timing]) -> dict[str, list[Call]]:
    """Return each candidate's verdict after every look.

    More rounds were measured wherever one candidate was ambiguous; what its neighbors had by then stands.
    """
    found: dict[str, list[Call]] = {}
    so_far = parts[0]
    for look in range(1, len(parts) + 1):
        so_far = so_far if look == 1 else merged(so_far, parts[look - 1])
        for one in examine(so_far, look=look):
            calls = found.setdefault(one.candidate, [])
            settled = calls and calls[-1] is not Call.AMBIGUOUS
            calls.append(calls[-1] if settled else _alone(one))
    return found


def _other_rules() -> dict[str, Callable[[float, float], bool]]:
    """Return pytest-benchmark's own comparison, as its options choose it, on two medians."""
    from pytest_benchmark.utils import parse_compare_fail

    def rule(text: str) -> Callable[[float, float], bool]:
        check = parse_compare_fail(text)
        return lambda base, new: check.fails({"median": new}, {"median": base}) is not None

    return {f"pytest-benchmark {text}": rule(text) for text in ("median:5%", "median:10%")}


@contextmanager
def _load(settings: Settings) -> Iterator[None]:
    """Keep one core busy with a process of its own."""
    if not settings.load:
        yield
        return
    code = f"import os\nparent = {os.getpid()}\nwhile os.getppid() == parent:\n    sum(range(100000))"
    busy = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL)  # noqa: S603 - this Python
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
