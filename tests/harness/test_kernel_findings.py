"""From what checks say of launches to findings, reports and exit codes; the checks themselves are not run here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from harness.case.load import load_file
from harness.checking import CheckSettings, as_finding, with_checks
from harness.errors import CaseFileError, UsageError
from harness.kernel_run import Origin, described, faults, load, origins
from harness.kinds.kernel.description import DESCRIPTION
from harness.outcome import Finding, KernelChecks, KernelPlace, Outcome, Result
from harness.report.kernel import HELP, FileReport, as_json, report, summary
from harness.subjects.reference.kernel_checks import Collector
from impl.metal.checks.finding import Checked, Fault, Place
from impl.metal.checks.finding import Finding as Found

if TYPE_CHECKING:
    from collections.abc import Sequence

READ = Place("source", 41, 19, "  float max_p = shared[lane];")
WRITE = Place("source", 47, 3, "  shared[lane] = total;")
RACE = Found("kl", Fault.RACE, "`shared[0]`: thread 32 writes what thread 1 reads", (WRITE, READ), 3)
PASSED = Result(Outcome.PASSED, comparisons=4)


def collected(*launches: Sequence[Found], kernel: str = "kl") -> KernelChecks:
    collector = Collector(CheckSettings())
    for findings in launches:
        collector.take(Checked(kernel, tuple(findings), ("forward", "reverse", "1")))
    return collector.drain()


def test_one_kernel_line_and_fault_is_one_finding() -> None:
    later = replace(RACE, message="other threads", places=(replace(WRITE, column=9), READ), count=2)
    elsewhere = replace(RACE, places=(replace(WRITE, line=48), READ))
    other = replace(RACE, fault=Fault.UNINITIALIZED_READ, places=(WRITE, READ))
    checks = collected([RACE], [], [later, elsewhere], [other])
    assert (checks.kernels, checks.launches, checks.orders) == (("kl",), 4, ("forward", "reverse", "1"))
    assert [(f.fault, f.places[0].line, f.count) for f in checks.faults] == [
        ("race", 47, 5),
        ("race", 48, 3),
        ("uninitialized read", 47, 3),
    ]
    assert checks.faults[0].message == RACE.message
    assert checks.faults[0].places[0] == KernelPlace("source", 47, 3, "  shared[lane] = total;")


def test_without_a_place_names_count_and_sizes_do_not() -> None:
    words = ["`y`: 3 of 10 elements", "`y`: 5 of 12 elements", "`z`: 3 of 10 elements"]
    checks = collected([Found("k", Fault.UNWRITTEN_OUTPUT, text) for text in words])
    assert [(f.message[:3], f.count) for f in checks.faults] == [("`y`", 2), ("`z`", 1)]


def test_a_collector_begins_anew_after_it_was_asked() -> None:
    collector = Collector(CheckSettings())
    collector.take(Checked("a", (RACE,), ("forward",), ("addresses",)))
    assert collector.drain().skipped == ("addresses",)
    assert collector.drain() == KernelChecks()


def test_only_what_may_end_a_process_keeps_a_kernel_from_being_launched() -> None:
    collector = Collector(CheckSettings())
    collector.take(Checked("kl", (RACE,)))
    assert collector.harmless("kl")
    collector.take(Checked("bad", (Found("bad", Fault.OUT_OF_BOUNDS_WRITE, "y[9]", (WRITE,)),)))
    assert collector.harmless("kl")
    assert not collector.harmless("bad")


def test_a_text_that_does_not_compile_is_found_with_its_lines() -> None:
    collector = Collector(CheckSettings())
    said = (
        "kernel 'k' does not compile:\nsource:2:5: error: unknown type name 'flaot'\n    2 |     flaot v;\n"
        "header:1:1: error: expected unqualified-id\n"
    )
    collector.refused("k", said, {"source": ["", "    flaot v;"], "header": ["="]})
    collector.refused("other", "kernel 'other' has 40000 bytes of threadgroup variables", {"source": [], "header": []})
    first, second, third = collector.drain().faults
    assert (first.fault, str(first.places[0]), first.places[0].text) == (
        "does not compile",
        "source:2:5",
        "    flaot v;",
    )
    assert first.message == "unknown type name 'flaot'"
    assert str(second.places[0]) == "header:1:1"
    assert third.message == "kernel 'other' has 40000 bytes of threadgroup variables"


def test_settings_reach_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAL_ASSAY_KERNEL_CHECKS", "")
    assert CheckSettings.asked_for() is None
    CheckSettings((5, 7), 1.5).pass_on()
    assert CheckSettings.asked_for() == CheckSettings((5, 7), 1.5)


def test_one_fault_fails_an_instance() -> None:
    checks = collected([RACE])
    result = with_checks(PASSED, checks)
    assert result.outcome is Outcome.FAILED
    assert result.reason == "kernel-checks: kl, source:47:3"
    (finding,) = result.findings
    assert (finding.check, finding.where) == ("kernel-checks", "kl, source:47:3")
    assert finding.actual == f"race: {RACE.message}"
    assert finding.note == "source:47:3: shared[lane] = total;; source:41:19: float max_p = shared[lane];; 3 times"
    assert result.checks == checks
    assert with_checks(PASSED, collected([])).outcome is Outcome.PASSED
    assert with_checks(PASSED, KernelChecks()) is PASSED, "no kernel was launched"


def test_a_fault_explains_an_error_and_follows_a_difference() -> None:
    checks = collected([RACE])
    crashed = with_checks(Result(Outcome.ERRORED, "launch raised LaunchError"), checks)
    assert crashed.outcome is Outcome.FAILED
    assert crashed.reason == "kernel-checks: kl, source:47:3; and launch raised LaunchError"
    differs = Finding("output", "y[3]", "1", "2")
    both = with_checks(Result(Outcome.FAILED, "output: y[3]", (differs,)), checks)
    assert both.findings == (differs, as_finding(checks.faults[0]))
    assert both.reason == "output: y[3]"


def results() -> dict[str, Result]:
    checks = collected([RACE])
    wrong = Result(Outcome.FAILED, "output: y[3]", (Finding("output", "y[3]", "1", "2", "1 of 4 elements"),), 2)
    return {
        "k[n=1]": with_checks(PASSED, checks),
        "k[n=2]": with_checks(PASSED, collected([])),
        "k[n=3]": with_checks(wrong, checks),
        "k[n=4]": Result(Outcome.ERRORED, "the worker was killed by SIGSEGV"),
        "k[n=5]": Result(Outcome.ERRORED, "no answer within 9 s (the time limit)"),
        "k[n=6]": Result(Outcome.ERRORED, "used more than 64 MiB of memory (the limit)"),
        "k[n=7]": Result(Outcome.ERRORED, "checking the kernel raised LaunchError: too many threads"),
        "k[n=8]": Result(Outcome.UNSUPPORTED, "kernel 'k' uses texture2d: not covered here"),
    }


def test_every_way_to_end_is_a_fault_of_some_instances() -> None:
    seen = faults(results())
    assert [(one.fault.fault, one.instances) for one in seen] == [
        ("race", ("k[n=1]", "k[n=3]")),
        ("wrong answer", ("k[n=3]",)),
        ("crashed", ("k[n=4]",)),
        ("time limit", ("k[n=5]",)),
        ("memory limit", ("k[n=6]",)),
        ("does not run", ("k[n=7]",)),
    ]
    assert seen[0].fault.count == 6


def file_report(name: str, of: dict[str, Result]) -> FileReport:
    return FileReport(name, faults(of), of, {"source": Origin(Path(name), 10, 4)})


def test_the_report_reads_like_a_compilers() -> None:
    text = [click.unstyle(line) for line in report([file_report("k.yaml", results())])]
    assert text[:9] == [
        f"source:47:3: race: {RACE.message}",
        "   47 |   shared[lane] = total;",
        "      |   ^",
        "source:41:19: the other access",
        "   41 |   float max_p = shared[lane];",
        "      |                   ^",
        "  --> k.yaml:56:7, k.yaml:50:23",
        f"  help: {HELP['race']}",
        "  in k[n=1], k[n=3]",
    ]
    assert "wrong answer: y[3], in the check output" in text
    assert "    expected  1" in text
    assert "not checked: kernel 'k' uses texture2d: not covered here" in text
    assert text[-1] == ("6 findings: kl in 3 instances, 3 orders of the lanes, answers compared, 5 not checked")


def test_every_fault_of_the_checks_has_an_advice() -> None:
    without = {Fault.CRASHED}
    assert {str(fault) for fault in Fault if fault not in without} <= set(HELP)


def test_clean_and_unchecked_are_told_apart() -> None:
    clean = {"k": with_checks(replace(PASSED, comparisons=1), collected([]))}
    assert click.unstyle(summary([], clean)) == "clean: kl in 1 instance, 3 orders of the lanes"
    nothing = {"k": Result(Outcome.UNSUPPORTED, "no compiler")}
    assert click.unstyle(summary([], nothing)) == "nothing was checked"


def test_several_files_are_told_apart() -> None:
    clean = {"c": with_checks(replace(PASSED, comparisons=1), collected([]))}
    text = [click.unstyle(line) for line in report([file_report("c.yaml", clean), file_report("k.yaml", results())])]
    assert text[:3] == [
        "c.yaml: clean: kl in 1 instance, 3 orders of the lanes",
        "k.yaml: ",
        f"source:47:3: race: {RACE.message}",
    ]
    assert text[-1] == "2 files: 1 with findings, 6 in all"


def test_the_findings_for_programs() -> None:
    whole = as_json([file_report("k.yaml", results())])
    made = whole["files"][0]
    assert json.loads(json.dumps(whole)) == whole
    assert (whole["assay_kernel"], made["file"]) == (1, "k.yaml")
    first = made["findings"][0]
    assert (first["kernel"], first["fault"], first["count"]) == ("kl", "race", 6)
    assert first["places"][0] == {
        "file": "source", "line": 47, "column": 3, "text": "  shared[lane] = total;", "in": "k.yaml:56:7",
    }  # fmt: skip
    assert made["findings"][1]["expected"] == "1"
    assert [one["checked"] for one in made["instances"]] == [True, True, True, *[False] * 5]


GIVEN = """given:
  # a comment
  header: |

    // text
  source: |
      uint i = 0;
        y[i] = 1;
  inputs: {x: {shape: [64]}}
  outputs: {y: {shape: [64]}}
  grid: [64]
  threadgroup: [32]
