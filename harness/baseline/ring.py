"""A batch of KV caches as one list of tokens a row. What a ring, a rollback, a merge or padding must amount to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Row:
    """The tokens (ids) that a row was given and still owns, oldest first.

    `first` is the index of the oldest token that it may still show: an extract with a limit gives up the ones before.
    `fresh` counts the tokens of the last update that are still there.
    """

    tokens: list[int] = field(default_factory=list)
    first: int = 0
    fresh: int = 0


@dataclass
class Histories:
    """The rows of a batch.

    `window` is how many tokens a query sees, itself included (None: all); `sinks` of them are the row's first ones.
    `chunked`: a query sees the `window` tokens before its block, and those of the block up to itself.
    """

    window: int | None
    sinks: int = 0
    rows: list[Row] = field(default_factory=list)
    chunked: bool = False

    def append(self, blocks: list[list[int]]) -> None:
        """Add ids to every row; rows may get different numbers of them."""
        for row, block in zip(self.rows, blocks, strict=True):
            row.tokens.extend(block)
            row.fresh = len(block)

    def cut(self, lengths: list[int]) -> None:
        """Keep the first `lengths[b]` tokens of row b: the others never happened."""
        for row, length in zip(self.rows, lengths, strict=True):
            row.fresh = max(0, row.fresh - (len(row.tokens) - length))
            del row.tokens[length:]

    def trim(self, tokens: int) -> None:
        """Forget the newest tokens of every row."""
        self.cut([max(0, length - tokens) for length in self.lengths()])

    def filter(self, rows: list[int]) -> None:
        """Keep these rows, in this order."""
        self.rows = [self.rows[row] for row in rows]

    def extract(self, row: int, limit: int | None) -> None:
        """Keep one row alone, and of its tokens the newest `limit`."""
        self.rows = [self.rows[row]]
        if limit is not None:
            self.rows[0].first = max(self.rows[0].first, len(self.rows[0].tokens) - limit)

    def visible(self, row: int, position: int, block: int = 0) -> list[int]:
        """Return the ids that the query at `position` (0-based) of `row` may attend to, oldest first.

        `block` is the position at which the query's block begins; only chunked caches ask.
        """
        owner = self.rows[row]
        seen = owner.tokens[: position + 1]
        if self.window is None:
            return seen[owner.first :]
        if self.chunked:
            return seen[max(0, block - self.window) :]
        if len(seen) <= self.window:
            return seen[owner.first :]
        start = max(owner.first, len(seen) - self.window + self.sinks)
        return seen[: self.sinks] + seen[start:]

    def lent(self, row: int, window: int | None) -> list[list[int]]:
        """Return the ids that `row` lends to a layer of this window (None: all it has): each answer that is right.

        That is the newest tokens, as many as the narrower of both windows sees. A row of which the last update left
        no token holds what the next query needs beside itself, and may lend one fewer.
        """
        owner = self.rows[row]
        windows = [size for size in (self.window, window) if size is not None]
        answers = [self._newest(owner, min(windows, default=len(owner.tokens)))]
        if self.window is not None and not owner.fresh:
            answers.append(self._newest(owner, min([self.window - 1, *windows])))
        return answers

    @staticmethod
    def _newest(row: Row, count: int) -> list[int]:
        return row.tokens[max(row.first, len(row.tokens) - count) :]

    def lengths(self) -> list[int]:
        """Return how many tokens each row owns: its position."""
        return [len(row.tokens) for row in self.rows]
