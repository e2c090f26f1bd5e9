"""A KV cache as a list of tokens a row. What a ring, a batch or a rollback must amount to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Histories:
    """The tokens (ids) that each row was given and still owns, oldest first.

    `window` is how many tokens a query sees, itself included (None: all); `sinks` of them are the row's first ones.
    """

    window: int | None
    sinks: int = 0
    rows: list[list[int]] = field(default_factory=list)

    def append(self, blocks: list[list[int]]) -> None:
        """Add a block of ids to every row."""
        for row, block in zip(self.rows, blocks, strict=True):
            row.extend(block)

    def trim(self, tokens: int) -> None:
        """Forget the newest tokens of every row: they never happened."""
        self.rows = [row[: len(row) - tokens] for row in self.rows]

    def visible(self, row: int, position: int) -> list[int]:
        """Return the ids that the query at `position` (0-based) of `row` may attend to, oldest first."""
        seen = self.rows[row][: position + 1]
        if self.window is None or len(seen) <= self.window:
            return seen
        newest = self.window - self.sinks
        return seen[: self.sinks] + seen[len(seen) - newest :]

    def lengths(self) -> list[int]:
        """Return how many tokens each row owns."""
        return [len(row) for row in self.rows]
