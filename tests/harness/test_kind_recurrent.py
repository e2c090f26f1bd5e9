"""Kind `recurrent`: what its cases may say, its data, its baseline by hand, and the mistakes that its cases catch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from harness.baseline.recurrent import Layer, Row, Token, magnitudes
from harness.case.load import load_file
from harness.errors import CaseFileError
from harness.execute import execute
from harness.kinds.recurrent.data import MOST_INTEGER_TOKENS, make_stream, make_weights
from harness.kinds.recurrent.describe import describe
from harness.kinds.recurrent.schema import RecurrentCase, RecurrentGiven
from harness.outcome import Outcome
from harness.subjects.protocol import Recurrent, RecurrentAnswer, RecurrentBlock, RecurrentSpec, Subject
from tests.fakes.recurrent import MISTAKES, Naive, NaiveRecurrent

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "recurrent"


@cache
def instances(name: str) -> list[Instance]:
    return [instance for instance in load_file(CASES / f"{name}.yaml") if not instance.case.requires]


def few(name: str) -> list[Instance]:
    every = instances(name)
    return list({item.id: item for item in every[:1] + every[-1:]}.values())


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.yaml")))
def test_a_right_cache_passes(name: str) -> None:
    for instance in few(name):
        result = execute(instance, Naive())
        assert result.outcome is Outcome.PASSED, (instance.id, result)


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.__name__)
def test_every_mistake_is_caught_by_its_case(kind: type[NaiveRecurrent]) -> None:
    results = (execute(instance, Naive(kind)) for instance in instances(MISTAKES[kind]))
    first = next((result for result in results if result.outcome is not Outcome.PASSED), None)
    assert first is not None, "no instance notices"
    assert first.outcome is Outcome.FAILED, first


def case_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cases" / "recurrent" / "mine.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "assay: 1\nkind: recurrent\ntitle: Mine\nwhy: To see\n"
    path.write_text(head + text + ("" if "check:" in text else "check: [mask, output]\n"))
    return path


def test_the_mask_of_a_batch_that_has_left_paddings_of_zero() -> None:
    """The small input of a public fault: the evidence names the row, what it is and what it must be."""
    mistake = next(kind for kind in MISTAKES if kind.__name__ == "MaskForgetsLengths")
    (first, *_) = instances("prefill-right-padded")
    finding = execute(first, Naive(mistake)).findings[0]
    assert (finding.check, finding.expected, finding.actual) == ("mask", "TFF", "TTT")
    assert finding.where == "step 1 (prefill {lengths: [3, 1]}), columns 0..2: row 1"


def hand_layer(name: str) -> Layer:
    # One head, state 1 x 1, kernel 2: the last tap counts the token itself, the first one ten times its forerunner.
    return Layer(name, 1, 1, 1, np.array([[10.0, 1.0]] * 3), np.array([2.0]))


def test_gated_delta_by_hand() -> None:
    row = Row(hand_layer("gated-delta"))
    # Convolved: q 1, k 2, v 3. S = 0; change (3 - 0) / 2; S = 1.5 * 2 = 3; output 3 * 1.
    assert row.push(Token(np.array([1.0, 2.0, 3.0]), np.array([0.5]), np.array([0.5]))).tolist() == [[3.0]]
    # Convolved: q 11, k 21, v 30. S = 1.5; recalled 31.5; change -1.5; S = 1.5 - 31.5 = -30; output -330.
    assert row.push(Token(np.array([1.0, 1.0, 0.0]), np.array([0.5]), np.array([1.0]))).tolist() == [[-330.0]]
    assert row.state().tolist() == [[[-30.0]]]
    assert row.conv_state().tolist() == [[1.0, 1.0, 0.0]]
    row.cut(1)
    assert (row.state().tolist(), len(row.tokens)) == ([[[3.0]]], 1)


def test_selective_scan_by_hand() -> None:
    row = Row(hand_layer("ssm"))
    # Convolved: x 1, B 2, C 3. S = 0.5 * 1 * 2 = 1; output 3 + 2 * 1.
    assert row.push(Token(np.array([1.0, 2.0, 3.0]), np.array([0.5]), np.array([0.5]))).tolist() == [[5.0]]
    # Convolved: x 10, B 21, C 30. S = 0.5 + 210 = 210.5; output 6315 + 20.
    assert row.push(Token(np.array([0.0, 1.0, 0.0]), np.array([0.5]), np.array([1.0]))).tolist() == [[6335.0]]


@pytest.mark.parametrize("name", ["gated-delta", "ssm"])
@pytest.mark.parametrize("seed", range(4))
def test_integer_data_is_exact_in_float32_whatever_the_order(name: str, seed: int) -> None:
    """Sums of magnitudes stay below 2^24 units of the smallest bit, at the largest layer and the longest row."""
    given = RecurrentGiven(layer=name, kernel=4, heads=3, key_dim=8, value_dim=4, seed=seed)  # type: ignore[arg-type]
    weights = make_weights(given)
    conv, skip = weights.conv.astype(np.float64), weights.skip.astype(np.float64)
    layer = Layer(name, given.heads, given.key_dim, given.value_dim, conv, skip)
    exact = Row(layer)
    stream = make_stream(given, weights, 0, MOST_INTEGER_TOKENS)
    finest = 0
    for index in range(MOST_INTEGER_TOKENS):
        output = exact.push(stream.token(index))
        values = np.concatenate([exact.state().ravel(), output.ravel()])
        while (values * 2.0**finest != np.rint(values * 2.0**finest)).any():
            finest += 1
        # Terms of an output: state times query, before they are summed.
        largest = np.abs(exact.state()).max() * 2 * given.key_dim + np.abs(values).max() + 32
        assert largest * 2.0**finest < 2**24


def test_magnitudes_bound_values() -> None:
    given = RecurrentGiven(data="normal", seed=3)
    weights = make_weights(given)
    layer = Layer("gated-delta", 2, 4, 4, weights.conv.astype(np.float64), weights.skip.astype(np.float64))
    exact, sizes = Row(layer), Row(magnitudes(layer))
    stream = make_stream(given, weights, 0, 6)
    for index in range(6):
        token = stream.token(index)
        assert (np.abs(exact.push(token)) <= sizes.push(token) + 1e-12).all()
        assert (sizes.state() > 0).all()


class TooImprecise(NaiveRecurrent):
    """Off by three in ten thousand: more than float32 loses, and less than a look at the numbers would show."""

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        answer = super().update(block)
        assert answer.output is not None
        output = answer.output.astype(np.float64) * 1.0003
        return RecurrentAnswer(answer.mask, answer.lengths, answer.counts, output.astype(np.float32))


def test_a_bound_is_narrow_enough_to_tell() -> None:
    normal = [item for item in instances("prefill-right-padded") if "normal" in item.id]
    assert {execute(item, Naive(TooImprecise)).outcome for item in normal} == {Outcome.FAILED}
    assert {execute(item, Naive()).outcome for item in normal} == {Outcome.PASSED}


class Silent(Subject):
    """Takes everything and shows nothing."""

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        class Cache(NaiveRecurrent):
            def update(self, block: RecurrentBlock) -> RecurrentAnswer:
                del block
                return RecurrentAnswer()

        return Cache(spec)


def test_a_subject_that_shows_nothing_is_unsupported(tmp_path: Path) -> None:
    (instance,) = load_file(case_file(tmp_path, "steps:\n  - append: 2\n"))
    result = execute(instance, Silent())
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "shows nothing of mask, output")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps:\n  - trim: 1\n  - append: 1\n", "there are no 1 tokens yet"),
        ("steps:\n  - chunk: 1\n", "no prefill is open"),
        ("steps:\n  - prepare: {lengths: [2]}\n  - append: 1\n", "can't follow in an open prefill"),
        ("steps:\n  - prepare: {lengths: [2]}\n  - chunk: 1\n  - finalize\n", "1 columns are still to come"),
        ("steps:\n  - prepare: {lengths: [2]}\n  - chunk: 3\n", "3 columns, and 2 are left"),
        ("steps:\n  - prepare: {lengths: [2]}\n  - chunk: 2\n", "end in an open prefill"),
        ("steps:\n  - prefill: {lengths: [2], chunks: [1, 2]}\n", "are 3 columns, not the 2"),
        ("steps:\n  - prefill: {lengths: [2, 1]}\n", "2 numbers for 1 rows"),
        ("steps:\n  - prefill: {lengths: [0]}\n", "no row has a token"),
        ("steps:\n  - append: 1\n  - prefill: {lengths: [2], left: [1]}\n", "left padding needs rows without tokens"),
        ("steps:\n  - append: 1\n  - begin: round\n  - filter: {rows: [0]}\n", "can't follow in an open round"),
        ("steps:\n  - append: 1\n  - begin: round\n", "end in an open round"),
        ("steps:\n  - append: 1\n  - commit\n", "no round is open"),
        ("steps:\n  - append: 1\n  - filter: {rows: [1]}\n", "there is no row 1"),
        ("steps:\n  - append: 1\n  - extract: {row: 1}\n", "there is no row 1"),
        ("steps:\n  - copy: deep\n", "write no token"),
        ("steps:\n  - append: 1\n    expect: refused\n", "only `trim` may be refused"),
        ("steps:\n  - append: 65\n", "integer data is exact for 64 tokens"),
        ("given: {data: normal, dtype: float16}\nsteps:\n  - append: 1\n", "has no bound that tells right from wrong"),
        ("given: {rows: 2}\nsteps:\n  - append: 1\n  - merge: {rows: [[]]}\n", "takes solo caches"),
        ("steps:\n  - apend: 1\n", "did you mean 'append'"),
        ("steps:\n  - append\n", "needs its argument"),
        ("steps:\n  - append: 1\n    decode: 1\n", "stand in one item"),
        ("steps:\n  - merge: {rows: [[{trim: 1}]]}\n", "write append or decode"),
        ("steps:\n  - append: 1\ncheck: [output, output]\n", "stands here twice"),
    ],
)
def test_complaints(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(CaseFileError, match=r"mine\.yaml:") as problem:
        load_file(case_file(tmp_path, text))
    assert told in str(problem.value)


def test_described_without_a_subject() -> None:
    (first, *_) = instances("prefill-right-padded")
    assert isinstance(first.case, RecurrentCase)
    lines = list(describe(first.case))
    assert lines[0] == "layer: gated-delta, 2 heads, state 4 x 4, kernel 4, 24 channels of float32, integer data"
    assert "  row 1: mask TFF, convolution length 1, then at position 1" in lines
    (first, *_) = instances("state-refuses-to-trim")
    assert isinstance(first.case, RecurrentCase)
    assert "  a state can't do this: it refuses, and nothing changes" in list(describe(first.case))


def test_streams_are_the_same_whatever_the_batch() -> None:
    given = RecurrentGiven(seed=5)
    weights = make_weights(given)
    short, long = (make_stream(given, weights, 1, 6), make_stream(given, weights, 2, 6))
    assert not np.array_equal(short.inputs, long.inputs)
    again = make_stream(replace_rows(given), weights, 1, 6)
    assert np.array_equal(short.inputs, again.inputs)
    assert replace(short).token(3).inputs.tolist() == short.inputs[3].tolist()


def replace_rows(given: RecurrentGiven) -> RecurrentGiven:
    return given.model_copy(update={"rows": 4})
