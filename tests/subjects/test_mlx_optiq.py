"""What the cases find in a pinned release of mlx-optiq, cause by cause; skipped where it is not installed.

All instances take about 45 s on two cores.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pytest

from harness.case.load import load_cases
from harness.outcome import Outcome, Result
from harness.run import Options, run
from tests.subjects import faults as mlx_lm
from tests.subjects.optiq_faults import FAULTS, PINNED, Fault
from tests.subjects.versions import CASES

if TYPE_CHECKING:
    from pathlib import Path


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


pytestmark = pytest.mark.skipif(
    (installed("mlx-optiq"), installed("mlx-lm")) != (PINNED, mlx_lm.PINNED),
    reason=f"the findings are those of mlx-optiq {PINNED} with mlx-lm {mlx_lm.PINNED}",
)
INHERITED = {case for fault in mlx_lm.FAULTS if mlx_lm.PINNED in fault.releases for case in fault.cases}

# Why instances don't count, in the adapter's words or the package's own.
UNSUPPORTED = (
    "mlx-optiq leaves windows in a batch plain",
    "mlx-optiq quantizes no batch that is plain",
    "mlx-optiq drafts for one request at a time",
    "mlx-optiq counts rejected tokens when it quantizes from a number of tokens on",
    "mlx-optiq extracts whole rows",
    "mlx-optiq has one layout of rows",
    "a round of mlx-optiq is one block of two tokens or more",
    "(Batch)?(Rotating|Mergeable)?(Quantized)?KVCache has no ",
    r"refuses: RuntimeError: finalize\(\) should be called before deocoding with BatchRotatingKVCache",
    "mlx-lm pads prompts on one side",
    "mlx-lm's batch cache keeps no sinks",
    "quantize of single rows",
    "donor",
)


@cache
def results() -> dict[str, Result]:
    return run(load_cases([CASES]), ["mlx-optiq"], Options(jobs=2)).subjects[0].results


def bad() -> dict[str, Result]:
    return {key: result for key, result in results().items() if result.outcome.is_bad}


def affine(instance: str) -> bool:
    return "affine" in instance or "bits=" in instance


def text(result: Result) -> str:
    first = result.findings[0] if result.findings else None
    seen = f" expected {first.expected} actual {first.actual} {first.note}" if first else ""
    return (result.reason or "") + seen


def causes(result: Result) -> list[Fault]:
    return [fault for fault in FAULTS if re.search(fault.tells, text(result))]


def test_each_report_has_one_cause() -> None:
    found = {key: [fault.what for fault in causes(result)] for key, result in bad().items()}
    unclaimed = [key for key, names in found.items() if not names and mlx_lm.case_of(key) not in INHERITED]
    assert unclaimed == []
    assert {key: names for key, names in found.items() if len(names) > 1} == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_every_case_of_a_fault_reports_it(fault: Fault) -> None:
    reporting = {mlx_lm.case_of(key) for key, result in bad().items() if affine(key) and fault in causes(result)}
    assert [case for case in fault.cases if case not in reporting] == []


def test_the_shortest_steps_report_each_fault(tmp_path: Path) -> None:
    for number, fault in enumerate(FAULTS):
        (tmp_path / f"fault-{number}.yaml").write_text(
            f"assay: 1\nkind: ring\ntitle: {fault.what!r}\nwhy: as above\ngiven: {fault.given}\n"
            f"steps: {fault.steps}\ncheck: [visible, stored, positions, untouched]\n"
        )
    found = run(load_cases([tmp_path]), ["mlx-optiq", "reference"], Options(jobs=1)).subjects
    told = {key: causes(result) for key, result in found[0].results.items()}
    assert [told[key] for key in sorted(told)] == [[fault] for fault in FAULTS]
    # Nothing is wrong with the steps themselves: they pass on a cache that has them. The reference writes no files.
    passing = zip(sorted(told), FAULTS, strict=True)
    others = [found[1].results[key] for key, fault in passing if "save" not in fault.steps]
    assert {result.outcome for result in others} == {Outcome.PASSED}


def test_quantized_rings_take_blocks_and_tokens() -> None:
    for case in ("quantized-ring-decodes-past-the-window", "quantize-a-ring", "quantize-a-full-cache"):
        outcomes = [result.outcome for key, result in results().items() if mlx_lm.case_of(key) == f"ring/{case}"]
        assert set(outcomes) == {Outcome.PASSED}, case


def test_a_draft_loop_cuts_plain_rings_rightly() -> None:
    mine = {key: result for key, result in results().items() if mlx_lm.case_of(key) == "ring/round-of-one-request"}
    assert {result.outcome for key, result in mine.items() if not affine(key)} == {Outcome.PASSED}


def test_what_does_not_count_is_for_a_reason_that_is_known() -> None:
    reasons = {result.reason for result in results().values() if result.outcome is Outcome.UNSUPPORTED}
    known = re.compile("|".join(UNSUPPORTED))
    assert [reason for reason in reasons if not known.search(reason)] == []
