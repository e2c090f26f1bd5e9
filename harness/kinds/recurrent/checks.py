"""Comparisons of what a recurrent cache showed with rows that were alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.baseline.recurrent import roundings
from harness.compare import UNIT_ROUNDOFF, Bound, Exact, dot_bound, place
from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.baseline.recurrent import Layer
    from harness.compare import Mismatch
    from harness.kinds.base import Notes
    from harness.kinds.recurrent.track import Track
    from harness.subjects.protocol import RecurrentAnswer

Array = NDArray[Any]


def check_mask(answer: RecurrentAnswer, real: list[list[bool]], where: str, notes: Notes) -> None:
    """Compare which columns of the chunk the subject takes for tokens."""
    if answer.mask is None:
        return
    notes.compared()
    expected = np.array(real)
    shown = np.ones(expected.shape, bool) if isinstance(answer.mask, str) else np.asarray(answer.mask)
    if shown.shape != expected.shape or shown.dtype != np.bool_:
        kind = f"{shown.dtype} {list(shown.shape)}"
        notes.found("mask", where, f"bool {list(expected.shape)}", kind, "as broadcasting may hide, and indexing not")
        return
    for row in range(len(expected)):
        if (expected[row] != shown[row]).any():
            note = "T: a token of the row, F: padding"
            notes.found("mask", f"{where}: row {row}", _letters(expected[row]), _letters(shown[row]), note)
            return


def check_numbers(
    check: str, what: str, expected: list[int], actual: Sequence[int] | None, where: str, notes: Notes
) -> None:
    """Compare one whole number a row; a subject that does not tell is not compared."""
    if actual is None:
        return
    notes.compared()
    shown = [int(number) for number in actual]
    if shown != expected:
        notes.found(check, where, f"{what} {expected}", f"{what} {shown}")


def check_output(
    answer: RecurrentAnswer,
    expected: list[list[tuple[Array, Array | None] | None]],
    track: Track,
    where: str,
    notes: Notes,
) -> None:
    """Compare the output at tokens; what stands at padding does not matter."""
    if answer.output is None:
        return
    given = track.bench.given
    shape = (len(expected), len(expected[0]), given.heads, given.value_dim)
    if not _fits("output", answer.output, shape, numpy_dtype(given.dtype), where, notes):
        return
    limits = np.full(shape, np.inf)
    notes.judged_by(answer.output, Bound(limits))
    for row, own in enumerate(expected):
        columns = [column for column, token in enumerate(own) if token is not None]
        tokens = [token for token in own if token is not None]
        if not tokens:
            continue
        values = np.stack([value for value, _ in tokens])
        sizes = [size for _, size in tokens if size is not None]
        size = np.stack(sizes) if sizes else None
        shown, taken = answer.output[row, columns], track.rows[row].position
        limit = _limit(size, track.bench.layer, taken, given.dtype)
        limits[row, columns] = 0.0 if limit is None else limit
        wrong = _compare(values, limit, shown, notes)
        if wrong is not None:
            column, *rest = wrong.index
            at = f"{where}: row {row}, column {columns[column]}, [head, channel] {place(rest)}"
            notes.found("output", at, wrong.expected, wrong.actual, wrong.note)
            return


def check_states(track: Track, where: str, checks: Sequence[str], notes: Notes) -> None:
    """Compare the convolution's state, bit for bit, and the states of the heads."""
    given, layer = track.bench.given, track.bench.layer
    if "conv-state" in checks and (shown := track.cache.conv_state()) is not None:
        wanted = np.stack([row.exact.conv_state() for row in track.rows])
        notes.judged_by(shown, Exact())
        fits = _fits("conv-state", shown, wanted.shape, numpy_dtype(given.dtype), where, notes)
        if fits and (wrong := _exact(wanted, shown)):
            row, *rest = wrong.index
            at = f"{where}: row {row}, [token, channel] {place(rest)}"
            notes.found("conv-state", at, wrong.expected, wrong.actual, wrong.note)
            return
    if "state" in checks and (shown := track.cache.state()) is not None:
        shape = (len(track.rows), given.heads, given.value_dim, given.key_dim)
        if _fits("state", shown, shape, np.dtype(np.float32), where, notes):
            values = np.stack([row.exact.state() for row in track.rows])
            sizes = [row.bounds.state() for row in track.rows if row.bounds is not None]
            taken = max(row.position for row in track.rows)
            limit = _limit(np.stack(sizes) if sizes else None, layer, taken, "float32")
            notes.judged_by(shown, Exact() if limit is None else Bound(limit))
            wrong = _compare(values, limit, shown, notes)
            if wrong is not None:
                row, *rest = wrong.index
                at = f"{where}: row {row}, [head, value, key] {place(rest)}"
                notes.found("state", at, wrong.expected, wrong.actual, wrong.note)


def check_positions(track: Track, where: str, notes: Notes) -> None:
    """Compare how many tokens each row has taken."""
    expected = [row.position for row in track.rows]
    check_numbers("positions", "offsets", expected, track.cache.offsets(), where, notes)


def check_untouched(track: Track, where: str, notes: Notes) -> None:
    """Compare every array that crossed the border with what it held then."""
    for item in track.cache.handed_out() or ():
        notes.compared()
        if wrong := Exact().check(item.then, item.now):
            notes.found("untouched", f"{where}: {item.label}, {wrong.where}", wrong.expected, wrong.actual, wrong.note)
            return


def _limit(size: Array | None, layer: Layer, tokens: int, dtype: str) -> Array | None:
    """Return gamma_n * size, n as `roundings` counts (see `dot_bound`); None: exactly, where no size is given."""
    return None if size is None else dot_bound(roundings(layer, tokens), size, UNIT_ROUNDOFF[dtype], extra=0)


def _compare(expected: Array, limit: Array | None, actual: Array, notes: Notes) -> Mismatch | None:
    notes.compared()
    return _exact(expected, actual) if limit is None else Bound(limit).check(expected, actual)


def _exact(expected: Array, actual: Array) -> Mismatch | None:
    # Adding +0 makes -0 into +0: the sign of a sum that is zero depends on where the sum starts.
    return Exact().check(expected.astype(actual.dtype) + actual.dtype.type(0), actual + actual.dtype.type(0))


def _fits(check: str, shown: object, shape: tuple[int, ...], dtype: np.dtype[Any], where: str, notes: Notes) -> bool:
    notes.compared()
    if isinstance(shown, np.ndarray) and shown.shape == shape and shown.dtype == dtype:
        return True
    actual = f"{shown.dtype} {list(shown.shape)}" if isinstance(shown, np.ndarray) else type(shown).__name__
    notes.found(check, where, f"{dtype} {list(shape)}", actual)
    return False


def _letters(row: Array) -> str:
    return "".join("T" if real else "F" for real in row)
