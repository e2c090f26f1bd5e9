"""Naive rows that lose something on the way through a file, each what one case is made for."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as naive_affine
from tests.fakes.mixed import NaiveRows

if TYPE_CHECKING:
    from harness.subjects.protocol import Ring


class Saved(NaiveRows):
    """Right, but for what `lose` does to the copy that was read."""

    def save_load(self) -> Ring:
        other = deepcopy(self)
        other.lose()
        return other

    def lose(self) -> None:
        """Lose nothing."""


class NoPrefill(Saved):
    """Forgets what was announced: every column is a token."""

    def lose(self) -> None:
        self.real = None


class NoRound(Saved):
    """Forgets where the round began: a rollback goes back from the end."""

    def lose(self) -> None:
        for row in self.rows:
            row.round_length = row.length


class RoundIsOver(Saved):
    """Takes what was written in the open round for settled: rows cross."""

    def lose(self) -> None:
        self.in_round = False
        self.cross()


class NoCrossing(Saved):
    """Forgets at which length a row becomes affine."""

    def lose(self) -> None:
        for row in self.rows:
            row.crossing = None


class FullWindow(Saved):
    """Writes as many tokens as the window has, also where a row was to show fewer."""

    def lose(self) -> None:
        for row in self.rows:
            row.first = 0


class NewestWindow(Saved):
    """Writes the newest `window` tokens from the end of the buffer, one too few where a block left more."""

    def lose(self) -> None:
        for row in self.rows:
            if self.spec.window is not None and row.length > self.spec.window:
                row.first = row.length - self.spec.window + 2


class QuantizedAnew(Saved):
    """Writes decoded values, which are quantized again when they are read."""

    def lose(self) -> None:
        for row in self.rows:
            storage: Any = row.storage
            if storage is not None:
                planes = {
                    name: naive_affine.encode(parts[0], storage.group_size, 2) for name, parts in row.planes.items()
                }
                row.planes = {
                    name: (naive_affine.dequantize(*planes[name], storage.group_size, 2).astype(parts[0].dtype),)
                    for name, parts in row.planes.items()
                }


class LastRowTwice(Saved):
    """Writes one row for every row, where they are stored apart."""

    def lose(self) -> None:
        for row in self.rows[:-1]:
            row.planes, row.length = deepcopy(self.rows[-1].planes), self.rows[-1].length


class ValuesTurned(Saved):
    """Reads values one column off once the ring has turned."""

    def lose(self) -> None:
        for row in self.rows:
            if row.planes and self.spec.window is not None and row.length > self.spec.window:
                row.planes["values"] = tuple(np.roll(part, 1, axis=1) for part in row.planes["values"])


# What is wrong: the class, and the case that must catch it.
SAVING_MISTAKES: dict[str, tuple[type[Saved], str]] = {
    "an open prefill is not saved": (NoPrefill, "ring/saved-in-an-open-prefill"),
    "an open prefill is not saved, lent": (NoPrefill, "donor/lends-after-a-file"),
    "an open round is not saved": (NoRound, "ring/saved-in-an-open-round"),
    "an open round is over when loaded": (RoundIsOver, "ring/saved-rows-cross-in-time"),
    "crossings are not saved": (NoCrossing, "ring/saved-rows-cross-in-time"),
    "a limit is not saved": (FullWindow, "ring/saved-row-with-a-limit"),
    "a token too few of a long buffer": (NewestWindow, "ring/saved-one-token-short"),
    "codes are made anew": (QuantizedAnew, "ring/saved-quantized-ring-goes-on"),
    "rows apart are saved alike": (LastRowTwice, "ring/saved-in-every-layout"),
    "a turned ring is read from its first column": (ValuesTurned, "ring/saved-after-every-token"),
}
