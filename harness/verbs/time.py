"""`assay time`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from harness.errors import NothingRanError, UsageError
from harness.verbs.common import kinds_option, paths_argument, say, select_option, switch


@click.command(
    "time",
    epilog="""\b
Examples:
  assay time cases/ring --select '*decode-on-a-full-ring*'
  assay time --subject reference --subject mlx-lm    side by side; the first is the baseline
  assay time --record now.jsonl                      keep all samples, for `assay compare`
  assay time --variants --select 'trellis/projection*'      kernels of products side by side
  assay time --resume now.jsonl                      go on where that was stopped
  assay time --tune                                  find the fastest trellis kernel for shapes on this machine

\b
Exit codes: 0 timed, 1 an answer was wrong, 2 bad usage, 4 nothing to time or impossible times.""",
)
@paths_argument
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="S",
    help="Implementation to time: a name of `assay subjects`, or file.py:Class (repeatable) [default: reference].",
)
@click.option("--baseline", metavar="S", help="The subject that the others are set beside [default: the first].")
@kinds_option
@select_option
@click.option("--rounds", type=click.IntRange(4), default=16, show_default=True, help="Rounds; each visits every arm.")
@click.option(
    "--processes",
    type=click.IntRange(2),
    help="Sets of fresh processes for them [default: one a round to compare subjects, else every other].",
)
@click.option("--seed", type=click.IntRange(0), help="Order of visits, and inputs [default: drawn, and printed].")
@click.option("--variants", is_flag=True, help="Each kernel of trellis products as a subject, SUBJECT@VARIANT.")
@click.option(
    "--tune",
    is_flag=True,
    help="Measure which kernel of trellis products `impl` takes for which shape here, and keep it.",
)
@click.option("--amortized", is_flag=True, help="Queue the calls of a visit and wait once, whatever the cases say.")
@click.option("--time-limit", type=click.FloatRange(min=1), default=120.0, show_default=True, metavar="S",
              help="Seconds that preparing an instance may take.")  # fmt: skip
@click.option("--memory-limit", type=click.IntRange(64), default=4096, show_default=True, metavar="MIB",
              help="Memory an arm may use.")  # fmt: skip
@click.option("--metal-text", is_flag=True, help="Let mx.fast.metal_kernel of every package run on this machine.")
@click.option("--allow-code", is_flag=True, help="Let cases run Python functions of files beside them.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Where all samples go.")
@click.option(
    "--resume", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Go on with the record of a timing."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    paths: tuple[str, ...],
    subjects: tuple[str, ...],
    baseline: str | None,
    kinds: tuple[str, ...],
    patterns: tuple[str, ...],
    rounds: int,
    processes: int | None,
    seed: int | None,
    variants: bool,
    tune: bool,
    amortized: bool,
    time_limit: float,
    memory_limit: int,
    metal_text: bool,
    allow_code: bool,
    record: Path | None,
    resume: Path | None,
    quiet: bool,
) -> None:
    """Time what cases list under `time:`, in rounds over fresh processes that visit every subject.

    Answers are compared before, in between and after; a wrong one has no time. A second copy of the baseline is timed
    as well: what the two differ by is noise.
    """
    if tune:
        if paths or subjects or kinds or patterns or variants or record or resume:
            raise UsageError(
                "--tune measures shapes of its own and stands alone; see `python -m impl.trellis.tune --help`"
            )
        # The harness imports nothing of an implementation; this one tunes itself.
        done = subprocess.run([sys.executable, "-m", "impl.trellis.tune"], check=False)
        sys.exit(0 if done.returncode == 0 else 4)
    if record is not None and resume is not None:
        raise UsageError("--record starts a record and --resume goes on with one: give one of them")
    if processes is not None and processes > rounds:
        raise UsageError(f"--processes {processes}: at most one set of processes a round, and there are {rounds}")
    from harness.report.times import lines
    from harness.select import load_selected
    from harness.subjects.registry import check_name
    from harness.time_session import Asked, time_cases
    from harness.timing.plan import ArmLimits

    names = list(dict.fromkeys([*subjects, *([baseline] if baseline else [])])) or ["reference"]
    for name in names:
        check_name(name)
    if variants:
        from harness.kinds.trellis.variants import KNOWN_VARIANTS

        kinds = ("trellis",)
        plain = dict.fromkeys(name.partition("@")[0] for name in names)
        names = [f"{name}@{variant}" for name in plain for variant in KNOWN_VARIANTS]
    chosen = load_selected(paths, patterns, kinds)
    instances = [instance for instance in chosen if getattr(instance.case, "time", None)]
    if not instances:
        raise NothingRanError(
            f"none of the {len(chosen)} chosen instances has `time:`; `assay list --timed` shows some"
        )
    switch(instances, metal_text=metal_text, allow_code=allow_code)
    sets = processes or (rounds if len(names) > 1 else (rounds + 1) // 2)
    asked = Asked(names, baseline, rounds, sets, seed, amortized or None, ArmLimits(time_limit, memory_limit))
    try:
        found = time_cases(instances, asked, record=record, resume=resume, quiet=quiet)
    except KeyboardInterrupt:
        target = record or resume
        words = f"; what was finished is kept, go on with: assay time --resume {target}" if target else ""
        click.echo(f"interrupted{words}", err=True)
        sys.exit(130)
    for line in lines(found):
        say(line)
    sys.exit(found.exit_code)
