"""A ring of the subject beside the lists that say what it must hold, and the ids that are written next."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from harness.baseline.ring import Histories, Row
from harness.kinds.ring.stored import Alone
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.kinds.ring.tokens import Tokens
    from harness.subjects.protocol import AffineStorage, Ring, RingSpec, Subject


@dataclass
class Prefill:
    """An open padded prefill: the ids of every row's columns (0: padding) and how many columns came."""

    columns: NDArray[np.int64]
    came: int = 0

    def next(self, count: int) -> NDArray[np.int64]:
        """Return the next columns, at most as many as are left."""
        block = self.columns[:, self.came : self.came + count]
        self.came += block.shape[1]
        return block


@dataclass
class Bench:
    """What all tracks of a run share: the subject, the data, and the rows that were numbered so far."""

    subject: Subject
    tokens: Tokens
    stride: int
    rows_numbered: int = 0
    alone: dict[AffineStorage | None, Alone] = field(default_factory=dict)

    def number_rows(self, count: int) -> list[int]:
        """Return the ids before the first one of `count` new rows."""
        first = self.rows_numbered
        self.rows_numbered += count
        return [row * self.stride for row in range(first, first + count)]

    def stored_alone(self, spec: RingSpec, storage: AffineStorage | None) -> Alone:
        """Return the yardstick for tokens of a cache like `spec` that are stored as `storage` says."""
        if storage not in self.alone:
            solo = replace(spec, rows=1, storage=storage, layout="ring", crossing=())
            self.alone[storage] = Alone(self.subject, solo, self.tokens)
        return self.alone[storage]


@dataclass
class Track:
    """One cache and its histories.

    `written[b]` is the last id that row b was given, `storages[b]` how the row is stored by now, and `crossings[b]` the
    number of tokens at which it becomes affine (None: it does not).
    """

    bench: Bench
    spec: RingSpec
    ring: Ring
    histories: Histories
    written: list[int]
    storages: list[AffineStorage | None]
    crossings: list[int | None]
    prefill: Prefill | None = None
    before: list[int] | None = None

    @classmethod
    def open(cls, bench: Bench, spec: RingSpec) -> Track:
        """Open an empty cache as `spec` asks for."""
        with subject_call("opening the cache"):
            ring = bench.subject.ring(spec)
        histories = Histories(spec.window, spec.sinks, [Row() for _ in range(spec.rows)], spec.chunked)
        crossings: list[int | None] = list(spec.crossing) or [None] * spec.rows
        storages = [None if spec.crossing else spec.storage] * spec.rows
        track = cls(bench, spec, ring, histories, bench.number_rows(spec.rows), storages, crossings)
        track.cross()
        return track

    @classmethod
    def joined(cls, ring: Ring, tracks: Sequence[Track]) -> Track:
        """Put the rows of several tracks behind each other, owned by `ring`."""
        first = tracks[0]
        rows = [row for track in tracks for row in track.histories.rows]
        histories = replace(first.histories, rows=rows)
        written = [last for track in tracks for last in track.written]
        storages = [storage for track in tracks for storage in track.storages]
        crossings = [tokens for track in tracks for tokens in track.crossings]
        spec = replace(first.spec, rows=len(rows))
        return cls(first.bench, spec, ring, histories, written, storages, crossings)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.histories.rows)

    def cross(self) -> None:
        """Note which rows are affine by now. In an open round nothing is settled, so none becomes affine in it."""
        if self.before is not None:
            return
        for row, (tokens, length) in enumerate(zip(self.crossings, self.histories.lengths(), strict=True)):
            if tokens is not None and length >= tokens:
                self.storages[row], self.crossings[row] = self.spec.storage, None

    def alones(self) -> list[Alone]:
        """Return the yardstick of each row."""
        return [self.bench.stored_alone(self.spec, storage) for storage in self.storages]

    def new_ids(self, count: int) -> NDArray[np.int64]:
        """Return the next ids of every row [rows, count]."""
        return np.array(self.written)[:, None] + np.arange(1, count + 1)[None, :]

    def wrote(self, ids: NDArray[np.int64]) -> None:
        """Take note of ids that were written; 0 is padding."""
        self.histories.append([[int(token) for token in row if token] for row in ids])
        self.written = [max(last, int(row.max(initial=0))) for last, row in zip(self.written, ids, strict=True)]

    def open_prefill(self, lengths: list[int], left: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Lay out a padded prefill; returns each row's input columns up to its last token, left and right padding."""
        real = [lengths[row % len(lengths)] for row in range(self.rows)]
        front = [left[row % len(left)] for row in range(self.rows)]
        ends = [pad + count for pad, count in zip(front, real, strict=True)]
        columns = np.zeros((self.rows, max(ends)), np.int64)
        for row, (pad, count) in enumerate(zip(front, real, strict=True)):
            columns[row, pad : pad + count] = self.written[row] + np.arange(1, count + 1)
        self.prefill = Prefill(columns)
        return ends, front, [columns.shape[1] - end for end in ends]

    def keep_rows(self, rows: list[int]) -> None:
        """Filter everything that is kept a row."""
        self.histories.filter(rows)
        self.written = [self.written[row] for row in rows]
        self.storages = [self.storages[row] for row in rows]
        self.crossings = [self.crossings[row] for row in rows]
        if self.before is not None:
            self.before = [self.before[row] for row in rows]
        if self.prefill is not None:
            self.prefill = replace(self.prefill, columns=self.prefill.columns[rows])
        self.spec = replace(self.spec, rows=len(rows))

    def snapshot(self) -> Track:
        """Return the same ring with a copy of the books: for a look at it after a copy of it went on."""
        return replace(
            self,
            histories=deepcopy(self.histories),
            written=list(self.written),
            storages=list(self.storages),
            crossings=list(self.crossings),
            prefill=deepcopy(self.prefill),
            before=None if self.before is None else list(self.before),
        )
