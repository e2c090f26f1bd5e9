"""A naive batch in NumPy whose rows are stored each in its own way, cross to affine storage, and lend.

Rows are kept plain, and encoded whenever they are shown: what a token looks like depends on nothing else.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.baseline import affine as naive_affine
from harness.subjects.protocol import (
    AffineArrays,
    AffineStorage,
    Answer,
    Donor,
    PlainArrays,
    Ring,
    RingSpec,
    RowsApart,
    Subject,
)
from tests.fakes.batches import Array, NaiveBatch, NaiveRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class MixedRow(NaiveRow):
    """A row with a storage of its own, and the length at which it becomes affine (None: never)."""

    storage: AffineStorage | None = None
    crossing: int | None = None


class NaiveRows(NaiveBatch):
    """Right in everything."""

    donor_class: ClassVar[type[NaiveDonor]]

    def __init__(self, spec: RingSpec, rows: list[Any] | None = None) -> None:
        super().__init__(spec, rows or [MixedRow() for _ in range(spec.rows)])
        self.in_round = False
        if rows is None:
            for index, row in enumerate(self.rows):
                row.crossing = spec.crossing[index] if spec.crossing else None
                row.storage = None if spec.crossing else spec.storage
        self.cross()

    rows: list[Any]

    def cross(self) -> None:
        """Make rows affine that have come to their length, unless a round is open."""
        for row in [] if self.in_round else self.rows:
            if row.crossing is not None and row.length >= row.crossing:
                row.storage, row.crossing = self.spec.storage, None

    def encode(self, block: Array) -> tuple[Array, ...]:
        return (block,)

    def arrays(self, planes: tuple[Array, ...]) -> Any:
        return apart([row.storage for row in self.rows], planes[0])

    def decoded(self, arrays: Any) -> NDArray[np.float64]:
        return np.concatenate([super(NaiveRows, self).decoded(part) for part in arrays.parts])

    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        self.cross()
        return answer

    def begin(self) -> None:
        super().begin()
        self.in_round = True

    def commit(self) -> None:
        self.in_round = False
        self.cross()

    def rollback(self, keep: Sequence[int]) -> None:
        super().rollback(keep)
        self.commit()

    def extract(self, row: int, limit: int | None) -> Ring:
        solo = super().extract(row, limit)
        assert isinstance(solo, NaiveRows)
        solo.rows[0].crossing = None
        return solo

    def quantize(self, bits: int, group_size: int) -> Ring:
        return self.quantize_rows(range(len(self.rows)), bits, group_size)

    def quantize_rows(self, rows: Sequence[int], bits: int, group_size: int) -> Ring:
        other = deepcopy(self)
        for row in rows:
            other.rows[row].storage = AffineStorage(bits, group_size)
        return other

    def donor(self, *, decoded: bool) -> Donor:
        return self.donor_class(self, decoded=decoded)


def apart(storages: Sequence[AffineStorage | None], plain: Array) -> RowsApart:
    """Return rows [rows, heads, columns, dim], each stored in its own way."""
    parts: list[PlainArrays | AffineArrays] = []
    for index, storage in enumerate(storages):
        row = plain[index : index + 1]
        if storage is None:
            parts.append(PlainArrays(row))
        else:
            planes = naive_affine.encode(row, storage.group_size, storage.bits)
            parts.append(AffineArrays(*planes, storage.group_size, storage.bits))
    return RowsApart(tuple(parts))


class NaiveDonor(Donor):
    """Right in everything: a copy of the rows, of which a look shows the newest."""

    def __init__(self, batch: NaiveRows, *, decoded: bool) -> None:
        self.batch, self.decoded = deepcopy(batch), decoded

    def look(self, window: int | None, queries: Array | None) -> Answer:
        batch = self.batch
        width = max(row.length for row in batch.rows)
        filled = next(row for row in batch.rows if row.length)
        shown = {}
        for name in ("keys", "values"):
            # An empty block: columns are laid out as before an update, and nothing comes behind them.
            blank = np.repeat(filled.planes[name][0][None, :, :0], len(batch.rows), 0)
            shown[name] = batch.columns(name, (blank,), width)
        mask = np.stack([self.sees(row, width, window) for row in batch.rows])[:, None, None]
        keys, values = (self.arrays(shown[name]) for name in ("keys", "values"))
        output = None
        if queries is not None:
            blind = ~mask.any(axis=-1, keepdims=True)
            output = batch.attend(queries, batch.decoded(keys), batch.decoded(values), mask | blind)
        return Answer(keys, values, mask, output)

    def arrays(self, planes: tuple[Array, ...]) -> RowsApart:
        arrays = self.batch.arrays(planes)
        if not self.decoded:
            return arrays  # type: ignore[no-any-return]  # as NaiveRows gives it
        dtype = planes[0].dtype
        rows = [self.batch.decoded(RowsApart((part,))).astype(dtype) for part in arrays.parts]
        return RowsApart(tuple(PlainArrays(row) for row in rows))

    def sees(self, row: Any, width: int, window: int | None) -> NDArray[np.bool_]:
        """Say which columns of a row are lent to a layer of this window."""
        windows = [size for size in (self.batch.spec.window, window) if size is not None]
        first = max([row.first, *(row.length - size for size in windows)])
        sees: NDArray[np.bool_] = np.arange(width) - (width - row.length) >= max(0, first)
        return sees

    def offsets(self) -> list[int]:
        return self.batch.offsets()


NaiveRows.donor_class = NaiveDonor


class NaiveMixed(Subject):
    """The right one."""

    name: ClassVar[str] = "naive-mixed"
    capabilities: ClassVar[frozenset[str]] = frozenset({"crossing"})
    ring_class: ClassVar[type[NaiveRows]] = NaiveRows

    def ring(self, spec: RingSpec) -> Ring:
        return self.ring_class(replace(spec))
