"""`assay compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError
from harness.verbs.common import default_record, kinds_option, say, select_option

if TYPE_CHECKING:
    from harness.report.timing import TimingReport

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "compare",
    epilog="""\b
Examples:
  assay compare --rev main --rev HEAD               two revisions, interleaved on this machine
  assay compare --rev HEAD --rev . cases/ring       what is not committed yet beside what is
  assay compare --rev origin/main --rev HEAD --subject mine.py:Mine --markdown summary.md
  assay compare monday.jsonl today.jsonl            two records of `assay time`
  assay compare --save-baseline                     keep this machine's times ...
  assay compare --baseline                          ... and compare with them another day

\b
Exit codes: 0 nothing got slower for certain, 1 the new side answers wrongly, 2 bad usage,
3 slower, and a second session agrees, 4 could not be measured or compared.""",
)
@click.argument("paths", nargs=-1, metavar="[BASE NEW] | [PATH]...")
@click.option("--rev", "revisions", multiple=True, metavar="REV", help="A revision; give two, `.` is the working tree.")
@click.option("--baseline", is_flag=True, help="Measure, and compare with the stored baseline of such a machine.")
@click.option("--save-baseline", is_flag=True, help="Measure, and store that as the baseline of such a machine.")
@click.option(
    "--baselines",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports/baselines"),
    show_default=True,
    help="Where baselines are stored.",
)
@click.option(
    "--subject", default="reference", show_default=True, metavar="S", help="The implementation that is compared."
)
@kinds_option
@select_option
@click.option(
    "--confirm",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="NEW2",
    help="A second new record: what it also calls slower counts.",
)
@click.option("--across-machines", is_flag=True, help="Compare records of different machines all the same.")
@click.option(
    "--min-effect",
    type=click.FloatRange(0.001, 10.0),
    metavar="SHARE",
    help="Least change that counts: 0.05 is 5 % [default: 0.03 interleaved, 0.1 between records].",
)
@click.option(
    "--rounds",
    type=click.IntRange(16),
    default=16,
    show_default=True,
    help="Rounds of the first look; up to three times as many where that does not settle it.",
)
@click.option("--processes", type=click.IntRange(4), help="Sets of fresh processes a look [default: one a round].")
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="With --rev: begin no further look that would end later; what is not settled stays AMBIGUOUS.",
)
@click.option("--seed", type=int, help="Order of the visits [default: drawn, and printed].")
@click.option("--no-check", is_flag=True, help="With --rev: run no cases on the new revision but those that are timed.")
@click.option("--install", is_flag=True, help="With --rev: install each revision, even where dependencies agree.")
@click.option("--advisory", is_flag=True, help="End with 0, not 4, where this machine is too unsteady to measure.")
@click.option("--record", type=_FILE, help="Where the samples go [default: reports/local/ or .assay/].")
@click.option("--markdown", type=_FILE, help="Write a summary for people, also when all is well.")
@click.option("--json", "json_file", type=_FILE, help="Write everything as JSON.")
@click.option("--junit", type=_FILE, help="Write JUnit XML.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    paths: tuple[str, ...],
    revisions: tuple[str, ...],
    baseline: bool,
    save_baseline: bool,
    baselines: Path,
    subject: str,
    kinds: tuple[str, ...],
    patterns: tuple[str, ...],
    confirm: Path | None,
    across_machines: bool,
    min_effect: float | None,
    rounds: int,
    processes: int | None,
    minutes: float,
    seed: int | None,
    no_check: bool,
    install: bool,
    advisory: bool,
    record: Path | None,
    markdown: Path | None,
    json_file: Path | None,
    junit: Path | None,
    quiet: bool,
) -> None:
    """Say what got faster or slower: between two revisions, two records, or since a baseline was stored."""
    if sum([bool(revisions), baseline, save_baseline]) > 1:
        raise UsageError("--rev, --baseline and --save-baseline are three things to do: give one of them")
    measured = revisions or baseline or save_baseline
    if measured and (confirm or across_machines):
        raise UsageError("--confirm and --across-machines belong to a comparison of two records")
    if revisions and len(revisions) != 2:
        raise UsageError("--rev is given twice: the base, then what is new (`.` is the working tree)")
    if measured:
        from harness.compare_baseline import against_baseline, store_baseline
        from harness.compare_revisions import between_revisions
        from harness.compare_session import Wanted

        target = record or default_record(["compare"])
        wanted = Wanted(
            paths,
            patterns,
            kinds,
            subject,
            rounds,
            processes or rounds,
            seed,
            min_effect or 0.0,
            target,
            quiet,
            minutes,
        )
        try:
            if save_baseline:
                say(store_baseline(wanted, baselines))
                return
            if baseline:
                report = against_baseline(wanted, baselines)
            else:
                report = between_revisions(
                    wanted, (revisions[0], revisions[1]), baselines, check=not no_check, install=install
                )
        except KeyboardInterrupt:
            click.echo("interrupted; what was measured is kept in the record", err=True)
            sys.exit(130)
    else:
        report = _records(paths, confirm, across_machines, min_effect, baselines)
    _write(report, markdown, json_file, junit)
    from harness.report.timing import lines

    for line in lines(report):
        say(line)
    sys.exit(0 if advisory and report.only_unsteady else report.exit_code)


def _records(
    paths: tuple[str, ...], confirm: Path | None, across_machines: bool, min_effect: float | None, baselines: Path
) -> TimingReport:
    from harness.regress_records import APART_EFFECT, compare_records, same_machine
    from harness.report.timing import TimingReport
    from harness.timing.baselines import stored_records
    from harness.timing.record import different, quiet_effects, read_timing_record

    if len(paths) != 2:
        raise UsageError("compare takes two records, BASE and NEW; or --rev A --rev B; or --baseline")
    files = [Path(path) for path in paths]
    base, new = (read_timing_record(file) for file in files)
    again = None if confirm is None else read_timing_record(confirm)
    notes = ["the records were not measured together, so this is weak evidence; --rev A --rev B interleaves"]
    if again is None:
        notes.append("one session alone makes no regression; a second new record given by --confirm can")
    if across_machines:
        notes += [f"machines differ: {line}" for line in different(base.fingerprint, new.fingerprint)]
    else:
        same_machine(base, new, (files[0], files[1]))
        if again is not None and confirm is not None:
            same_machine(new, again, (files[1], confirm))
    for file, one in zip(files, (base, new), strict=True):
        if one.footer is None:
            notes.append(f"{file} was interrupted and holds only a part")
    quiet = quiet_effects([*stored_records(baselines, new.fingerprint), base])
    done = compare_records(base, new, again=again, min_effect=min_effect or APART_EFFECT, quiet_effects=quiet)
    return TimingReport(
        str(files[0]),
        str(files[1]),
        tuple(done.verdicts),
        new.fingerprint,
        left_out=tuple(done.left_out),
        notes=tuple(notes),
        interleaved=False,
    )


def _write(report: TimingReport, markdown: Path | None, json_file: Path | None, junit: Path | None) -> None:
    from harness.report import timing_files

    for path, text in (
        (markdown, timing_files.markdown),
        (json_file, timing_files.to_json),
        (junit, timing_files.junit),
    ):
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(report), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: can't be written: {error.strerror}") from None
