"""Kind `attention`: rotary positions, biases, masks for each head, and views."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.attention_bound import Arithmetic, attention_limit
from harness.baseline.attention import attend_head, rotate
from harness.case.load import load_file
from harness.compare import Bound
from harness.dtypes import numpy_dtype
from harness.errors import CaseFileError
from harness.kinds.attention.data import make_inputs
from harness.kinds.attention.rope import _answer, angle_limit, make_rope_input, positions
from harness.kinds.attention.schema import AttentionGiven

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

HEAD = "assay: 1\nkind: attention\ntitle: t\nwhy: w\n"


def given_of(**given: Any) -> AttentionGiven:
    return AttentionGiven.model_validate({"keys": 6, "head_dim": 32, **given})


def test_a_turn_by_hand() -> None:
    x = np.array([[1.0, 0.0, 0.0, 1.0, 7.0], [1.0, 0.0, 0.0, 1.0, 7.0]])
    half = np.pi / 2
    turned = rotate(x, np.array([0.0, half]), 4, 100.0, traditional=False)
    assert np.array_equal(turned[0], x[0])
    # Pair 0 is channels 0 and 2 and turns by a quarter; pair 1 is 1 and 3, and turns by a tenth of that.
    tenth = half / 10
    assert turned[1] == pytest.approx([0, -np.sin(tenth), 1, np.cos(tenth), 7])
    pairs = rotate(x, np.array([0.0, half]), 4, 100.0, traditional=True)
    assert pairs[1] == pytest.approx([0, 1, -np.sin(tenth), np.cos(tenth), 7])


def test_turns_add_up_and_keep_lengths() -> None:
    x = np.random.default_rng(1).standard_normal((3, 32))
    by = {"dims": 32, "base": 1e4, "traditional": False}
    once = rotate(rotate(x, np.full(3, 5.0), **by), np.full(3, 7.0), **by)  # type: ignore[arg-type]
    assert once == pytest.approx(rotate(x, np.full(3, 12.0), **by))  # type: ignore[arg-type]
    assert np.linalg.norm(once, axis=1) == pytest.approx(np.linalg.norm(x, axis=1))
    back = rotate(once, np.full(3, -12.0), **by)  # type: ignore[arg-type]
    assert back == pytest.approx(x)


def in_float32(given: AttentionGiven, x: NDArray[Any], position: NDArray[np.float64]) -> NDArray[Any]:
    """Turn as MLX's CPU backend does: angles in float32, their cosines and the products in the dtype."""
    half = given.turned // 2
    rate = np.float32(np.log(given.base) / half)
    frequencies = np.exp(-np.arange(half, dtype=np.float32) * rate)
    angles = position.astype(np.float32)[:, np.newaxis] * frequencies
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    first, second = x[:, :half], x[:, half : given.turned]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos, x[:, given.turned :]], axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("offset", [0, 1000, 100000, -70000])
def test_the_bound_holds_for_float32_angles_and_not_for_the_next_position(dtype: str, offset: int) -> None:
    for base in (1e4, 1e6):
        given = given_of(dtype=dtype, head_dim=96, dims=64, offsets=[offset], queries=5, base=base, seed=offset % 7)
        x = make_rope_input(given)[0, 0]
        expected, limit = _answer(given, x.astype(np.float64), positions(given, 0))
        actual = in_float32(given, x, positions(given, 0)).astype(np.float64)
        assert Bound(limit).check(expected, actual) is None
        assert (limit[:, 64:] == 0).all()
        later, _ = _answer(given, x.astype(np.float64), positions(given, 0) + 1)
        assert (np.abs(later - expected) > limit).any(axis=1).all()


def test_an_angle_is_as_uncertain_as_its_position_is_far() -> None:
    near, far = (angle_limit(np.array([float(place)]), 64, 1e4)[0] for place in (1000, 100000))
    assert far == pytest.approx(100 * near)
    # Of the first pair the angle is the position: 100,000 radians, and float32 steps of 1/128 there.
    assert 1 / 128 < far[0] < 0.1
    assert far[-1] < 1e-4


def test_offsets_are_of_the_rows_and_repeat() -> None:
    given = given_of(rows=3, queries=2, offsets=[4, -2], position_scale=0.5)
    assert [positions(given, row).tolist() for row in range(3)] == [[2.0, 2.5], [-1.0, -0.5], [2.0, 2.5]]


def test_a_bias_is_added_to_scaled_scores() -> None:
    keys, values = np.array([[0.0], [10.0]]), np.array([[4.0], [8.0]])
    bias = np.array([[np.log(3), -1.0]])
    output, weights = attend_head(np.array([[0.1]]), keys, values, 1.0, np.ones((1, 2), bool), None, bias)
    # Scores 0 and 1 become log 3 and 0.
    assert weights[0] == pytest.approx([0.75, 0.25])
    assert output[0] == pytest.approx([5.0])


