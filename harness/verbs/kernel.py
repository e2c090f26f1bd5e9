"""`assay kernel`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import NothingRanError, UsageError
from harness.verbs.common import cores, say, select_option

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.pool import Limits
    from harness.report.kernel import FileReport

BACKENDS = ("cpu", "metal", "cuda")


@click.command(
    "kernel",
    epilog="""\b
FILE is a case of kind kernel, or a description of one kernel: the keys of a case without `assay:`, and no answers.
  given:
    name: twice
    source: |
      uint i = thread_position_in_grid.x;
      y[i] = 2 * x[i];
    inputs: {x: {shape: [100], dtype: float16}}
    outputs: {y: {shape: [100], dtype: float16}}
    grid: [100]
    threadgroup: [32]

\b
Examples:
  assay kernel softmax.yaml
  assay kernel kernels/*.yaml -j 4
  assay kernel softmax.metal                        the text that softmax.yaml beside it names with `file:`
  assay kernel softmax.yaml --select '*n=33*' --seeds 8
  assay kernel softmax.yaml --json findings.json
  assay kernel cases/kernel/softmax-of-rows.yaml    also compares with the answers of the case
  assay kernel softmax.yaml --target sm_90 --cache kernels/    compiles for a GPU elsewhere, and runs nothing

\b
Exit codes: 0 clean, 1 findings, 2 bad usage or file, 4 nothing could be checked, 130 interrupted.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@select_option
@click.option(
    "--seeds",
    type=click.IntRange(0, 64),
    default=2,
    show_default=True,
    metavar="N",
    help="Random orders of the lanes, beside ascending and descending.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Seconds that one launch may take.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(64),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="Memory that the checks of an instance may use.",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    help="What runs a case's comparison with its answers [default: what the machine has]. Checks run on the processor.",
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="Worker processes [default: one a core].")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the findings for programs.",
)
@click.option("--target", metavar="T", help="Only compile, for another device: sm_90 is NVIDIA's Hopper.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for what --target compiles; METAL_ASSAY_CACHE names it on the other machine.",
)
@click.option("--allow-code", is_flag=True, help="Let a case run Python functions of files beside it.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    files: tuple[Path, ...],
    patterns: tuple[str, ...],
    seeds: int,
    time_limit: float,
    memory_limit: int,
    backend: str | None,
    jobs: int | None,
    json_file: Path | None,
    target: str | None,
    cache: Path | None,
    allow_code: bool,
    quiet: bool,
) -> None:
    """Check a Metal kernel while it runs here: memory, races, unwritten and uninitialized values, barriers.

    Every launch runs in several orders of its lanes, each access watched, in a process of its own: a kernel that
    crashes or never ends is a finding. Where the file is a case, its answers are compared as well.
    """
    from harness.pool import Limits
    from harness.report.kernel import as_json, report

    if (target is None) != (cache is None):
        raise UsageError("--target and --cache go together: what is compiled for, and the folder that it goes to")
    from harness.kernel_run import load_files
    from harness.kinds.kernel.files import allow_code as allow

    if allow_code:
        allow()
    instances = load_files(files, patterns)
    if target is not None and cache is not None:
        sys.exit(_compile(instances, target, cache, jobs or cores()))
    from harness.checking import CheckSettings

    CheckSettings(tuple(range(1, seeds + 1)), time_limit).pass_on()
    if backend is not None:
        os.environ["METAL_ASSAY_BACKEND"] = backend
    # The limit of a worker catches what the checks' own limit does not: it names no line.
    reports = _check(instances, Limits(2 * time_limit + 30, memory_limit), jobs or cores(), quiet=quiet)
    for line in report(reports):
        say(line)
    if json_file is not None:
        _write(json_file, json.dumps(as_json(reports), indent=1, ensure_ascii=False) + "\n")
    if any(file.seen for file in reports):
        sys.exit(1)
    checks = [result.checks for file in reports for result in file.results.values() if result.checks is not None]
    sys.exit(0 if any(one.orders for one in checks) else NothingRanError.exit_code)


def _check(instances: list[Instance], limits: Limits, jobs: int, *, quiet: bool) -> list[FileReport]:
    from harness.kernel_run import SUBJECT, faults, origins
    from harness.progress import Progress
    from harness.report.kernel import FileReport
    from harness.run import Options, run

    progress = Progress(quiet=quiet)
    try:
        done = run(instances, [SUBJECT], Options(jobs=jobs, limits=limits, start=progress.start, tick=progress.tick))
    finally:
        progress.stop()
    reports = []
    for path in dict.fromkeys(instance.path for instance in instances):
        results = {i.id: done.subjects[0].results[i.id] for i in instances if i.path == path}
        reports.append(FileReport(path, faults(results), results, origins(Path(path))))
    return reports


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


def _compile(instances: list[Instance], target: str, cache: Path, jobs: int) -> int:
    from harness.kernel_run import compiled
    from harness.report.kernel import report_compiled

    cache.mkdir(parents=True, exist_ok=True)
    launches, checks = compiled(instances, target, cache, jobs)
    for line in report_compiled(checks, launches, target, cache):
        say(line)
    if checks.faults:
        return 1
    return 0 if launches > len(checks.skipped) else NothingRanError.exit_code
