"""The record of a timing: JSON lines, a header with the machine, one line an operation of an instance, a footer.

All raw samples are kept, so that a verdict can be made again. Confirming sessions and baselines are records as well.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from harness.errors import RecordError
from harness.record import Format, RecordWriter, read_lines
from harness.timing.samples import Arm, Role, Timing, Visit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIMING_RECORD = Format("assay_timing", 1, "assay time --record")
# What a time depends on. Releases of this project and of Python are not machines; their lines are in the header too.
MACHINE_KEYS = ("chip", "cores", "gpu", "gpu_cores", "memory_gib", "system", "architecture", "mlx", "power", "switches")
_COLUMNS = ("arm", "process", "round", "position", "calls", "took_ns", "turn")

Key = tuple[str, str, bool]


@dataclass
class TimingRecord:
    """A record as read back: header, parts of timings in order, footer (None: it was interrupted)."""

    header: dict[str, Any]
    parts: list[tuple[int, Timing]] = field(default_factory=list)
    footer: dict[str, Any] | None = None

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The machine on which this was measured."""
        found: dict[str, Any] = self.header.get("fingerprint", {})
        return found

    def timings(self, session: int = 0) -> dict[Key, Timing]:
        """Return what a session measured, the parts of each timing joined."""
        found: dict[Key, Timing] = {}
        for number, timing in self.parts:
            if number == session:
                key = key_of(timing)
                found[key] = merged(found[key], timing) if key in found else timing
        return found


class TimingWriter(RecordWriter):
    """Appends timings to a record file."""

    format: ClassVar[Format] = TIMING_RECORD

    def timing(self, timing: Timing, session: int = 0) -> None:
        """Write the line of one timing, or of one part of it; session 1 is one that confirms."""
        line = to_json(timing)
        if session:
            line["session"] = session
        self.write(line)


def key_of(timing: Timing) -> Key:
    """Return what was timed: instance, operation, whether amortized."""
    return timing.instance, timing.operation, timing.amortized


def merged(first: Timing, more: Timing) -> Timing:
    """Return both parts of one session as one timing: later process sets and rounds are counted on."""
    if key_of(first) != key_of(more) or first.case_digest != more.case_digest:
        raise ValueError("these are timings of different work")
    process = 1 + max((visit.process for visit in first.visits), default=-1)
    number = 1 + max((visit.round for visit in first.visits), default=-1)
    later = tuple(replace(v, process=v.process + process, round=v.round + number) for v in more.visits)
    wrong = {**dict(more.wrong), **dict(first.wrong)}
    failed = {**dict(more.failed), **dict(first.failed)}
    kept = tuple(visit for visit in first.visits + later if visit.arm not in wrong | failed)
    overhead_ns = max(first.overhead_ns, more.overhead_ns)
    return replace(
        first, visits=kept, wrong=tuple(wrong.items()), failed=tuple(failed.items()), overhead_ns=overhead_ns
    )


def to_json(timing: Timing) -> dict[str, Any]:
    """Return a timing as JSON: visits as columns, an arm by its place in the list of arms."""
    names = [arm.name for arm in timing.arms]
    line: dict[str, Any] = {
        "id": timing.instance,
        "digest": timing.case_digest,
        "operation": timing.operation,
        "amortized": timing.amortized,
        "overhead_ns": timing.overhead_ns,
        "seed": timing.seed,
        "arms": [asdict(arm) for arm in timing.arms],
        "visits": {name: [getattr(visit, name) for visit in timing.visits] for name in _COLUMNS},
    }
    line["visits"]["arm"] = [names.index(visit.arm) for visit in timing.visits]
    for name in ("moved_bytes", "operations"):
        if getattr(timing, name) is not None:
            line[name] = getattr(timing, name)
    if timing.wrong:
        line["wrong"] = [list(pair) for pair in timing.wrong]
    if timing.failed:
        line["failed"] = [list(pair) for pair in timing.failed]
    return line


def from_json(line: Mapping[str, Any]) -> Timing:
    """Return the timing of a line; raises KeyError, TypeError, IndexError or ValueError for what is none."""
    arms = tuple(Arm(arm["name"], Role(arm["role"]), arm.get("about", "")) for arm in line["arms"])
    columns = [line["visits"][name] for name in _COLUMNS if name != "turn" or name in line["visits"]]
    visits = tuple(Visit(arms[arm].name, *rest) for arm, *rest in zip(*columns, strict=True))
    return Timing(
        line["id"],
        line["digest"],
        line["operation"],
        bool(line["amortized"]),
        arms,
        visits,
        int(line["overhead_ns"]),
        int(line["seed"]),
        line.get("moved_bytes"),
        line.get("operations"),
        tuple((arm, why) for arm, why in line.get("wrong", ())),
        tuple((arm, why) for arm, why in line.get("failed", ())),
    )


def read_timing_record(path: Path) -> TimingRecord:
    """Read a record of timings; raises RecordError naming the line that is wrong."""
    values = read_lines(path, TIMING_RECORD)
    record = TimingRecord(values[0])
    for number, value in enumerate(values[1:], start=2):
        if "id" in value:
            try:
                record.parts.append((int(value.get("session", 0)), from_json(value)))
            except (KeyError, TypeError, IndexError, ValueError) as error:
                raise RecordError(f"{path}:{number}: is no timing of ours: {error!r}") from None
        elif "finished" in value:
            record.footer = value
        elif "resumed" in value:
            record.footer = None
        else:
            raise RecordError(f"{path}:{number}: is neither a timing nor a footer")
    return record


def different(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return how two machines differ, in words; empty where their times may be compared."""
    return [
        f"{key}: {first.get(key, 'unknown')} and {second.get(key, 'unknown')}"
        for key in MACHINE_KEYS
        if first.get(key) != second.get(key)
    ]


def machine_slug(fingerprint: Mapping[str, Any]) -> str:
    """Return a name for a class of machines that can be a folder's."""
    words = f"{fingerprint.get('chip', 'unknown')}-{fingerprint.get('cores', 0)}-{fingerprint.get('memory_gib', 0)}gib"
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    known = [f"{key}={fingerprint.get(key)}" for key in MACHINE_KEYS if key in fingerprint]
    return f"{plain}-{hashlib.sha256(repr(known).encode()).hexdigest()[:8]}"


def quiet_effects(records: Sequence[TimingRecord]) -> dict[tuple[str, str], list[float]]:
    """Return |log ratio| of control and baseline in each session of each record, by case and operation."""
    from harness.stats import by_round, interval, round_effects

    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for session in sorted({number for number, _ in record.parts}):
            for timing in record.timings(session).values():
                arms = by_round(timing)
                pair = [arm.name for role in (Role.BASELINE, Role.CONTROL) for arm in timing.of(role)]
                if len(pair) == 2 and all(name in arms for name in pair):
                    effect = interval(*round_effects(arms[pair[0]], arms[pair[1]])).effect
                    case = timing.instance.partition("[")[0]
                    found.setdefault((case, timing.operation), []).append(abs(effect))
    return found
