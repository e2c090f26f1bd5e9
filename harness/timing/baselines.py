"""Stored baselines: records of timings in a folder a class of machines, one file a subject."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from harness.errors import NothingRanError
from harness.timing.record import TimingRecord, different, machine_slug, read_timing_record
from harness.timing.samples import Role

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LEAST_ROUNDS = 10


def baseline_path(folder: Path, fingerprint: Mapping[str, Any], subject: str) -> Path:
    """Return where the baseline of a subject on such a machine belongs."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", subject).strip("-.") or "subject"
    return folder / machine_slug(fingerprint) / f"{name}.jsonl"


def read_baseline(folder: Path, fingerprint: Mapping[str, Any], subject: str) -> TimingRecord:
    """Return the stored baseline; raises NothingRanError when there is none of this machine."""
    path = baseline_path(folder, fingerprint, subject)
    if not path.is_file():
        others = sorted(place.parent.name for place in folder.glob(f"*/{path.name}"))
        has = f"; it has {', '.join(others)}" if others else ""
        raise NothingRanError(
            f"{folder}: has no baseline of {subject} for this machine ({path.parent.name}){has}; "
            "`assay compare --save-baseline` stores one"
        )
    return read_timing_record(path)


def stored_records(folder: Path, fingerprint: Mapping[str, Any]) -> list[TimingRecord]:
    """Return every stored record of such a machine; what can't be read is no evidence."""
    found = (read_timing_record(path) for path in sorted((folder / machine_slug(fingerprint)).glob("*.jsonl")))
    return [record for record in found if not different(record.fingerprint, fingerprint)]


def worth_storing(record: TimingRecord) -> list[str]:
    """Return what in a record is no baseline: answers that were wrong, too few rounds."""
    wrong = []
    for timing in record.timings().values():
        (arm,) = timing.of(Role.BASELINE)
        rounds = len({visit.round for visit in timing.visits if visit.arm == arm.name})
        if timing.wrong or timing.failed:
            reasons = "; ".join(why for _, why in (*timing.wrong, *timing.failed))
            wrong.append(f"{timing.instance} {timing.operation}: {reasons}")
        elif rounds < LEAST_ROUNDS:
            wrong.append(f"{timing.instance} {timing.operation}: {rounds} rounds, it takes {LEAST_ROUNDS}")
    return wrong
