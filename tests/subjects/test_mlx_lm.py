"""What the cases find in a pinned release of mlx-lm, cause by cause; skipped where it is not installed."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import pytest

from harness.case.load import load_cases
from harness.outcome import Outcome, Result
from harness.run import Options, run
from tests.subjects.faults import FAULTS, PINNED, Fault, case_of
from tests.subjects.versions import CASES, FOLDERS

try:
    INSTALLED = version("mlx-lm")
except PackageNotFoundError:
    INSTALLED = ""
pytestmark = [
    pytest.mark.skipif(INSTALLED != PINNED, reason=f"the findings are those of mlx-lm {PINNED}"),
    # Every ring case, on mlx-lm.
    pytest.mark.slow,
]
HERE = [fault for fault in FAULTS if PINNED in fault.releases]
MENDED = [fault for fault in FAULTS if PINNED not in fault.releases]
WIDTH = "ring/quantized-cache-takes-every-width"

# Why instances don't count, in the adapter's words or the package's own; what the adapter can't do belongs here, too.
UNSUPPORTED = (
    "mlx-lm has no quantized rotating cache",
    "mlx-lm has no quantized batch cache",
    "QuantizedKVCache has no merge",
    r"BatchKVCache has no quantization",
    r"refuses: NotImplementedError: (Batch)?RotatingKVCache Quantization NYI",
    r"refuses: RuntimeError: finalize\(\) should be called before deocoding with BatchRotatingKVCache",
    "mlx-lm extracts whole rows",
    "mlx-lm pads prompts on one side",
    "mlx-lm's batch cache keeps no sinks",
    "speculative rounds",
    "rows that become affine one by one",
    "quantize of single rows",
    "donor",
    "mlx-lm's state space layers take finite padding only",
)


@cache
def results() -> dict[str, Result]:
    return run(load_cases(FOLDERS), ["mlx-lm"], Options(jobs=2)).subjects[0].results


def bad(case: str | None = None) -> dict[str, Result]:
    found = {key: result for key, result in results().items() if result.outcome.is_bad}
    return {key: result for key, result in found.items() if case is None or case_of(key) == case}


def test_nothing_else_is_reported() -> None:
    named = {case for fault in HERE for case in fault.cases}
    assert {key: result.reason for key, result in bad().items() if case_of(key) not in named} == {}


@pytest.mark.parametrize("fault", HERE, ids=lambda fault: fault.what)
def test_every_case_of_a_fault_reports_it(fault: Fault) -> None:
    assert [case for case in fault.cases if not bad(case)] == []


@pytest.mark.parametrize("fault", MENDED, ids=lambda fault: fault.what)
def test_what_was_mended_passes(fault: Fault) -> None:
    outcomes = {result.outcome for key, result in results().items() if case_of(key) in fault.cases}
    assert Outcome.PASSED in outcomes
    assert outcomes <= {Outcome.PASSED, Outcome.UNSUPPORTED}


def test_trim_after_a_block_past_the_window() -> None:
    found = bad("ring/trim-after-long-block")
    assert len(found) == len([key for key in results() if case_of(key) == "ring/trim-after-long-block"])
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
        if case_of(key) == WIDTH and match:
            dim, bits = int(match[1]), int(match[2])
            assert (key in found) == (dim // (32 // bits) != dim * bits // 32), key


def test_a_batch_that_was_loaded_has_no_lengths() -> None:
    found = bad("ring/saved-batch-goes-on")
    assert all("'BatchRotatingKVCache' object has no attribute '_lengths'" in r.reason for r in found.values())


def test_only_short_rows_lose_a_token_and_only_one() -> None:
    for result in bad("ring/block-on-a-wrapped-batch").values():
        for finding in result.findings:
            assert re.fullmatch(r"missing \{\d+\}", finding.note), finding


def test_what_does_not_count_is_for_a_reason_that_is_known() -> None:
    reasons = {result.reason for result in results().values() if result.outcome is Outcome.UNSUPPORTED}
    known = re.compile("|".join(UNSUPPORTED))
    assert [reason for reason in reasons if not known.search(reason)] == []


def test_what_quantized_attention_raises_at() -> None:
    every = run(load_cases([CASES.parent / "attention"]), ["mlx-lm"], Options(jobs=2)).subjects[0].results
    found = {key: result for key, result in every.items() if result.outcome.is_bad}
    # Values of another width than keys, and a mask or bias for each head: only where heads share keys, as one query
    # head per key head goes another way through the package, and is right.
    assert Counter(map(case_of, found)) == {
        "attention/keys-and-values-differ-in-width": 4,
        "attention/every-head-with-a-mask-of-its-own": 8,
        "attention/a-bias-for-every-head": 4,
        "attention/finite-biases": 12,
    }
    for key, result in found.items():
        assert "storage=affine" in key
        assert re.search(r"raised ValueError: \[(reshape|broadcast_shapes)\]", result.reason)
        # Finite biases that all heads share are right.
        assert case_of(key) != "attention/finite-biases" or "bias=slopes" in key
    assert sum(result.outcome is Outcome.PASSED for result in every.values()) > 300
