"""Recording a subject into a folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.recording.folder import RecordingWriter, read_recording
from harness.run import Run, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.outcome import Result
    from harness.run import Options

# Of a sample of every case these are nine in ten instances, and all of it stays below 50 MB.
LARGEST_BYTES = 128 << 10


def record(
    folder: Path,
    instances: Sequence[Instance],
    subject: str,
    options: Options,
    *,
    resume: bool = False,
    largest_bytes: int | None = None,
) -> tuple[Run, RecordingWriter]:
    """Run every instance on `subject` and write what it was observed to do; with `resume`, those that are not there.

    Of an instance whose file would have more than `largest_bytes`, only that is written down.

    Raises RecordingError when the folder holds something else. An interrupted recording lacks its footer, and whatever
    was done until then is in it.
    """
    had = read_recording(folder) if resume else None
    todo = [instance for instance in instances if had is None or not had.holds(instance)]
    writers: list[RecordingWriter] = []

    def opened(header: dict[str, Any]) -> None:
        own = {
            "subject": subject,
            "versions": header["versions"][subject],
            "device": header["devices"][subject],
            "fingerprint": header["fingerprint"],
        }
        begin = RecordingWriter.resume if resume else RecordingWriter.create
        writers.append(begin(folder, own, instances))
        writers[0].largest_bytes = largest_bytes

    def observe(instance: Instance, result: Result) -> None:
        writers[0].add(instance, result)

    finished = False
    try:
        done = run(todo, [subject], replace(options, opened=opened, observe=observe))
        finished = True
    finally:
        for writer in writers:
            writer.close(finished=finished)
    return done, writers[0]
