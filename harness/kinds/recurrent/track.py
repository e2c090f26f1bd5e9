"""A recurrent cache of the subject beside rows of the baseline, and the tokens that come next."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from harness.baseline.recurrent import Layer, Row, magnitudes
from harness.kinds.recurrent.data import Stream, make_stream, make_weights
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.baseline.recurrent import Token
    from harness.kinds.recurrent.schema import RecurrentGiven
    from harness.subjects.protocol import Recurrent, Subject


class Bench:
    """What all tracks of a run share: the subject, the layer, and the streams of the rows that were opened."""

    def __init__(self, subject: Subject, given: RecurrentGiven, most_tokens: int) -> None:
        """Make the weights; `most_tokens`: how many tokens any row may take."""
        self.subject, self.given, self.most_tokens = subject, given, most_tokens
        self.weights = make_weights(given)
        self.layer = Layer(
            given.layer,
            given.heads,
            given.key_dim,
            given.value_dim,
            self.weights.conv.astype(np.float64),
            self.weights.skip.astype(np.float64),
        )
        self.rows_opened = 0

    def new_row(self) -> OneRow:
        """Open a row with a stream of its own."""
        stream = make_stream(self.given, self.weights, self.rows_opened, self.most_tokens)
        self.rows_opened += 1
        # Exact data needs no bounds.
        bounds = Row(magnitudes(self.layer)) if self.given.data == "normal" else None
        return OneRow(stream, Row(self.layer), bounds)


@dataclass
class OneRow:
    """One request alone: its stream, its baseline, and the same with absolute values where bounds are needed."""

    stream: Stream
    exact: Row
    bounds: Row | None

    @property
    def position(self) -> int:
        """Tokens taken so far."""
        return len(self.exact.tokens)

    def next(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Take the next token of the stream; returns its output [heads, value_dim] and that output's magnitude."""
        token: Token = self.stream.token(self.position)
        bounds = None if self.bounds is None else self.bounds.push(token)
        return self.exact.push(token), bounds

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        for row in (self.exact, self.bounds):
            if row is not None:
                row.cut(length)


@dataclass
class Track:
    """One cache and its rows. `columns`: of an open prefill, which columns are tokens, a row; `came`: how many came."""

    bench: Bench
    cache: Recurrent
    rows: list[OneRow]
    columns: list[list[bool]] | None = None
    came: int = 0
    before: list[int] | None = None

    @classmethod
    def open(cls, bench: Bench, rows: int) -> Track:
        """Open an empty cache."""
        spec = replace(bench.given.spec(bench.weights), rows=rows)
        with subject_call("opening the cache"):
            cache = bench.subject.recurrent(spec)
        return cls(bench, cache, [bench.new_row() for _ in range(rows)])

    def open_prefill(self, lengths: Sequence[int], left: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Lay out a padded prefill; returns each row's columns up to its last token, left and right padding."""
        columns = lay_out(lengths, left, len(self.rows))
        width = len(columns[0])
        front = [left[row % len(left)] for row in range(len(self.rows))]
        ends = [pad + sum(own) for pad, own in zip(front, columns, strict=True)]
        self.columns, self.came = columns, 0
        return ends, front, [width - end for end in ends]

    def next_columns(self, count: int) -> list[list[bool]]:
        """Return which of the next columns are tokens, a row; outside a prefill all of them are."""
        if self.columns is None:
            return [[True] * count for _ in self.rows]
        return [own[self.came : self.came + count] for own in self.columns]

    def ends(self, count: int) -> list[int]:
        """Return how many of the next columns reach up to each row's last token, left padding included."""
        if self.columns is None:
            return [count] * len(self.rows)
        last = [max((i + 1 for i, real in enumerate(own) if real), default=0) for own in self.columns]
        return [max(0, min(count, end - self.came)) for end in last]

    def keep(self, rows: list[int]) -> None:
        """Filter everything that is kept a row."""
        self.rows = [self.rows[row] for row in rows]
        if self.columns is not None:
            self.columns = [self.columns[row] for row in rows]

    def join(self, others: Sequence[Track]) -> None:
        """Take the rows of other tracks along; nothing was announced for them, so all columns are their tokens."""
        width = 0 if self.columns is None else len(self.columns[0])
        for other in others:
            self.rows = [*self.rows, *other.rows]
            if self.columns is not None:
                self.columns = [*self.columns, *([True] * width for _ in other.rows)]

    def snapshot(self) -> Track:
        """Return the same cache with books of its own."""
        return replace(self, rows=deepcopy(self.rows), columns=deepcopy(self.columns), before=deepcopy(self.before))


def lay_out(lengths: Sequence[int], left: Sequence[int], rows: int) -> list[list[bool]]:
    """Return which columns of a padded prefill are tokens [rows][width]; shorter lists are cycled over the rows."""
    real = [lengths[row % len(lengths)] for row in range(rows)]
    front = [left[row % len(left)] for row in range(rows)]
    width = max(pad + count for pad, count in zip(front, real, strict=True))
    return [
        [False] * pad + [True] * count + [False] * (width - pad - count) for pad, count in zip(front, real, strict=True)
    ]
