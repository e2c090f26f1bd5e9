"""The command line: one thin function a verb. Heavy modules are imported inside them, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import __version__
from harness.errors import AssayError, CaseFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.case.expand import Instance
    from harness.known import Entry
    from harness.recording.folder import Recording

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(
    context_settings=_CONTEXT,
    epilog="""\b
Examples:
  assay run                                    run every case on our own implementation
  assay run --subject mlx-lm                   ... on the installed mlx-lm
  assay run cases/ring --subject mine.py:Mine  ... one folder, on a class of yours
  assay list --kind ring                       what there is
  assay show 'ring/decode-past-the-window[window=4,tokens=2*window]'

\b
Exit codes: 0 all fine, 1 a conformance failure, 2 bad usage, case file or subject,
4 nothing ran, 130 interrupted.""",
)
@click.version_option(__version__, prog_name="metal-assay")
def cli() -> None:
    """Check and time KV caches and kernels against naive baselines."""


def main() -> None:
    """Run the command line; every error of ours ends as one message and an exit code."""
    try:
        cli(prog_name="assay", standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except CaseFileError as error:
        # Each line starts with its place, so that editors can jump to it.
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except AssayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


def _say(line: str, *, nl: bool = True) -> None:
    """Write to stdout; when its reader (`| head`) has seen enough, go on in silence with the same exit code."""
    try:
        click.echo(line, nl=nl)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_paths = click.argument("paths", nargs=-1, metavar="[PATH]...")
_kinds = click.option("--kind", "kinds", multiple=True, metavar="K", help="Only cases of this kind (repeatable).")
_select = click.option(
    "--select",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Only these instances: an id, or a pattern with * and ?.",
)


@cli.command(
    "run",
    epilog="""\b
Examples:
  assay run --subject mlx-lm -j 4
  assay run cases/ring --select 'ring/trim-*' --subject reference --subject mlx-lm
  assay run --benchmark --record speed.jsonl        time what cases list under `time:`
  assay run --resume reports/local/run.jsonl        go on where a run was stopped
  assay run --against from-a-mac/                   compare with what `assay record` saw elsewhere""",
)
@_paths
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="S",
    help="Implementation to run: a name of `assay subjects`, or file.py:Class (repeatable) [default: reference].",
)
@_kinds
@_select
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
@click.option("--allow-code", is_flag=True, help="Let cases run Python functions of files beside them.")
@click.option("--all", "every", is_flag=True, help="Show every failure in full, not two of each sort.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def run_command(
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
    allow_code: bool,
    every: bool,
    quiet: bool,
) -> None:
    """Run cases on one or more subjects and report what differs from the naive baseline."""
    if record is not None and resume is not None:
        raise UsageError("--record starts a record and --resume goes on with one: give one of them")
    if against is not None and (benchmark or resume is not None):
        raise UsageError("--against compares answers, all of them, and no times: leave out --benchmark and --resume")
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
    _switch(instances, metal_text=metal_text, allow_code=allow_code)
    progress = Progress(quiet=quiet)
    target = resume or record or _default_record(names)
    options = Options(
        jobs=jobs or _cores(),
        limits=Limits(time_limit, memory_limit, 0 if benchmark else 1),
        benchmark=benchmark,
        record=None if resume else target,
        resume=resume,
        start=progress.start,
        tick=progress.tick,
    )
    if recording is None:
        options = replace(options, known=_known(instances, whole=not (paths or patterns or kinds)))
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
        _say(line)
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


@cli.command(
    "record",
    epilog="""\b
Examples:
  assay record on-this-mac                       a sample of every case, a few MB
  assay record rings cases/ring --subject mlx-lm
  assay record everything --all                  every instance; large
  assay record on-this-mac --resume              go on after an interruption

\b
Copy the folder to the other machine, and there: assay run --against DIR""",
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@_paths
@click.option("--subject", default="reference", show_default=True, metavar="S", help="Implementation to record.")
@_kinds
@_select
@click.option("--all", "every", is_flag=True, help="Record every instance, not a fixed sample of each case.")
@click.option("--resume", is_flag=True, help="Go on with the recording in DIR.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Worker processes [default: one a core].")
@click.option("--time-limit", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="S")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def record_command(
    folder: Path,
    paths: tuple[str, ...],
    subject: str,
    kinds: tuple[str, ...],
    patterns: tuple[str, ...],
    every: bool,
    resume: bool,
    jobs: int | None,
    time_limit: float,
    quiet: bool,
) -> None:
    """Write down what a subject is given and what it answers, for a comparison on another machine."""
    from harness.case.load import load_cases
    from harness.plugin import SAMPLE
    from harness.pool import Limits
    from harness.progress import Progress
    from harness.recording.runs import LARGEST_BYTES, record
    from harness.report.terminal import report
    from harness.run import Options
    from harness.select import load_selected, sample, select

    if every or patterns:
        instances = load_selected(paths, patterns, kinds)
    else:
        instances = select(load_cases(paths, wanted=lambda ids: sample(ids, SAMPLE)), (), kinds)
    progress = Progress(quiet=quiet)
    options = Options(
        jobs=jobs or _cores(), limits=Limits(time_limit), start=progress.start, tick=progress.tick,
        known=_known(instances, whole=False),
    )  # fmt: skip
    try:
        largest = None if every or patterns else LARGEST_BYTES
        done, writer = record(folder, instances, subject, options, resume=resume, largest_bytes=largest)
    except KeyboardInterrupt:
        progress.stop()
        click.echo("interrupted; what was finished is kept, go on with the same command and --resume", err=True)
        sys.exit(130)
    finally:
        progress.stop()
    for line in report(done):
        _say(line)
    if writer.left_out:
        _say(f"left out: {writer.left_out} instances of more than {LARGEST_BYTES >> 10} KiB (--all records them, too)")
    _say(f"recording: {folder}, {writer.bytes / 2**20:.1f} MiB; elsewhere: assay run --against {folder.name}")
    # With nothing left to do, a recording that is gone on with is finished.
    sys.exit(0 if resume and not done.instances else done.exit_code)


def _switch(instances: Sequence[Instance], *, metal_text: bool, allow_code: bool) -> None:
    """Tell the workers, which inherit this process's environment; raises UsageError for code that is not allowed."""
    from harness.kinds.kernel import files
    from harness.worker import METAL_TEXT_VARIABLE

    if metal_text:
        os.environ[METAL_TEXT_VARIABLE] = "1"
    if allow_code:
        files.allow_code()
    files.refuse_code(instances)


