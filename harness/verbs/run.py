"""`assay run`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError
from harness.verbs.common import (
    check_kernels,
    cores,
    default_record,
    kinds_option,
    known_failures,
    paths_argument,
    say,
    select_option,
    switch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.case.expand import Instance
    from harness.recording.folder import Recording


@click.command(
    "run",
    epilog="""\b
Examples:
  assay run --subject mlx-lm -j 4
  assay run cases/ring --select 'ring/trim-*' --subject reference --subject mlx-lm
  assay run --benchmark --record speed.jsonl        time what cases list under `time:`
  assay run --resume reports/local/run.jsonl        go on where a run was stopped
  assay run --kind kernel --checks                  also watch our kernels while they run
  assay run --subject mine.py:Mine --metal-text --checks    ... those of a package
  assay run --against from-a-mac/                   compare with what `assay record` saw elsewhere""",
)
@paths_argument
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="S",
    help="Implementation to run: a name of `assay subjects`, or file.py:Class (repeatable) [default: reference].",
)
@kinds_option
@select_option
@click.option("-j", "--jobs", type=click.IntRange(1), help="Worker processes [default: one a core].")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Seconds an instance may take.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(64),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Memory a worker may use.",
)
@click.option(
    "--benchmark",
    is_flag=True,
    help="Also time what passes and has `time:`; one worker, so that times are not disturbed.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the record goes [default: reports/local/ or .assay/].",
)
@click.option(
    "--resume", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Go on with the run of this record."
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Do again what this recording holds, and compare with it instead of the baseline.",
)
@click.option(
    "--metal-text",
    is_flag=True,
    help="Let mx.fast.metal_kernel of every package run on this machine, also without a GPU.",
)
@click.option(
    "--checks",
    is_flag=True,
    help="Watch every Metal kernel that an instance launches: memory, races, barriers. With --metal-text those of "
    "every package, else our own.",
)
@click.option("--allow-code", is_flag=True, help="Let cases run Python functions of files beside them.")
@click.option("--all", "every", is_flag=True, help="Show every failure in full, not two of each sort.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    paths: tuple[str, ...],
    subjects: tuple[str, ...],
    kinds: tuple[str, ...],
    patterns: tuple[str, ...],
    jobs: int | None,
    time_limit: float,
    memory_limit: int,
    benchmark: bool,
    record: Path | None,
    resume: Path | None,
    against: Path | None,
    metal_text: bool,
    checks: bool,
    allow_code: bool,
    every: bool,
    quiet: bool,
) -> None:
    """Run cases on one or more subjects and report what differs from the naive baseline."""
    if record is not None and resume is not None:
        raise UsageError("--record starts a record and --resume goes on with one: give one of them")
    if against is not None and (benchmark or resume is not None):
        raise UsageError("--against compares answers, all of them, and no times: leave out --benchmark and --resume")
    if checks and (benchmark or against is not None):
        raise UsageError("--checks makes kernels slow and launches them anew: leave out --benchmark and --against")
    from harness.subjects.registry import check_name

    recording = None if against is None else _recording(against)
    names = list(dict.fromkeys(subjects)) or _subjects_of(resume, recording)
    for name in names:
        check_name(name)
    from harness.pool import Limits
    from harness.progress import Progress
    from harness.report.terminal import report
    from harness.run import Options, Recordings, run

    instances = _instances(paths, patterns, kinds, recording)
    switch(instances, metal_text=metal_text, allow_code=allow_code)
    if checks:
        check_kernels(time_limit)
    progress = Progress(quiet=quiet)
    target = resume or record or default_record(names)
    options = Options(
        jobs=jobs or cores(),
        limits=Limits(time_limit, memory_limit, 0 if benchmark else 1),
        benchmark=benchmark,
        record=None if resume else target,
        resume=resume,
        start=progress.start,
        tick=progress.tick,
    )
    if recording is None:
        options = replace(options, known=known_failures(instances, whole=not (paths or patterns or kinds)))
    else:
        options = replace(options, against=Recordings(recording.folder, recording.compared(instances)))
    try:
        done = run(instances, names, options)
    except KeyboardInterrupt:
        progress.stop()
        if target.exists() and recording is None:
            click.echo(f"interrupted; what was finished is kept, go on with: assay run --resume {target}", err=True)
        sys.exit(130)
    finally:
        progress.stop()
    for line in report(done, every=every):
        say(line)
    sys.exit(_judged(recording, done.exit_code))


def _instances(
    paths: Sequence[str], patterns: Sequence[str], kinds: Sequence[str], recording: Recording | None
) -> list[Instance]:
    from harness.select import load_selected, select

    if recording is None:
        return load_selected(paths, patterns, kinds)
    return select(recording.instances(paths), patterns, kinds)


def _recording(folder: Path) -> Recording:
    from harness.recording.folder import read_recording

    recording = read_recording(folder)
    about = ", ".join(f"{name} {number}" for name, number in recording.header.get("versions", {}).items())
    click.echo(f"against {folder}: {recording.subject} ({about}; {recording.header.get('device')})", err=True)
    return recording


def _judged(recording: Recording | None, exit_code: int) -> int:
    """Return the exit code of a run; a recording that was interrupted can't be compared with in full."""
    if recording is None or recording.footer is not None:
        return exit_code
    click.echo(
        f"{recording.folder}: is incomplete: recording was interrupted after {len(recording.lines)} of "
        f"{recording.header.get('instances')} instances; finish it with `assay record {recording.folder} --resume`",
        err=True,
    )
    return exit_code or 4


def _subjects_of(record: Path | None, recording: Recording | None) -> list[str]:
    if recording is not None:
        return [recording.subject]
    if record is None:
        return ["reference"]
    from harness.record import read_record

    return list(read_record(record).header.get("versions", {})) or ["reference"]
