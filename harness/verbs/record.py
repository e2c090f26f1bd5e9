"""`assay record`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.verbs.common import cores, kinds_option, known_failures, paths_argument, say, select_option


@click.command(
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
@paths_argument
@click.option("--subject", default="reference", show_default=True, metavar="S", help="Implementation to record.")
@kinds_option
@select_option
@click.option("--all", "every", is_flag=True, help="Record every instance, not a fixed sample of each case.")
@click.option("--resume", is_flag=True, help="Go on with the recording in DIR.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Worker processes [default: one a core].")
@click.option("--time-limit", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="S")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
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
        jobs=jobs or cores(), limits=Limits(time_limit), start=progress.start, tick=progress.tick,
        known=known_failures(instances, whole=False),
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
        say(line)
    if writer.left_out:
        say(f"left out: {writer.left_out} instances of more than {LARGEST_BYTES >> 10} KiB (--all records them, too)")
    say(f"recording: {folder}, {writer.bytes / 2**20:.1f} MiB; elsewhere: assay run --against {folder.name}")
    # With nothing left to do, a recording that is gone on with is finished.
    sys.exit(0 if resume and not done.instances else done.exit_code)