def test_biases_reach_the_subject_in_its_dtype_and_hidden_keys_as_infinity() -> None:
    given = given_of(mask="causal", bias="slopes", kv_heads=1, query_heads=2, queries=2, dtype="float16")
    inputs = make_inputs(given)
    mask = inputs.shown.mask
    assert isinstance(mask, np.ndarray)
    assert mask.dtype == np.float16
    # The last query is at column 5; slopes are 1/2 and 1/4.
    assert mask[0, :, 1].tolist() == [[-2.5, -2, -1.5, -1, -0.5, 0], [-1.25, -1, -0.75, -0.5, -0.25, 0]]
    assert mask[0, :, 0, 5].tolist() == [-np.inf, -np.inf]
    assert inputs.bias is not None
    assert np.array_equal(inputs.bias[0, :, 1], mask[0, :, 1])
    normal = make_inputs(given_of(bias="normal", per_head=True, query_heads=4, kv_heads=2, dtype="bfloat16"))
    assert normal.bias is not None
    assert normal.sees.all()
    assert np.array_equal(normal.bias, normal.bias.astype(numpy_dtype("bfloat16")).astype(np.float64))
    assert len(np.unique(normal.bias[0, :, 0, 0])) == 4


def test_masks_of_each_head_differ() -> None:
    inputs = make_inputs(given_of(mask="random", per_head=True, query_heads=4, kv_heads=2, queries=3, keys=20))
    assert inputs.sees.shape == (1, 4, 3, 20)
    assert len({head.tobytes() for head in inputs.sees[0]}) == 4
    assert isinstance(inputs.shown.mask, np.ndarray)
    assert np.array_equal(inputs.shown.mask, inputs.sees)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bound_allows_for_the_rounding_of_a_biased_score(dtype: str) -> None:
    given = given_of(dtype=dtype, data="zeros", bias="normal", query_heads=2, kv_heads=2, keys=40, queries=4)
    inputs = make_inputs(given)
    assert inputs.bias is not None
    narrow = numpy_dtype(dtype)
    for head in range(2):
        attended = inputs.attended(0, head)
        # Far from 0, where numbers lie further apart than the weights of their differences allow.
        bias = (inputs.bias[0, head] - 20).astype(narrow).astype(np.float64)
        queries = inputs.shown.queries[0, head].astype(np.float64)
        sees = inputs.sees[0, head]
        # Rounded once more, as a sum is: up in every second column, and down in the others.
        unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-24
        nudged = bias * (1 + unit * np.where(np.arange(40) % 2, 1, -1))
        exact, weights = attend_head(queries, attended.keys, attended.values, given.factor, sees, None, bias)
        near, _ = attend_head(queries, attended.keys, attended.values, given.factor, sees, None, nudged)
        none, _ = attend_head(queries, attended.keys, attended.values, given.factor, sees)
        twice, _ = attend_head(queries, attended.keys, attended.values, given.factor, sees, None, 2 * bias)
        limit = attention_limit(queries, attended, given.factor, weights, Arithmetic(dtype, affine=False), None, bias)
        assert Bound(limit).check(exact, near.astype(narrow)) is None
        # Without the bias's own part it would not hold; in float32 the error of the exponential is as large.
        zero = np.zeros_like(bias)
        bare = attention_limit(queries, attended, given.factor, weights, Arithmetic(dtype, affine=False), None, zero)
        assert dtype == "float32" or Bound(bare).check(exact, near) is not None
        assert Bound(limit).check(exact, none) is not None
        assert Bound(limit).check(exact, twice) is not None


def test_what_shares_a_place_is_equal_and_picks_alike() -> None:
    inputs = make_inputs(given_of(views="stride-0", kv_heads=2, query_heads=4, queries=5, keys=20, data="pick"))
    queries = inputs.shown.queries
    assert (queries == queries[:, :1]).all()
    assert inputs.targets is not None
    assert (inputs.targets == inputs.targets[:, :1]).all()
    first, second = inputs.attended(0, 0), inputs.attended(0, 1)
    assert np.array_equal(first.keys, second.keys)
    assert np.array_equal(first.values, second.values)


@pytest.mark.parametrize(
    ("given", "check", "message"),
    [
        ("head_dim: 32", "output", "the key 'keys' is missing"),
        ("keys: 8, offsets: [3]", "output", "does nothing without `check: [rope]`"),
        ("head_dim: 32", "rope", "the key 'offsets' is missing"),
        ("offsets: [0], head_dim: 32, dims: 40", "rope", "given.dims: channels turn in pairs"),
        ("offsets: [0], dims: 7", "rope", "write an even number up to 64"),
        ("offsets: [0, 1], rows: 2, one_offset: true", "rope", "need an array; remove it"),
        ("offsets: [1000000]", "rope", "may be off by"),
        ("keys: 8, bias: normal, mask: random, mask_form: boolean", "output", "has no room for a bias"),
        ("keys: 8, per_head: true, query_heads: 2, mask: causal", "output", "differ from head to head"),
        ("keys: 8, per_head: true, mask: random", "output", "does nothing for one query head"),
        ("keys: 8, bias: normal, mask: blind", "output", "no finite answer when -inf is added"),
        ("keys: 8, views: stride-0", "output", "one row of one kv head has nothing to share"),
        ("keys: 8, kv_heads: 2, views: stride-0, mask: random, data: pick", "output", "pick equal keys, seen or not"),
        ("keys: 8, views: upside-down", "output", "given.views"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, given: str, check: str, message: str) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(f"{HEAD}given: {{{given}}}\ncheck: [{check}]")
    with pytest.raises(CaseFileError, match=re.escape(message)):
        load_file(path)
