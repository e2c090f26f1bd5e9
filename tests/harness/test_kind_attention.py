"""Kind `attention`: what its files may say, its masks and values, the shipped cases, and the reference against them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline.attention import attend, attend_head
from harness.case.load import load_cases, load_file
from harness.errors import CaseFileError
from harness.execute import execute
from harness.kinds.attention import KIND
from harness.kinds.attention.data import make_inputs
from harness.kinds.attention.run import Answers
from harness.kinds.attention.schema import AttentionGiven
from harness.outcome import Outcome
from harness.subjects.reference import Reference
from tests.fakes.cheats import called_twice

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "attention"
HEAD = "assay: 1\nkind: attention\ntitle: t\nwhy: w\n"


@cache
def shipped() -> tuple[Instance, ...]:
    """Return every sixth instance of each case, its first among them; `assay run` runs them all."""
    return tuple(load_cases([CASES], wanted=lambda ids: set(ids[::6])))


def load_text(folder: Path, text: str) -> list[Instance]:
    path = folder / "case.yaml"
    path.write_text(HEAD + text)
    return load_file(path)


def given_of(**given: Any) -> AttentionGiven:
    return AttentionGiven(**{"keys": 6, "head_dim": 32, **given})


def seen(**given: Any) -> list[list[list[int]]]:
    """Return the columns that each query of each row sees, in the first head."""
    sees = make_inputs(given_of(**given)).sees[:, 0]
    return [[np.flatnonzero(query).tolist() for query in row] for row in sees]


def test_the_shipped_cases_load() -> None:
    counts: list[int] = []

    def first(ids: list[str]) -> set[str]:
        counts.append(len(ids))
        return set(ids[:1])

    load_cases([CASES], wanted=first)
    assert 700 <= sum(counts) <= 900
    for path in CASES.glob("*.yaml"):
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)


def test_the_reference_passes_the_cases_and_takes_boolean_masks_that_all_heads_share() -> None:
    subject = Reference()
    for instance in shipped():
        result = execute(instance, subject)
        case = instance.case
        given: AttentionGiven = case.given  # type: ignore[attr-defined]
        beyond = given.mask_form == "additive" or given.bias != "none" or given.per_head
        beyond |= "rope" in case.check  # type: ignore[attr-defined]
        want = Outcome.UNSUPPORTED if beyond else Outcome.PASSED
        assert result.outcome is want, (instance.id, result.reason, result.findings)


def test_what_is_timed_can_be_called() -> None:
    timed = [one for one in shipped() if one.case.time]  # type: ignore[attr-defined]
    assert {one.case_name for one in timed} == {"attention/block-of-a-prompt", "attention/long-context"}
    for instance in (timed[0], timed[-1]):
        called_twice(KIND.timed(instance.case, Reference(), "attention", 0))


def test_every_case_can_be_described() -> None:
    by_case = {one.case_name: one for one in shipped()}
    turned = "\n".join(KIND.describe(by_case["attention/rope-of-some-channels"].case))
    assert "row 1: positions 30 to 32" in turned
    assert "pairs of channels of two halves" in turned
    assert all(len(list(KIND.describe(one.case))) >= 9 for one in by_case.values())
    ranges = next(one for one in shipped() if one.case_name == "attention/rows-of-one-token")
    text = "\n".join(KIND.describe(ranges.case))
    assert "mask: ranges, bias: none, given as bool [2, 1, 1, 9]; views: contiguous" in text
    assert "query 0 of row 0 sees column 0 of 9" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("query_heads: 5, kv_heads: 2", "given.query_heads: 5 query heads can't share 2 kv heads evenly"),
        ("query_heads: 5, kv_heads: 2", "such as 6"),
        ("storage: affine4x64, head_dim: 96", "96 channels are no whole groups of 64; write 128"),
        ("storage: affine4x32, value_dim: 40", "given.value_dim: 40 channels"),
        ("storage: affine7x32", "bits 1 to 6 or 8"),
        ("storage: q4", "no storage; write plain"),
        ("mask: sliding", "needs the key `window`"),
        ("mask: padded", "needs the key `ranges`"),
        ("window: 3", "does nothing without `mask: sliding`"),
        ("ranges: [[0, 4]]", "does nothing without `mask: ranges`"),
        ("mask: ranges, ranges: [[0, 9]]", "end at most 8"),
        ("mask: ranges, ranges: [[3, 3]]", "first < end"),
        ("mask_form: boolean", "does nothing without a mask"),
        ("mask: causal, queries: 9", "write at most as many queries as keys"),
        ("mask: blind, mask_form: additive", "no finite answer"),
        ("unseen: loud, mask: causal", "only `mask: ranges`"),
        ("data: pick, keys: 300, head_dim: 32", "32 channels tell 256 keys apart, not 300"),
        ("data: pick-hidden", "there is none; write a mask"),
        ("sinks: half", "only with `data: zeros`"),
        ("values: cancel", "`cancel` needs equal weights and pairs"),
        ("mask: casual", "did you mean 'causal'"),
        ("dtype: bfloat16, storage: affine4x32, head_dim: 128", "hardly anything could fail"),
        ("dtype: bfloat16, keys: 256, head_dim: 128", "hardly anything could fail"),
        ("dtype: bfloat16, keys: 130, data: zeros, storage: affine8x32", "write `data: pick`"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, given: str, message: str) -> None:
    text = given if "keys: " in given.replace("kv_", "") else f"keys: 8, {given}"
    with pytest.raises(CaseFileError, match=re.escape(message)) as error:
        load_text(tmp_path, f"given: {{{text}}}\ncheck: [output]")
    assert ":5:" in str(error.value)


def test_checks_that_say_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="write it beside that"):
        load_text(tmp_path, "given: {keys: 8}\ncheck: [untouched]")
    with pytest.raises(CaseFileError, match="'output' stands here twice"):
        load_text(tmp_path, "given: {keys: 8}\ncheck: [output, output]")


def test_who_sees_what() -> None:
    everything = [0, 1, 2, 3, 4, 5]
    assert seen(queries=2) == [[everything, everything]]
    assert seen(queries=3, mask="causal") == [[[0, 1, 2, 3], [0, 1, 2, 3, 4], everything]]
    assert seen(queries=3, mask="sliding", window=2) == [[[2, 3], [3, 4], [4, 5]]]
    assert seen(queries=2, mask="sliding", window=1) == [[[4], [5]]]
    assert seen(rows=3, mask="ranges", ranges=[[0, 2], [5, 6]]) == [[[0, 1]], [[5]], [[0, 1]]]
    assert seen(queries=4, mask="padded", ranges=[[3, 6]]) == [[[], [3], [3, 4], [3, 4, 5]]]
    blind = seen(queries=7, rows=2, mask="blind")
    assert all(bool(row[query]) == (query % 3 > 0) for row in blind for query in range(7))
    assert all(query for row in seen(queries=40, rows=3, keys=2, mask="random") for query in row)


def test_masks_in_the_form_that_is_asked_for() -> None:
    assert make_inputs(given_of(mask="causal")).shown.mask == "causal"
    boolean = make_inputs(given_of(mask="causal", mask_form="boolean", queries=2)).shown.mask
    additive = make_inputs(given_of(mask="causal", mask_form="additive", queries=2, dtype="float16")).shown.mask
    assert isinstance(boolean, np.ndarray)
    assert isinstance(additive, np.ndarray)
    assert boolean.tolist() == [[[[True] * 5 + [False], [True] * 6]]]
    assert additive.dtype == np.float16
    assert additive.tolist() == [[[[0.0] * 5 + [-np.inf], [0.0] * 6]]]
    assert make_inputs(given_of()).shown.mask is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("storage", ["plain", "affine2x32", "affine5x32"])
def test_a_query_that_picks_a_key_gets_its_value(dtype: str, storage: str) -> None:
    sizes = {"kv_heads": 2, "query_heads": 4, "rows": 2, "queries": 5, "keys": 40}
    given = given_of(dtype=dtype, storage=storage, data="pick", mask="causal", **sizes)
    inputs = make_inputs(given)
    answers = Answers(given, inputs)
    assert inputs.targets is not None
    for row, head, query in np.ndindex(2, 4, 5):
        target, values = inputs.targets[row, head, query], inputs.attended(row, head // 2).values
        assert inputs.sees[row, head, query, target]
        assert answers.expected[row, head, query] == pytest.approx(values[target], rel=1e-9)
        # No other value is within the bound: whichever key another query picks shows.
        others = np.delete(np.arange(40), target)
        far = np.abs(values[others] - values[target]) > answers.limit[row, head, query]
        assert far.any(axis=1).all()
    assert len(np.unique(inputs.targets)) > 3


def test_hidden_picks_are_next_to_what_is_seen() -> None:
    inputs = make_inputs(given_of(data="pick-hidden", mask="sliding", window=2, queries=3, keys=12))
    assert inputs.targets is not None
    for query in range(3):
        # Query i is at column 9 + i and sees two: itself, and the one before.
        assert inputs.targets[0, 0, query] in (9 + query - 2, 9 + query + 1)
        assert not inputs.sees[0, 0, query, inputs.targets[0, 0, query]]


def test_values_that_cancel_and_values_of_padding() -> None:
    given = given_of(data="zeros", values="cancel", dtype="bfloat16")
    answers = Answers(given, make_inputs(given))
    assert np.abs(answers.expected).max() < 1e-10
    loud = make_inputs(given_of(mask="ranges", ranges=[[2, 5]], unseen="loud")).attended(0, 0).values
    assert (np.abs(loud).max(axis=1) == 1000).tolist() == [True, True, False, False, False, True]


def test_the_same_seed_makes_the_same_arrays() -> None:
    one, same, other = (make_inputs(given_of(seed=seed, sinks="normal", mask="random")) for seed in (3, 3, 4))
    assert np.array_equal(one.shown.queries, same.shown.queries)
    assert np.array_equal(one.sees, same.sees)
    assert not np.array_equal(one.shown.queries, other.shown.queries)


def test_the_baseline_by_hand() -> None:
    keys, values = np.array([[0.0], [np.log(3)], [50.0]]), np.array([[4.0, 0.0], [8.0, 4.0], [1e6, 1e6]])
    sees = np.array([[True, True, False], [False, False, False]])
    queries = np.ones((2, 1))
    output, weights = attend_head(queries, keys, values, 1.0, sees)
    assert output[0] == pytest.approx([7.0, 3.0])
    assert weights.tolist() == [pytest.approx([0.25, 0.75, 0]), [0, 0, 0]]
    # A sink of ln 4 doubles the sum of 1 + 3.
    output, weights = attend_head(queries, keys, values, 1.0, sees, np.log(4))
    assert output.tolist() == [pytest.approx([3.5, 1.5]), [0, 0]]
    assert weights[0] == pytest.approx([0.125, 0.375, 0])
    # The scale is the scores', not the sink's.
    output, _ = attend_head(2 * queries, keys, values, 0.5, sees, np.log(4))
    assert output[0] == pytest.approx([3.5, 1.5])
    alone, _ = attend(queries[0], keys[:2], values[:2], 1.0)
    assert alone == pytest.approx([7.0, 3.0])
