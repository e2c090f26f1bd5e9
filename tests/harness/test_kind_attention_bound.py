"""The bound of attention: right answers in narrow arithmetic keep it, and the worst logits come near it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attention_bound import Arithmetic, Attended, attention_limit, gamma, logit_limit
from harness.baseline import affine as baseline
from harness.baseline.attention import attend_head
from harness.compare import Bound, dot_bound
from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

COLUMNS, WIDTH, QUERIES = 12, 32, 3


def plain(array: NDArray[Any]) -> tuple[NDArray[Any], Array, Array]:
    """Return the numbers as arithmetic in their dtype reads them, exactly, and their terms."""
    exact = array.astype(np.float64)
    return array, exact, np.abs(exact)


def affine(array: NDArray[Any], bits: int) -> tuple[NDArray[Any], Array, Array]:
    """As `plain`, of planes: decoded in steps of the dtype, each rounded."""
    packed, scales, biases = baseline.encode(array, 32, bits)
    exact = baseline.dequantize(packed, scales, biases, 32, bits)
    offsets = np.repeat(biases, 32, axis=-1)
    steps = np.repeat(scales, 32, axis=-1) * baseline.unpack(packed, bits).astype(scales.dtype)
    wide = np.abs(offsets.astype(np.float64))
    return steps + offsets, exact, np.abs(exact - offsets.astype(np.float64)) + wide


def narrow_attention(
    queries: NDArray[Any], keys: NDArray[Any], values: NDArray[Any], scale: float, sees: Any, sink: Any, sums: Any
) -> NDArray[Any]:
    """Attend as unfused kernels do: scaled queries, scores and weights are stored; products are summed in `sums`."""
    dtype = queries.dtype
    scaled = (queries * np.asarray(scale, dtype)).astype(sums)
    scores = np.zeros((len(queries), len(keys)), sums)
    for channel in range(keys.shape[1]):
        scores = scores + scaled[:, channel, np.newaxis] * keys[:, channel].astype(sums)
    logits = np.where(sees, scores.astype(dtype), -np.inf).astype(np.float32)
    if sink is not None:
        logits = np.hstack([logits, np.full((len(queries), 1), sink, np.float32)])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = (weights / weights.sum(axis=1, keepdims=True))[:, : len(keys)].astype(dtype).astype(sums)
    output = np.zeros((len(queries), values.shape[1]), sums)
    for column in range(len(keys)):
        output = output + weights[:, column, np.newaxis] * values[column].astype(sums)
    return output.astype(dtype)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    bits=st.sampled_from([None, 2, 4, 8]),
    size=st.sampled_from([0.3, 1.0, 8.0]),
    offset=st.sampled_from([0.0, 100.0]),
    sink=st.sampled_from([None, 0.0, 5.0, -20.0]),
)
def test_narrow_arithmetic_keeps_the_bound(
    seed: int, dtype: str, bits: int | None, size: float, offset: float, sink: float | None
) -> None:
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    queries = (size * rng.standard_normal((QUERIES, WIDTH))).astype(kind)
    keys = rng.standard_normal((COLUMNS, WIDTH)).astype(kind)
    values = (offset + rng.standard_normal((COLUMNS, WIDTH))).astype(kind)
    sees = rng.random((QUERIES, COLUMNS)) < 0.6
    sees[:, 3] = True
    (near_k, k, k_terms), (near_v, v, v_terms) = (affine(x, bits) if bits else plain(x) for x in (keys, values))
    scale, arithmetic = 0.11, Arithmetic(dtype, affine=bits is not None)
    wide = queries.astype(np.float64)
    expected, weights = attend_head(wide, k, v, scale, sees, sink)
    limit = attention_limit(wide, Attended(k, k_terms, v, v_terms), scale, weights, arithmetic, sink)
    sums = kind if bits else np.float32
    actual = narrow_attention(queries, near_k, near_v, scale, sees, sink, sums)
    assert Bound(limit).check(expected, actual.astype(np.float64)) is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.1, 2.0, 30.0]), with_sink=st.booleans())
def test_logits_that_are_off_as_far_as_they_may_be_keep_the_bound_and_come_near_it(
    seed: int, size: float, *, with_sink: bool
) -> None:
    rng = np.random.default_rng(seed)
    queries, keys = size * rng.standard_normal((1, 8)), rng.standard_normal((5, 8))
    sink = 1.0 if with_sink else None
    arithmetic = Arithmetic("bfloat16", affine=False)
    logits = queries @ keys.T
    off = logit_limit(logits, np.abs(queries) @ np.abs(keys).T, np.array([8]), arithmetic)
    reached = 0.0
    for one in range(5):
        # The value of one key alone, whose logit is too high while all others are too low.
        values = np.eye(5)[:, [one]]
        expected, weights = attend_head(queries, keys, values, 1.0, np.ones((1, 5), bool), sink)
        limit = attention_limit(queries, Attended(keys, np.abs(keys), values, values), 1.0, weights, arithmetic, sink)
        for sign in (1, -1):
            worst = np.where(np.arange(5) == one, sign, -sign) * off
            moved, _ = attend_head(np.ones((1, 1)), (logits + worst).T, values, 1.0, np.ones((1, 5), bool), sink)
            error = float(np.abs(moved - expected)[0, 0])
            assert error <= limit[0, 0]
            reached = max(reached, error / float(limit[0, 0]))
    # The rest is for stored weights and sums; where any weight may come out, no one set of logits is the worst.
    assert reached > 0.2 or size == 30.0


def standard(dtype: str, *, affine: bool = False, keys: int = 64, size: float = 1.0, offset: float = 0.0) -> float:
    """Return the median bound for standard normal data."""
    rng = np.random.default_rng(1)
    queries, k = size * rng.standard_normal((4, 64)), rng.standard_normal((keys, 64))
    v = offset + rng.standard_normal((keys, 64))
    _, weights = attend_head(queries, k, v, 0.125, np.ones((4, keys), bool))
    attended = Attended(k, np.abs(k), v, np.abs(v))
    return float(np.median(attention_limit(queries, attended, 0.125, weights, Arithmetic(dtype, affine=affine))))


@pytest.mark.parametrize(
    ("known", "most"),
    [
        ({"dtype": "float32"}, 5e-5),
        ({"dtype": "float16"}, 0.015),
        ({"dtype": "bfloat16"}, 0.12),
        ({"dtype": "float32", "affine": True}, 6e-5),
        ({"dtype": "float32", "keys": 1024}, 5e-4),
        # What all values have in common doesn't move with the weights.
        ({"dtype": "float32", "offset": 1000.0}, 0.03),
        # One key has nearly all of the weight, whatever its logit.
        ({"dtype": "float16", "size": 200.0}, 0.01),
    ],
)
def test_the_bound_is_no_wider_than_the_arithmetic(known: dict[str, Any], most: float) -> None:
    assert most / 5 < standard(**known) < most


def test_keys_without_weight_do_not_widen_the_bound() -> None:
    attended = Attended(np.eye(40), np.eye(40), np.ones((40, 1)), np.ones((40, 1)))
    picks = 200 * np.eye(40)[:1]
    _, weights = attend_head(picks, attended.keys, attended.values, 1.0, np.ones((1, 40), bool))
    limit = attention_limit(picks, attended, 1.0, weights, Arithmetic("bfloat16", affine=True))
    # 5 roundings of weight, value and output, and 5 of one term that is summed.
    assert 5 / 256 < limit[0, 0] < 11 / 256


def test_a_sink_without_weight_does_not_widen_the_bound() -> None:
    keys, values = np.random.default_rng(3).standard_normal((2, 20, 8))
    queries, sees = keys[:2], np.ones((2, 20), bool)
    limits = []
    for sink in (None, -1e4, -3.4e38):
        _, weights = attend_head(queries, keys, values, 0.3, sees, sink)
        attended = Attended(keys, np.abs(keys), values, np.abs(values))
        limits.append(attention_limit(queries, attended, 0.3, weights, Arithmetic("float32", affine=False), sink))
    assert limits[1] == pytest.approx(limits[0], rel=1e-3)
    assert limits[2] == pytest.approx(limits[0], rel=1e-3)
    # One above them all leaves nothing that could be off.
    _, weights = attend_head(queries, keys, values, 0.3, sees, 100.0)
    assert attention_limit(queries, attended, 0.3, weights, Arithmetic("float32", affine=False), 100.0).max() < 1e-35


def test_gamma() -> None:
    assert gamma(10, 2.0**-8) == pytest.approx(dot_bound(8, np.ones(1), 2.0**-8)[0])
    assert gamma(np.array([255, 256]), 2.0**-8).tolist() == [255.0, np.inf]


def test_where_any_weight_may_come_out_any_value_may() -> None:
    queries, keys, values = np.ones((1, 300)), np.ones((4, 300)), np.array([[-3.0], [1.0], [2.0], [5.0]])
    expected, weights = attend_head(queries, keys, values, 1.0, np.ones((1, 4), bool))
    attended = Attended(keys, keys, values, np.abs(values))
    limit = attention_limit(queries, attended, 1.0, weights, Arithmetic("bfloat16", affine=True))
    assert (limit >= np.abs(values - expected).max()).all()
    assert np.isfinite(limit).all()
