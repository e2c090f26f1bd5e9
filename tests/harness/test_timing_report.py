"""Reports of timing comparisons: a terminal's, Markdown, JSON, JUnit; and `assay compare` on records, as a command."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click
import numpy as np
import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import AssayError
from harness.regress import decide, examine
from harness.regress_session import confirmed
from harness.report.timing import TimingReport, duration, lines
from harness.report.timing_files import junit, markdown, to_json
from harness.timing.record import TimingWriter
from harness.verdict import Call, Reason, Verdict
from tests.bench.verdict_simulation import Machine, sample

if TYPE_CHECKING:
    from pathlib import Path

    from harness.timing.samples import Timing

STILL = Machine("still", drift=0.0, jitter=0.0005, spikes=0.0, steps=0.0, bias=0.0005)


def drawn(change: float, name: str, seed: int = 1) -> Timing:
    return sample(STILL, np.random.default_rng(seed), change, rounds=16, sets=4, name=name)


def verdicts(*, confirm: bool = True) -> tuple[Verdict, ...]:
    timings = [drawn(0.0, "ring/a[n=1]"), drawn(0.1, "ring/b[n=1|2]"), drawn(-0.1, "ring/c"), drawn(0.0, "ring/d", 2)]
    timings[3] = replace(timings[3], visits=timings[3].visits[:40])
    first = decide([one for timing in timings for one in examine(timing)])
    return tuple(confirmed(first, first)) if confirm else tuple(first)


REPORT = TimingReport("main (0123456789)", "HEAD", verdicts(), {"chip": "M4"}, notes=("a note",))


def plain(report: TimingReport) -> str:
    return click.unstyle("\n".join(lines(report)))


def test_the_terminal_shows_what_to_act_on_first() -> None:
    text = plain(REPORT)
    rows = [line for line in text.splitlines() if line.startswith("ring/") and "work  " in line]
    assert [next(call for call in Call if call in row) for row in rows] == ["SLOWER", "AMBIGUOUS", "FASTER", "SAME"]
    assert "1.00 ms" in rows[0]
    assert "1.10 ms" in rows[0]
    assert "1.101 [1.10, 1.10]" in rows[0]
    assert "confirmed" in rows[0]
    assert "few-rounds" in rows[1]
    assert "1 SLOWER, 1 AMBIGUOUS, 1 FASTER, 1 SAME (1 confirmed); 3 tested together" in text
    assert "note: a note" in text
    assert "it takes 16 rounds in 4 sets of processes" in text


def test_what_could_not_be_told_says_what_is_certain_once() -> None:
    one = REPORT.verdicts[0]
    narrow, wide = (
        replace(one, call=Call.AMBIGUOUS, reason=Reason.WIDE_INTERVAL, detail=f"to {high}", confirmed=None,
                evidence=replace(one.evidence, interval=replace(one.evidence.interval, low=low, high=high)))
        for low, high in ((-0.01, 0.04), (-0.02, 0.03))
    )  # fmt: skip
    report = replace(REPORT, verdicts=(narrow, wide))
    for text in (plain(report), markdown(report)):
        found = [line for line in text.splitlines() if line.startswith("wide-interval: ")]
        assert len(found) == 1
        assert "2 intervals reach" in found[0]
        assert "-2.0 % to +4.1 %" in found[0]
    assert "to 0.04" not in plain(report), "the table has it"
    assert "wide-interval: 1 interval reaches" in plain(replace(report, verdicts=(narrow, *REPORT.verdicts)))
    assert "intervals reach" not in plain(REPORT)


def test_exit_codes() -> None:
    assert REPORT.exit_code == 3
    assert replace(REPORT, verdicts=verdicts(confirm=False)).exit_code == 0
    assert replace(REPORT, broken=(("ring/a[n=1]", "differs"),)).exit_code == 1
    assert replace(REPORT, verdicts=()).exit_code == 4
    few = REPORT.verdicts[3]
    assert few.reason is Reason.FEW_ROUNDS
    assert replace(REPORT, verdicts=(few,)).exit_code == 4
    assert replace(REPORT, verdicts=(few, REPORT.verdicts[0])).exit_code == 0
    wide = replace(REPORT.verdicts[0], call=Call.AMBIGUOUS, reason=Reason.WIDE_INTERVAL)
    assert replace(REPORT, verdicts=(wide,)).exit_code == 0, "it was measured, and nothing is certain"
    impossible = replace(REPORT.verdicts[0], call=Call.AMBIGUOUS, reason=Reason.IMPOSSIBLE)
    assert replace(REPORT, verdicts=(impossible, REPORT.verdicts[0])).exit_code == 4


def test_the_summary_folds_away_what_stayed_the_same_and_is_a_table_to_github() -> None:
    text = markdown(REPORT)
    head, _, folded = text.partition("<details><summary>1 stayed the same")
    assert "`ring/a[n=1]`" in folded
    assert "`ring/a[n=1]`" not in head
    assert "**Slower, confirmed by a second session.**" in head
    table = [line for line in head.splitlines() if line.startswith("|")]
    cells = {line.replace("\\|", "").count("|") for line in table}
    assert cells == {table[0].count("|")}, "a bar within an id must not make a cell"
    assert "| 1.00\N{NO-BREAK SPACE}ms |" in head
    assert "chip M4" in text
    assert "weak evidence" not in text
    assert "weak evidence" in markdown(replace(REPORT, interleaved=False))
    assert "**No regression.**" in markdown(replace(REPORT, verdicts=verdicts(confirm=False)))
    broken = markdown(replace(REPORT, broken=(("ring/a[n=1]", "differs\nin row 3"),)))
    assert "- `ring/a[n=1]`: differs in row 3" in broken
    assert "**Wrong answers.**" in broken


def test_json_has_ratios_and_no_nan() -> None:
    value = json.loads(to_json(REPORT), parse_constant=pytest.fail)
    slower = value["verdicts"][0]
    assert slower["id"] == "ring/b[n=1|2]"
    assert slower["ratio"] == pytest.approx(1.1, abs=0.005)
    assert slower["interval"][0] < slower["ratio"] < slower["interval"][1]
    assert (slower["confirmed"], slower["rounds"], slower["sets"]) == (True, 16, 4)
    assert (value["exit_code"], value["tested"]) == (3, 3)
    nothing = replace(REPORT.verdicts[0], evidence=examine(replace(drawn(0, "x"), visits=()))[0])
    json.loads(to_json(replace(REPORT, verdicts=(nothing,))), parse_constant=pytest.fail)
    assert "x  " in plain(replace(REPORT, verdicts=(nothing,)))


def test_junit_fails_regressions_and_wrong_answers_and_skips_the_unknown() -> None:
    suite = ET.fromstring(junit(replace(REPORT, broken=(("ring/c", "bad \x00 answer"),), left_out=(("z", "new"),))))  # noqa: S314 - our own XML
    found = {case.get("name"): [child.tag for child in case] for case in suite}
    assert found == {
        "ring/b[n=1|2]:work": ["failure"],
        "ring/d:work": ["skipped"],
        "ring/a[n=1]:work": [],
        "ring/c": ["failure"],
        "z": ["skipped"],
    }
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "2")


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.25, "0.25 ns"),
        (7.0, "7.00 ns"),
        (12_345, "12.3 µs"),
        (999_600, "1.00 ms"),
        (999e6, "999 ms"),
        (2e9, "2.00 s"),
    ],
)
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text


def write(path: Path, *timings: Timing, **machine: Any) -> str:
    writer = TimingWriter.create(path, {"fingerprint": {"chip": "M4", "cores": 10, **machine}})
    for timing in timings:
        writer.timing(timing)
    writer.close({})
    return str(path)


def compare(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["compare", *arguments])
    if isinstance(done.exception, AssayError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_two_records_as_a_command(tmp_path: Path) -> None:
    base = write(tmp_path / "base.jsonl", drawn(0.0, "ring/a"), drawn(0.0, "ring/b"))
    new = write(tmp_path / "new.jsonl", drawn(0.3, "ring/a", 2), replace(drawn(0.0, "ring/b", 2), case_digest="1"))
    again = write(tmp_path / "again.jsonl", drawn(0.3, "ring/a", 3))
    code, text = compare(base, new)
    assert code == 0, text
    assert "not confirmed" in text
    assert "weak evidence" in text
    assert "the case itself has changed" in text
    files = [tmp_path / "out" / name for name in ("x.md", "x.json", "x.xml")]
    options = ["--confirm", again, "--markdown", *f"{files[0]} --json {files[1]} --junit {files[2]}".split()]
    code, text = compare(base, new, *options)
    assert code == 3, text
    assert "Slower, confirmed" in files[0].read_text(encoding="utf-8")
    assert json.loads(files[1].read_text(encoding="utf-8"))["exit_code"] == 3
    assert "failure" in files[2].read_text(encoding="utf-8")
    assert compare(base, new, "--confirm", again, "--min-effect", "0.5")[0] == 0
    code, text = compare(base, base, "--markdown", str(files[0]))
    assert code == 0, text
    assert "**No regression.**" in files[0].read_text(encoding="utf-8"), "written on success, too"


def test_records_that_can_not_be_compared(tmp_path: Path) -> None:
    base = write(tmp_path / "base.jsonl", drawn(0.0, "ring/a"))
    other = write(tmp_path / "other.jsonl", drawn(0.0, "ring/a", 2), switches="MLX_ENABLE_TF32=0")
    code, text = compare(base, other)
    assert (code, "--across-machines" in text) == (4, True)
    code, text = compare(base, other, "--across-machines")
    assert code == 0
    assert "machines differ: switches" in text
    third = write(tmp_path / "third.jsonl", drawn(0.0, "ring/z"))
    code, text = compare(base, third)
    assert code == 4
    assert "is in one of the records only" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.jsonl"], "two records"),
        (["--rev", "HEAD"], "given twice"),
        (["--rev", "a", "--rev", "b", "--baseline"], "give one of them"),
        (["--baseline", "--across-machines"], "belong to a comparison of two records"),
    ],
)
def test_bad_usage(arguments: list[str], words: str) -> None:
    code, text = compare(*arguments)
    assert code == 2
    assert words in text
