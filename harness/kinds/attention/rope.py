"""The check `rope`: queries turned by their positions, each row from an offset of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.attention import rotate
from harness.compare import UNIT_ROUNDOFF, Bound
from harness.dtypes import numpy_dtype
from harness.kinds.affine.layouts import repeated
from harness.kinds.affine.steps import TINY
from harness.subjects.call import subject_call
from harness.subjects.protocol.attention import RopeInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from harness.kinds.affine.border import Border
    from harness.kinds.affine.comparison import Watch
    from harness.kinds.attention.schema import AttentionCase, AttentionGiven
    from harness.kinds.base import Complaint
    from harness.subjects.protocol import Attention

    Array = NDArray[np.float64]

# What `laid_out` calls the views that attention has names of its own for.
LAYOUTS = {"transposed": "heads-last", "channels-first": "transposed"}
_KEYS = ("offsets", "dims", "traditional", "base", "position_scale", "one_offset")
# Above this error of an angle, in radians, answers of the positions next to the right one come near.
_LOOSEST = 0.1
# A float32 cosine or exponential is off by a few units in the last place.
_FEW = 8
_EXACT_POSITION = 2**24


def check_rope(given: AttentionGiven, attention: Attention, border: Border, watch: Watch | None) -> None:
    """Compare the turned queries of every row and head with float64; channels that do not turn keep their bits."""
    x = make_rope_input(given)
    offsets = np.array([given.offset_of(row) for row in range(given.rows)], np.int32)
    lent = RopeInput(
        border.lend("x for rope", x, LAYOUTS.get(given.views, given.views)),
        given.turned,
        given.traditional,
        given.base,
        given.position_scale,
        int(offsets[0]) if given.one_offset else border.lend("offsets", offsets),
    )
    with subject_call("rope"):
        shown = attention.rope(lent)
    actual = border.take("what rope returned", shown, x.shape, x.dtype).astype(np.float64)
    expected, limit = np.zeros(x.shape), np.zeros(x.shape)
    for row, head in np.ndindex(x.shape[:2]):
        expected[row, head], limit[row, head] = _answer(given, x[row, head].astype(np.float64), positions(given, row))
    border.notes.compared()
    policy = Bound(limit)
    if watch:
        watch("rope", policy, expected, actual)
    if wrong := policy.check(expected, actual):
        row, head, query, channel = wrong.index
        pair = "" if channel >= given.turned else f", of pair {_pair(given, channel)}"
        where = f"row {row} (offset {offsets[row]}), head {head}, query {query}, channel {channel}{pair}"
        rows = np.flatnonzero((~(np.abs(actual - expected) <= limit)).any(axis=(1, 2, 3)))
        note = f"{wrong.note}; in {rows.size} of {given.rows} rows"
        near = _resembles(given, x[row, head, query].astype(np.float64), actual[row, head, query], row, query)
        border.notes.found("rope", where, wrong.expected, wrong.actual, note + near)


def make_rope_input(given: AttentionGiven) -> NDArray[Any]:
    """Return the queries that are turned; the same seed makes the same."""
    x = np.random.default_rng(given.seed).standard_normal(given.query_shape())
    return (repeated(x) if given.views == "stride-0" else x).astype(numpy_dtype(given.dtype))


def positions(given: AttentionGiven, row: int) -> Array:
    """Return the scaled position of every query of a row, in float64."""
    return given.position_scale * (given.offset_of(row) + np.arange(given.queries, dtype=np.float64))


def angle_limit(position: Array, dims: int, base: float) -> Array:
    """Bound the error of the angles [tokens, dims / 2] in radians, computed in float32 with unit roundoff e.

    The frequency base ** -t, t = i / (dims / 2), is exp(-t log base) or a power: rounding the argument's parts (t, the
    logarithm and their product, 3e of it at most) is a relative error of 3e |t log base|, the exponential `_FEW` e
    more. Position (rounded when scaled: e), and product with it (e) add 2e. All of these are relative to the angle, so
    at position 100,000 the first angle alone is off by thousandths: this is the position times theta, and no float32
    implementation avoids it.
    """
    unit = UNIT_ROUNDOFF["float32"]
    exponent = np.arange(dims // 2) / (dims // 2) * np.log(base)
    angle = np.abs(position)[:, np.newaxis] * np.exp(-exponent)
    limit: Array = unit * angle * (3 * exponent + _FEW + 2)
    return limit


def _answer(given: AttentionGiven, x: Array, position: Array) -> tuple[Array, Array]:
    """Return the turned x [tokens, head_dim] and its bound.

    Cosine and sine move by no more than their angle does, are off by `_FEW` e of their own, and are rounded to the
    dtype (u); each product and the sum round once more, 3u in all of the magnitudes of both terms.
    """
    dims, half = given.turned, given.turned // 2
    expected = rotate(x, position, dims, given.base, traditional=given.traditional)
    off = angle_limit(position, dims, given.base) + _FEW * UNIT_ROUNDOFF["float32"]
    unit = UNIT_ROUNDOFF[given.dtype]
    limit = np.zeros(x.shape)
    for i in range(half):
        first, second = (2 * i, 2 * i + 1) if given.traditional else (i, i + half)
        sizes = np.abs(x[:, first]) + np.abs(x[:, second])
        bound = sizes * (off[:, i] + 3 * unit / (1 - 3 * unit)) + 3 * TINY[given.dtype]
        limit[:, first] = limit[:, second] = bound
    return expected, limit


def _pair(given: AttentionGiven, channel: int) -> int:
    return channel // 2 if given.traditional else channel % (given.turned // 2)


def _resembles(given: AttentionGiven, x: Array, answer: Array, row: int, query: int) -> str:
    """Say which other position the answer is of, if any row or neighbor has it."""
    own = given.offset_of(row) + query
    others = {given.offset_of(other) + place for other in range(given.rows) for place in range(given.queries)}
    others |= {own - 1, own + 1, -own, 0}
    for other in sorted(others - {own}):
        place = np.array([other * given.position_scale], np.float64)
        expected, limit = _answer(given, x[np.newaxis], place)
        if (np.abs(expected[0] - answer) <= limit[0]).all():
            return f"; the answer is that of position {other}, not {own}"
    return ""


def rope_complaints(case: AttentionCase) -> Iterator[Complaint]:
    """Yield what of the keys of `rope` can't be."""
    given = case.given
    if "rope" not in case.check:
        for key in _KEYS:
            if key in given.model_fields_set:
                yield ("given", key), "does nothing without `check: [rope]`; remove it, or write that"
        return
    if given.offsets is None:
        yield ("given",), "the key 'offsets' is missing, which `rope` needs"
        return
    if given.turned % 2 or given.turned > given.head_dim:
        most = given.head_dim - given.head_dim % 2
        key = "dims" if given.dims else "head_dim"
        yield ("given", key), f"channels turn in pairs, within head_dim; write an even number up to {most}"
        return
    if given.one_offset and len({given.offset_of(row) for row in range(given.rows)}) > 1:
        yield ("given", "one_offset"), "rows with offsets of their own need an array; remove it"
    furthest = max(abs(given.offset_of(row)) + given.queries for row in range(given.rows))
    off = angle_limit(np.array([furthest * given.position_scale]), given.turned, given.base).max()
    if furthest > _EXACT_POSITION or off > _LOOSEST:
        why = f"at position {furthest} an angle in float32 may be off by {off:.2g} radians: any answer would do"
        yield ("given", "offsets"), f"{why}; write smaller offsets"


def describe_rope(case: AttentionCase) -> Iterator[str]:
    """Write what is turned by how much, with the bound."""
    given = case.given
    x = make_rope_input(given)
    pairs = "neighboring channels" if given.traditional else "channels of two halves"
    yield f"x: {given.dtype} {list(x.shape)}; views: {given.views}"
    yield f"turned: {given.turned} of {given.head_dim} channels, in pairs of {pairs}"
    yield f"base: {given.base:g}, positions times {given.position_scale:g}"
    for row in range(given.rows):
        place = positions(given, row)
        yield f"row {row}: positions {place[0]:g} to {place[-1]:g}"
    off = max(angle_limit(positions(given, row), given.turned, given.base).max() for row in range(given.rows))
    _, limit = _answer(given, x[0, 0].astype(np.float64), positions(given, 0))
    yield f"an angle in float32 is off by up to {off:.3g} radians"
    yield f"first values: {' '.join(f'{float(value):.6g}' for value in x.flat[:6])}"
    yield f"bound of row 0, head 0: {np.median(limit):.3g} (median), {limit.max():.3g} (largest)"
    yield f"checked: {', '.join(case.check)}"