def _subjects_of(record: Path | None, recording: Recording | None) -> list[str]:
    if recording is not None:
        return [recording.subject]
    if record is None:
        return ["reference"]
    from harness.record import read_record

    return list(read_record(record).header.get("versions", {})) or ["reference"]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _default_record(subjects: Sequence[str]) -> Path:
    from datetime import UTC, datetime

    folder = Path("reports/local") if Path("reports").is_dir() else Path(".assay")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = "-".join(Path(name.rpartition(":")[0]).stem if ":" in name else name for name in subjects)
    return folder / f"{stamp}-{label}.jsonl"


def _known(instances: Sequence[Instance], *, whole: bool) -> Callable[[str, dict[str, str]], list[Entry]]:
    """Return how to find a subject's known failures, listed beside the cases; checked whole only in a whole run."""
    from harness.case.load import root_of
    from harness.known import known_path, load_known

    root = root_of(Path(instances[0].path))

    def find(subject: str, versions: dict[str, str]) -> list[Entry]:
        path = known_path(root, subject)
        if ":" in subject or not path.is_file():
            return []
        return load_known(path, versions.get(subject), [instance.id for instance in instances] if whole else None)

    return find


@cli.command("list", epilog="\b\nExamples:\n  assay list\n  assay list cases/ring --instances")
@_paths
@_kinds
@_select
@click.option("--instances", "each", is_flag=True, help="List every instance, not every case.")
def list_command(paths: tuple[str, ...], kinds: tuple[str, ...], patterns: tuple[str, ...], each: bool) -> None:
    """List cases: name, number of instances, title."""
    from collections import Counter

    from tabulate import tabulate

    from harness.select import load_selected

    instances = load_selected(paths, patterns, kinds)
    if each:
        for instance in instances:
            _say(instance.id)
        return
    count = Counter(instance.case_name for instance in instances)
    titles = {instance.case_name: instance.case.title for instance in instances}
    rows = [[name, number, titles[name]] for name, number in count.items()]
    _say(tabulate(rows, headers=["case", "instances", "title"], tablefmt="simple", maxcolwidths=[None, None, 70]))
    _say(f"\n{len(count)} cases, {len(instances)} instances")


@cli.command("show", epilog="\b\nExample:\n  assay show 'ring/decode-past-the-window[window=4,tokens=2*window]'")
@click.argument("instance_id", metavar="CASE[INSTANCE]")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def show_command(instance_id: str, paths: tuple[str, ...]) -> None:
    """Show one instance: why it exists, what happens in it, what is checked."""
    import textwrap

    from harness.kinds import get_kind
    from harness.select import load_selected

    instance = load_selected(paths, [instance_id], [])[0]
    case = instance.case
    lines = [click.style(instance.id, bold=True), case.title, "", textwrap.fill(case.why.strip(), 100)]
    if case.source:
        lines.append(f"source: {case.source}")
    lines += ["", *get_kind(instance.kind).describe(case), f"file: {instance.path}"]
    for line in lines:
        _say(line)


@cli.command(
    "new", epilog="\b\nExamples:\n  assay new cases/ring/my-behavior.yaml\n  assay new my-behavior.yaml --kind affine"
)
@click.argument("path", required=False, metavar="[PATH]", type=click.Path(path_type=Path))
@click.option("--kind", metavar="K", help="Kind of case [default: the folder's name if it is a kind, else ring].")
def new_command(path: Path | None, kind: str | None) -> None:
    """Write a small case that passes as it stands, to be changed into your own."""
    from harness.new import new_case

    for line in new_case(path, kind):
        _say(line)


@cli.command("subjects", epilog="\b\nExample:\n  assay subjects")
def subjects_command() -> None:
    """List the implementations that `--subject` knows by name."""
    from importlib.metadata import PackageNotFoundError, version

    from tabulate import tabulate

    from harness.subjects.registry import BUILT_IN, subject_names

    rows = []
    for name in subject_names():
        entry = BUILT_IN.get(name)
        package = entry.package if entry else None
        try:
            found = version(package) if package else ""
        except PackageNotFoundError:
            found = f"not installed (pip install {package})"
        rows.append([name, found, entry.about if entry else "from an installed package"])
    _say(tabulate(rows, headers=["subject", "version", "what it is"], tablefmt="simple"))
    _say("\nA class of your own: --subject path/to/file.py:ClassName (a subclass of harness.subjects.protocol.Subject)")


@cli.command("schema", epilog="\b\nExamples:\n  assay schema | less\n  assay schema --write case.schema.json")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def schema_command(write: Path | None) -> None:
    """Print the JSON Schema of case files, for completion in editors."""
    from harness.case.json_schema import schema_text

    if write is None:
        _say(schema_text(), nl=False)
    else:
        try:
            write.write_text(schema_text(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{write}: can't be written: {error.strerror}") from None
        _say(f"wrote {write}")