"""


def test_lines_of_a_text_are_lines_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(GIVEN)
    assert origins(path) == {"source": Origin(path, 7, 6), "header": Origin(path, 4, 4)}
    path.write_text("given:\n  file: k.metal\n")
    assert origins(path) == {"source": Origin(tmp_path / "k.metal")}
    path.write_text('given: {source: "y[0] = 1;"}')
    assert origins(path) == {}


def test_a_description_is_a_case_without_answers(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text("matrix: {n: [4, 8]}\n" + GIVEN.replace("[64]", "[n]"))
    instances = load(path)
    assert [instance.id.rpartition("/")[2] for instance in instances] == ["k[n=4]", "k[n=8]"]
    head = "assay: 1\nkind: kernel\ntitle: t\nwhy: w\ncheck: [output]\n"
    path.write_text(head + GIVEN.replace("outputs: {y: {shape: [64]}}", 'outputs: {y: {shape: [64], expect: "x"}}'))
    assert load(path) == load_file(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "shape: [64]}}\n  grid",
            "shape: [64], expect: x}}\n  grid",
            ":10:38: given.outputs.y.expect: belongs to a case:",
        ),
        ("threadgroup: [32]", "threadgrop: [32]", ":12:3: given.threadgrop: unknown key; did you mean 'threadgroup'?"),
        ("given:", "check: [output]\ngiven:", ":1:8: check: belongs to a case:"),
        ("given:", "gven:", ":1:1: gven: unknown key; did you mean 'given'?"),
        ("  grid: [64]\n", "", ": given: the key 'grid' is missing"),
        ("threadgroup: [32]", "threadgroup: [2000]", ": given.threadgroup: has 2000 threads; a GPU takes up to 1024"),
        ("  inputs", "  twin: y[0] = 1;\n  inputs", ": given.twin: is launched by a case only;"),
    ],
)
def test_mistakes_in_a_description_have_places(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(GIVEN.replace(old, new, 1))
    with pytest.raises(CaseFileError) as caught:
        load(path)
    assert message in str(caught.value)


def test_metal_text_is_found_by_the_description_beside_it(tmp_path: Path) -> None:
    text = tmp_path / "k.metal"
    text.write_text("y[0] = 1;")
    with pytest.raises(UsageError, match=r"has no inputs and no launch; describe them in k\.yaml"):
        described(text)
    (tmp_path / "k.yaml").write_text(GIVEN)
    assert described(text) == tmp_path / "k.yaml"
    with pytest.raises(UsageError, match="no such file"):
        described(tmp_path / "other.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        described(tmp_path)


def test_other_kinds_of_cases_are_sent_to_their_command() -> None:
    path = Path(__file__).parents[2] / "cases" / "ring" / "trim-a-full-cache.yaml"
    with pytest.raises(UsageError, match=r"is a case of kind ring; `assay run .* runs it"):
        load(path)


def test_the_description_to_start_from_is_one(tmp_path: Path) -> None:
    from harness.new import new_description

    path = tmp_path / "mine.yaml"
    new_description(path)
    assert len(load(path)) == 2
    assert DESCRIPTION.model.__name__ == type(load(path)[0].case).__name__
    with pytest.raises(UsageError, match="exists already and is left alone"):
        new_description(path)
    every = (
        path.read_text().replace("  # ensure", "  ensure").replace("  # atomic", "  atomic").replace("# where", "where")
    )
    path.write_text(every.replace("  # init", "  init").replace("  # seed", "  seed"))
    assert len(load(path)) == 1
