"""What the cases find in a pinned release of mlx-lm, cause by cause; skipped where it is not installed."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from harness.case.load import load_cases
from harness.outcome import Outcome, Result
from harness.run import Options, run

try:
    INSTALLED = version("mlx-lm")
except PackageNotFoundError:
    INSTALLED = ""
pytestmark = pytest.mark.skipif(INSTALLED != "0.32.2", reason="the findings are those of mlx-lm 0.32.2")
CASES = Path(__file__).parents[2] / "cases" / "ring"

# A ring's trim moves counters and leaves the columns: https://github.com/ml-explore/mlx-lm/pull/1486
TRIM = {
    "ring/trim-after-long-block",
    "ring/trim-a-long-first-block",
    "ring/trim-again-and-again",
    "ring/trim-more-than-the-last-block",
    "ring/trim-past-what-is-held",
}
# The buffer is sized in whole codes a word, 32 // bits.
WIDTH = "ring/quantized-cache-takes-every-width"
# The ring hands out the array object into which it later writes.
SHARED = "ring/arrays-handed-out-do-not-change"


@cache
def results() -> dict[str, Result]:
    return run(load_cases([CASES]), ["mlx-lm"], Options(jobs=2)).subjects[0].results


def bad(case: str | None = None) -> dict[str, Result]:
    found = {key: result for key, result in results().items() if result.outcome.is_bad}
    return {key: result for key, result in found.items() if case is None or key.startswith(f"{case}[")}


def test_nothing_else_is_reported() -> None:
    assert {key.partition("[")[0] for key in bad()} == {*TRIM, WIDTH, SHARED}


def test_trim_after_a_block_past_the_window() -> None:
    found = bad("ring/trim-after-long-block")
    assert len(found) == len([key for key in results() if key.startswith("ring/trim-after-long-block[")])
    finding = found["ring/trim-after-long-block[window=8,held=7,block=3,trim=block]"].findings[0]
    assert (finding.expected, finding.actual) == ("sees {1..7, 11}", "sees {4..11}")
    assert "missing {1..3}; too many {8..10}" in finding.note


def test_trims_that_a_ring_can_do_by_counters_pass() -> None:
    for case in ("trim-before-the-window-fills", "trim-on-a-wrapped-ring", "trim-everything", "trim-a-full-cache"):
        assert not bad(f"ring/{case}")


def test_widths_that_do_not_divide() -> None:
    found = bad(WIDTH)
    assert all(result.outcome is Outcome.ERRORED for result in found.values())
    for key in results():
        match = re.fullmatch(r".*\[head_dim=(\d+),storage=affine(\d)x\d+\]", key)
        if key.startswith(WIDTH) and match:
            dim, bits = int(match[1]), int(match[2])
            assert (key in found) == (dim // (32 // bits) != dim * bits // 32), key


def test_no_quantized_ring_is_said_so() -> None:
    reasons = {result.reason for result in results().values() if result.outcome is Outcome.UNSUPPORTED}
    assert reasons == {"opening the cache: mlx-lm has no quantized rotating cache"}
