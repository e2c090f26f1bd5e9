"""The folder of a recording: an index in JSON lines, the cases it was made of, and one file an instance."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness.case.expand import Instance
from harness.case.load import case_files, case_name, default_root, load_file
from harness.case.model import CaseModel
from harness.errors import RecordingError
from harness.outcome import Observed
from harness.record import now
from harness.recording.replay import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.outcome import Result

VERSION = 1
INDEX = "recording.jsonl"


@dataclass
class Recording:
    """The index as read back: its header, one line an instance by id, and its footer (None: it was not finished)."""

    folder: Path
    header: dict[str, Any]
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    footer: dict[str, Any] | None = None

    @property
    def subject(self) -> str:
        """The subject that was recorded."""
        return str(self.header.get("subject", ""))

    def compared(self, instances: Iterable[Instance]) -> dict[str, Recorded]:
        """Return what each of these instances is compared with, or the problem that stands against it."""
        return {instance.id: self._recorded(instance) for instance in instances}

    def _recorded(self, instance: Instance) -> Recorded:
        line = self.lines[instance.id]
        problem = ""
        if line["digest"] != instance.digest:
            problem = (
                f"{instance.path}: the case changed since it was recorded (its content was {line['digest']}, and is "
                f"{instance.digest}); record it again"
            )
        return Recorded(self.folder / line["file"], line["sha256"], problem)

    def holds(self, instance: Instance) -> bool:
        """Whether this instance, unchanged, is recorded."""
        line = self.lines.get(instance.id)
        return line is not None and line["digest"] == instance.digest

    def instances(self, paths: Sequence[str] = ()) -> list[Instance]:
        """Return what was recorded as instances, of the cases that are here; `paths`: only of those.

        Of a case that is not here the recorded text is taken. Raises RecordingError where there is none, or where a
        case has an instance no more.
        """
        here = {case_name(path): path for path in case_files(paths)} if paths else None
        by_case: dict[str, list[str]] = {}
        for instance_id, line in self.lines.items():
            if line.get("file") and not _is_foreign(line) and (here is None or line["case"] in here):
                by_case.setdefault(line["case"], []).append(instance_id)
        found = [_foreign(instance_id, line) for instance_id, line in self.lines.items() if _is_foreign(line, here)]
        for case, ids in by_case.items():
            path = default_root() / f"{case}.yaml" if here is None else here[case]
            found += self._of_case(path if path.is_file() else self.folder / "cases" / f"{case}.yaml", ids)
        return found

    def _of_case(self, path: Path, ids: Sequence[str]) -> list[Instance]:
        if not path.is_file():
            raise RecordingError(f"{path}: is missing, and there is no such case here; copy the recording again")
        instances = {one.id: one for one in load_file(path, wanted=lambda every: set(every) & set(ids))}
        lost = [one for one in ids if one not in instances]
        if lost:
            raise RecordingError(f"{path}: the case changed: it has no instance {lost[0]} any more; record it again")
        return [instances[one] for one in ids]


def _is_foreign(line: Mapping[str, Any], here: object = None) -> bool:
    """Whether a line stands for calls that no case of ours makes; `here` is set where only some cases are asked for."""
    return line.get("foreign") is True and here is None


def _foreign(instance_id: str, line: Mapping[str, Any]) -> Instance:
    title, why = str(line.get("title") or "A foreign recording")[:120], "It was recorded by another program."
    case = CaseModel(assay=1, kind=str(line.get("kind")), title=title, why=why)
    return Instance(instance_id, instance_id, str(line["file"]), case.kind, case, line["digest"])


class RecordingWriter:
    """Writes a recording: first the file of an instance, whole, then its line, so that a line never lies."""

    def __init__(self, folder: Path, had: Recording | None) -> None:
        """Use `create` or `resume`; an instance of more than `largest_bytes` is left out."""
        self.folder = folder
        self.largest_bytes: int | None = None
        self.left_out = 0
        self.bytes = sum(int(line.get("bytes", 0)) for line in had.lines.values()) if had else 0
        self._index = (folder / INDEX).open("ab")

    @classmethod
    def create(cls, folder: Path, header: Mapping[str, Any], instances: Sequence[Instance]) -> Self:
        """Begin in a folder that is new or empty; raises RecordingError when it is not."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                what = "holds a recording already" if (folder / INDEX).is_file() else "is not empty"
                raise RecordingError(f"{folder}: {what}; give a new folder, or go on with a recording by --resume")
            writer = cls(folder, None)
        except OSError as error:
            raise RecordingError(f"{folder}: can't be written: {error.strerror}") from None
        writer._line({"assay_recording": VERSION, "started": now(), **header, "instances": len(instances)})
        writer._copy_cases(instances)
        return writer

    @classmethod
    def resume(cls, folder: Path, header: Mapping[str, Any], instances: Sequence[Instance]) -> Self:
        """Go on with a recording of the same subject; raises RecordingError when it is of another one, or finished."""
        had = read_recording(folder)
        for key in ("subject", "versions", "device"):
            if had.header.get(key) != header[key]:
                was = had.header.get(key)
                raise RecordingError(
                    f"{folder}: was made with {key} {was}, and this is {header[key]}; start a new recording"
                )
        path = folder / INDEX
        with path.open("r+b") as file:
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
        writer = cls(folder, had)
        writer._line({"resumed": now(), "instances": len(instances)})
        writer._copy_cases(instances)
        return writer

    def add(self, instance: Instance, result: Result) -> None:
        """Write what an instance was observed to do; of one that is not supported, only that."""
        line: dict[str, Any] = {
            "id": instance.id,
            "kind": instance.kind,
            "case": case_name(Path(instance.path)),
            "digest": instance.digest,
            "outcome": str(result.outcome),
            "reason": result.reason,
        }
        data = result.file if isinstance(result, Observed) else b""
        size = len(data)
        if self.largest_bytes is not None and size > self.largest_bytes:
            self.left_out += 1
            line["left_out"] = f"{size} bytes, and {self.largest_bytes} is the most without --all or --select"
        elif data:
            name = hashlib.sha256(instance.id.encode()).hexdigest()[:12]
            path = self.folder / "observations" / line["case"] / f"{name}.safetensors"
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(data)
            temporary.replace(path)
            line |= {
                "file": path.relative_to(self.folder).as_posix(),
                "bytes": size,
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            self.bytes += size
        self._line(line)

    def close(self, *, finished: bool) -> None:
        """Write the footer, unless the run was interrupted, and close the index."""
        if finished:
            self._line({"finished": now()})
        self._index.close()

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        self._index.write(text.encode("utf-8", "backslashreplace") + b"\n")
        self._index.flush()

    def _copy_cases(self, instances: Sequence[Instance]) -> None:
        for path in {instance.path: None for instance in instances}:
            target = self.folder / "cases" / f"{case_name(Path(path))}.yaml"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(path).read_bytes())


