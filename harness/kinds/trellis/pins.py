"""Holding the baseline and the subject to the values that a case file states under `expect`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.trellis import INVERSE_SIGMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from harness.kinds.base import Notes
    from harness.kinds.trellis.schema import Expected


@dataclass(frozen=True)
class Shown:
    """What one side shows of the only block of a case: its words, its states, its weights, where it shows them."""

    words: NDArray[np.uint32] | None = None
    states: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None

    def levels(self) -> NDArray[np.int64] | None:
        """Return the whole numbers that unscaled weights of a byte-sum codebook stand for; a stray weight rounds."""
        if self.weights is None:
            return None
        exact = self.weights.astype(np.float64) / np.float64(INVERSE_SIGMA)
        return np.rint(np.nan_to_num(exact)).clip(-(2**31), 2**31 - 1).astype(np.int64)


def hold(entries: Iterable[Expected], shown: Shown, who: str, notes: Notes, note: str = "") -> bool:
    """Compare what `who` shows with each entry; note the first difference of each. Return whether there was none."""
    agreed = True
    for entry in entries:
        for what, expected, actual in _pairs(entry, shown):
            notes.compared()
            if expected != actual:
                notes.found("expect", f"{who}, {what}", _text(expected), _text(actual), note)
                agreed = False
                break
    return agreed


def _pairs(entry: Expected, shown: Shown) -> Iterator[tuple[str, Any, Any]]:
    if shown.words is not None:
        for index, word in enumerate(entry.words):
            yield f"word {index}", f"{word:#010x}", f"{int(shown.words[index]):#010x}"
    if shown.states is not None:
        yield from _by_column("state", entry.states, shown.states)
    levels = shown.levels() if entry.needs_levels() else None
    if levels is not None:
        yield from _by_column("level", entry.levels, levels)
        if entry.levels_sum is not None:
            yield "sum of all levels", entry.levels_sum, int(levels.sum())
        if entry.levels_sha256 is not None:
            digest = hashlib.sha256(levels.astype("<i4").tobytes()).hexdigest()
            yield "SHA-256 of all levels as little-endian int32", entry.levels_sha256, digest[:16]
    if shown.weights is not None:
        weights = {column: np.float32(value) for column, value in entry.values.items()}
        yield from _by_column("weight", weights, shown.weights)


def _by_column(what: str, expected: Mapping[int, Any], actual: NDArray[Any]) -> Iterator[tuple[str, Any, Any]]:
    for column, value in expected.items():
        yield f"{what} of column {column}", value, actual[column]


def _text(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, np.floating) else str(value)
