"""The record of a run: JSON lines, one header, one line an instance, one footer.

Every line is written whole as soon as it is known, so a run that is killed has lost nothing but the instances that
were under way; `--resume` reads the record and goes on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from harness.errors import RecordError
from harness.outcome import Finding, KernelChecks, KernelFault, KernelPlace, Outcome, Result, Rounds

if TYPE_CHECKING:
    from pathlib import Path

    from harness.case.expand import Instance

RECORD_VERSION = 1


@dataclass(frozen=True)
class Format:
    """A sort of record: the key that its first line starts with, its version, and the command that makes one."""

    mark: str
    version: int
    made_by: str

    def begins(self, data: bytes) -> bool:
        """Whether these are the first bytes of such a record."""
        return data.startswith(f'{{"{self.mark}"'.encode())


RUN_RECORD = Format("assay_record", RECORD_VERSION, "assay run --record")


@dataclass
class Record:
    """A record as read back: header, results by (subject, instance id), digests of their instances, footer."""

    header: dict[str, Any]
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    footer: dict[str, Any] | None = None

    def holds(self, subject: str, instance: Instance) -> bool:
        """Whether this instance, unchanged, has a result on this subject."""
        return self.digests.get((subject, instance.id)) == instance.digest


class RecordWriter:
    """Appends lines to a record file; each line reaches the operating system before the next is made."""

    format: ClassVar[Format] = RUN_RECORD

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._file = file

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> Self:
        """Start a new record; raises RecordError when the file can't be written or is something else."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size and not is_record(path, cls.format):
                raise RecordError(f"{path}: exists and is no record of ours; it is left alone, choose another name")
            file = path.open("wb")
        except OSError as error:
            raise RecordError(f"{path}: can't be written: {error.strerror}") from None
        writer = cls(path, file)
        writer.write({cls.format.mark: cls.format.version, "started": now(), **header})
        return writer

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on with a record; a last line that was cut off is taken away first."""
        try:
            whole = path.read_bytes().rfind(b"\n") + 1
            file = path.open("r+b")
        except OSError as error:
            raise RecordError(f"{path}: can't be written: {error.strerror}") from None
        file.truncate(whole)
        file.seek(whole)
        writer = cls(path, file)
        writer.write({"resumed": now()})
        return writer

    def write(self, line: dict[str, Any]) -> None:
        """Write one line."""
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        # What a subject said may hold halves of characters; as \udc80 they are valid JSON.
        self._file.write(text.encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    def result(self, subject: str, instance: Instance, result: Result) -> None:
        """Write the line of one instance."""
        line: dict[str, Any] = {
            "id": instance.id,
            "subject": subject,
            "outcome": str(result.outcome),
            "digest": instance.digest,
            "comparisons": result.comparisons,
            "seconds": round(result.seconds, 6),
        }
        if result.reason:
            line["reason"] = result.reason
        if result.findings:
            line["findings"] = [asdict(finding) for finding in result.findings]
        if result.rounds:
            line["rounds"] = [asdict(rounds) for rounds in result.rounds]
        if result.output:
            line["output"] = result.output
        if result.versions:
            line["versions"] = result.versions
        if result.checks is not None:
            line["kernel_checks"] = asdict(result.checks)
        self.write(line)

    def close(self, footer: dict[str, Any] | None) -> None:
        """Write the footer (None: the run was interrupted) and close the file."""
        if footer is not None:
            self.write({"finished": now(), **footer})
        self._file.close()


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_record(path: Path, form: Format) -> bool:
    """Whether a file is a record of this sort."""
    with path.open("rb") as file:
        return form.begins(file.read(64))


def read_record(path: Path) -> Record:
    """Read a record; raises RecordError naming the line that is wrong. A last line that was cut off is ignored."""
    values = read_lines(path, RUN_RECORD)
    record = Record(values[0])
    for number, value in enumerate(values[1:], start=2):
        if "id" in value:
            try:
                _take(record, value)
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(f"{path}:{number}: is no result of ours: {error!r}") from None
        elif "finished" in value:
            record.footer = value
        elif "resumed" in value:
            record.footer = None
        else:
            raise RecordError(f"{path}:{number}: is neither a result nor a footer")
    return record


def read_lines(path: Path, form: Format) -> list[dict[str, Any]]:
    """Return the lines of a record, the header first; raises RecordError naming the line that is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}") from None
    lines = data.split(b"\n")
    if not form.begins(data) or len(lines) < 2:
        raise RecordError(f"{path}:1: is no record: the first line must be the header of one (`{form.made_by}`)")
    # What follows the last newline is empty, or a line that was being written when the run was killed.
    values = [_parse(path, number, line) for number, line in enumerate(lines[:-1], start=1)]
    version = values[0][form.mark]
    if version != form.version:
        raise RecordError(f"{path}:1: is a record of version {version}; this release reads {form.version}")
    return values


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordError(f"{path}:{number}: is not JSON; the record is damaged") from None
    if not isinstance(value, dict):
        raise RecordError(f"{path}:{number}: is not a JSON object; the record is damaged")
    return value


def _take(record: Record, value: dict[str, Any]) -> None:
    key = (value["subject"], value["id"])
    record.digests[key] = value["digest"]
    record.results[key] = Result(
        Outcome(value["outcome"]),
        value.get("reason", ""),
        tuple(Finding(**finding) for finding in value.get("findings", ())),
        int(value["comparisons"]),
        float(value["seconds"]),
        tuple(Rounds(r["operation"], r["calls"], tuple(r["round_ns"])) for r in value.get("rounds", ())),
        value.get("output", ""),
        dict(value.get("versions", {})),
        _checks(value["kernel_checks"]) if "kernel_checks" in value else None,
    )


def _checks(value: dict[str, Any]) -> KernelChecks:
    faults = tuple(
        KernelFault(**{**fault, "places": tuple(KernelPlace(**place) for place in fault["places"])})
        for fault in value["faults"]
    )
    words = {key: tuple(value[key]) for key in ("kernels", "orders", "skipped")}
    return KernelChecks(launches=int(value["launches"]), faults=faults, **words)