def read_recording(folder: Path) -> Recording:
    """Read the index; raises RecordingError naming the line that is wrong. A last line that was cut off is ignored."""
    path = folder / INDEX
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"{path}: can't be read: {error.strerror}; `assay record DIR` makes one") from None
    values = [_parsed(path, number, line) for number, line in enumerate(data.split(b"\n")[:-1], start=1)]
    if not values or "assay_recording" not in values[0]:
        raise RecordingError(f"{path}:1: is no recording: its first line must be the header of one")
    if values[0]["assay_recording"] != VERSION:
        was = values[0]["assay_recording"]
        raise RecordingError(f"{path}:1: is a recording of version {was}, and this release reads {VERSION}")
    recording = Recording(folder, values[0])
    for number, value in enumerate(values[1:], start=2):
        if "id" in value:
            needed = ("case", "digest", "outcome", *(("sha256",) if "file" in value else ()))
            lacking = [key for key in needed if not isinstance(value.get(key), str)]
            if lacking:
                raise RecordingError(f"{path}:{number}: {value['id']}: '{lacking[0]}' is missing")
            # A recording may come from anybody, and speaks of files in its own folder only.
            if not all(_inside(Path(value.get(key, "x"))) for key in ("case", "file")):
                raise RecordingError(f"{path}:{number}: {value['id']}: names a file outside the recording")
            recording.lines[str(value["id"])] = value
        elif "finished" in value:
            recording.footer = value
        elif "resumed" in value:
            recording.footer = None
            recording.header["instances"] = value.get("instances", recording.header.get("instances", 0))
        else:
            raise RecordingError(f"{path}:{number}: is neither an instance nor a footer")
    return recording


def _inside(path: Path) -> bool:
    return not path.is_absolute() and ".." not in path.parts


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordingError(f"{path}:{number}: is not JSON; the index is damaged, copy the recording again") from None
    if not isinstance(value, dict):
        raise RecordingError(f"{path}:{number}: is not a JSON object; the index is damaged")
    return value
