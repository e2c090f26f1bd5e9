"""`assay selftest`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.errors import UsageError
from harness.verbs.common import say


@click.group("selftest", epilog="\b\nExamples:\n  assay selftest timing")
def command() -> None:
    """Test on this machine what this project promises."""


@command.command(
    "timing",
    epilog="""\b
Examples:
  assay selftest timing                    40 minutes on a noisy machine with two cores
  assay selftest timing --load             with another process on one of the cores
  assay selftest timing --sorts 8          a quick look

\b
Stopped, it goes on where it was when it is called again.""",
)
@click.option("--sorts", type=click.IntRange(1), default=102, show_default=True,
              help="Sorts of work: each makes three comparisons of nothing and one of each delay.")  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(4, 16), default=16, show_default=True, help="Sets of processes a look."
)
@click.option("--load", is_flag=True, help="Keep one core busy with another process.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Order of the visits.")
@click.option("--samples", type=click.Path(file_okay=False, path_type=Path),
              help="Where samples are kept [default: in reports/local/ or .assay/].")  # fmt: skip
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path),
              help="Where the report goes [default: reports/timing-selftest.md, or ...-load.md].")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def timing(
    sorts: int, processes: int, load: bool, seed: int, samples: Path | None, markdown: Path | None, quiet: bool
) -> None:
    """Compare work with itself and with planted delays, and count what is said of it."""
    from harness import selftest_timing
    from harness.compare_session import measuring
    from harness.fingerprint import fingerprint
    from harness.report import selftest

    settings = selftest_timing.Settings(sorts, processes, load, seed)
    base = Path("reports/local") if Path("reports").is_dir() else Path(".assay")
    name = "-load" if load else ""
    folder = samples or base / f"selftest-timing{name}"
    target = markdown or Path(f"reports/timing-selftest{name}.md")

    def note(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    try:
        found = selftest_timing.run(settings, folder, note=note, measure=lambda plan: measuring(plan, quiet=quiet))
    except KeyboardInterrupt:
        click.echo(f"interrupted; what was finished is kept in {folder}, the same command goes on with it", err=True)
        sys.exit(130)
    text = selftest.markdown(found, settings, fingerprint())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target}: can't be written: {error.strerror}") from None
    say(text)
    say(f"{found.seconds:.0f} s, {found.resumed} of {found.chunks} parts from {folder}; wrote {target}")
