"""The naive mixed batch with one mistake each, and for each a shipped case that is there to catch it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.subjects.protocol import AffineStorage, Answer, PlainArrays, Ring, RowsApart
from tests.fakes.mixed import NaiveDonor, NaiveRows, apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.fakes.batches import Array


class CrossesInARound(NaiveRows):
    def cross(self) -> None:
        self.in_round, was = False, self.in_round
        super().cross()
        self.in_round = was


class CrossesLate(NaiveRows):
    def cross(self) -> None:
        for row in self.rows:
            if row.crossing is not None and row.length == row.crossing:
                return
        super().cross()


class CrossesByPadding(NaiveRows):
    """Counts the columns of the longest row for every row."""

    def cross(self) -> None:
        longest = max((row.length for row in self.rows), default=0)
        for row in [] if self.in_round else self.rows:
            if row.crossing is not None and longest >= row.crossing:
                row.storage, row.crossing = self.spec.storage, None


class CrossingsStay(NaiveRows):
    """Filters rows and leaves their crossing numbers behind."""

    def filter(self, rows: Sequence[int]) -> None:
        numbers = [row.crossing for row in self.rows]
        super().filter(rows)
        for row, number in zip(self.rows, numbers, strict=False):
            row.crossing = number


class OneFormatForAll(NaiveRows):
    """Shows every row in the format of the first."""

    def arrays(self, planes: tuple[Array, ...]) -> Any:
        return apart([self.rows[0].storage] * len(self.rows), planes[0])


class QuantizesAll(NaiveRows):
    def quantize_rows(self, rows: Sequence[int], bits: int, group_size: int) -> Ring:
        return super().quantize_rows(range(len(self.rows)), bits, group_size)


class QuantizesTwice(NaiveRows):
    """Packs rows by decoding them and encoding the batch: codes move."""

    def arrays(self, planes: tuple[Array, ...]) -> Any:
        if len(self.rows) == 1:
            return super().arrays(planes)
        storages = [row.storage for row in self.rows]
        first = apart([AffineStorage(8, 32) if storage else None for storage in storages], planes[0])
        again = np.concatenate([self.decoded(RowsApart((part,))) for part in first.parts])
        return apart(storages, again.astype(planes[0].dtype))


class PartsSwapped(NaiveRows):
    def arrays(self, planes: tuple[Array, ...]) -> Any:
        return RowsApart(super().arrays(planes).parts[::-1])


class RowMissing(NaiveRows):
    def arrays(self, planes: tuple[Array, ...]) -> Any:
        return RowsApart(super().arrays(planes).parts[:1])


class LendsEverything(NaiveDonor):
    def sees(self, row: Any, width: int, window: int | None) -> NDArray[np.bool_]:
        sees: NDArray[np.bool_] = np.arange(width) >= width - row.length
        return sees


class LendsPadding(NaiveDonor):
    def sees(self, row: Any, width: int, window: int | None) -> NDArray[np.bool_]:
        sees = super().sees(row, width, window)
        return sees | ~sees.any()


class LendsOneFewer(NaiveDonor):
    def sees(self, row: Any, width: int, window: int | None) -> NDArray[np.bool_]:
        sees = super().sees(row, width, window)
        sees[np.flatnonzero(sees)[: 1 if sees.sum() > 1 else 0]] = False
        return sees


class IgnoresTheLayer(NaiveDonor):
    def sees(self, row: Any, width: int, window: int | None) -> NDArray[np.bool_]:
        return super().sees(row, width, None)


class MovesWithTheDraft(NaiveDonor):
    """Lets the window move on with the draft position."""

    def look(self, window: int | None, queries: Array | None) -> Answer:
        answer = super().look(window, queries)
        if queries is None or window is None:
            return answer
        narrower = []
        for turn in range(queries.shape[2]):
            mask = super().look(max(1, window - turn), None).mask
            assert isinstance(mask, np.ndarray)
            narrower.append(mask)
        return Answer(answer.keys, answer.values, np.concatenate(narrower, axis=2), answer.output)


class Alias(NaiveDonor):
    """Shows the cache as it is, not as it was."""

    def __init__(self, batch: NaiveRows, *, decoded: bool) -> None:
        self.batch, self.decoded = batch, decoded


class NotDecoded(NaiveDonor):
    def __init__(self, batch: NaiveRows, *, decoded: bool) -> None:
        super().__init__(batch, decoded=False)


class DecodesWrongly(NaiveDonor):
    """Forgets the bias of the last group."""

    def arrays(self, planes: tuple[Array, ...]) -> RowsApart:
        arrays = super().arrays(planes)
        if not self.decoded:
            return arrays
        parts: list[Any] = [part.data.copy() for part in arrays.parts if isinstance(part, PlainArrays)]
        for part in parts:
            part[..., -1] *= 1.05
        return RowsApart(tuple(PlainArrays(part) for part in parts))


class WrongOffsets(NaiveDonor):
    def offsets(self) -> list[int]:
        return [offset - 1 for offset in super().offsets()]


class HalfTheScale(NaiveDonor):
    """Attends with half the scale."""

    def look(self, window: int | None, queries: Array | None) -> Answer:
        return super().look(window, None if queries is None else (queries / 2).astype(queries.dtype))


def lending(wrong: type[NaiveDonor]) -> type[NaiveRows]:
    """Return a batch that lends in a wrong way."""

    class Lender(NaiveRows):
        donor_class = wrong

    return Lender


MIXED_MISTAKES: dict[str, tuple[type[NaiveRows], str]] = {
    "crosses in a round": (CrossesInARound, "ring/rejected-tokens-do-not-make-a-row-cross"),
    "crosses late": (CrossesLate, "ring/rows-cross-at-their-own-length"),
    "crosses by padding": (CrossesByPadding, "ring/padding-does-not-make-a-row-cross"),
    "leaves crossing numbers behind": (CrossingsStay, "ring/crossing-in-the-middle-of-everything"),
    "one format for all rows": (OneFormatForAll, "ring/aligned-rows-of-mixed-precision"),
    "quantizes all rows": (QuantizesAll, "ring/rows-quantized-one-by-one"),
    "quantizes twice": (QuantizesTwice, "ring/packed-rows-keep-their-bits"),
    "rows in another order": (PartsSwapped, "ring/aligned-rows-of-mixed-precision"),
    "a row is missing": (RowMissing, "ring/aligned-rows-of-mixed-precision"),
    "lends everything": (lending(LendsEverything), "donor/lends-what-it-holds"),
    "lends padding": (lending(LendsPadding), "donor/rows-of-different-lengths-lend"),
    "lends one token fewer": (lending(LendsOneFewer), "donor/lends-what-it-holds"),
    "ignores the layer's window": (lending(IgnoresTheLayer), "donor/layers-with-narrower-windows"),
    "moves with the draft position": (lending(MovesWithTheDraft), "donor/layers-with-narrower-windows"),
    "lends itself": (lending(Alias), "donor/what-was-lent-does-not-change"),
    "does not decode": (lending(NotDecoded), "donor/lent-to-layers-that-take-plain-arrays"),
    "decodes wrongly": (lending(DecodesWrongly), "donor/lent-to-layers-that-take-plain-arrays"),
    "lends other positions": (lending(WrongOffsets), "donor/lends-what-it-holds"),
    "attends with another scale": (lending(HalfTheScale), "donor/lends-what-it-holds"),
}
