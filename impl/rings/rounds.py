"""Rows of one batch with speculative rounds: draft tokens are verified in one block, then kept or taken back."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from impl.errors import RoundError
from impl.rings.positions import GroupPositions

if TYPE_CHECKING:
    from collections.abc import Sequence


class SpeculativeRows(GroupPositions):
    """Rows of one batch, with rounds. Subclasses ask ``_require_no_round`` where membership or padding would change."""

    _before: tuple[int, ...] | None = None

    @property
    def max_tokens(self) -> int:
        """Tokens that a row keeps; the same as max_size."""
        return self.max_size

    @property
    @abstractmethod
    def minimum_reusable_offsets(self) -> tuple[int, ...]:
        """Shortest prefix of each row, in tokens, that may be reused: up to there precision changed."""

    @property
    def minimum_reusable_offset(self) -> int:
        """Largest of minimum_reusable_offsets, 0 without rows."""
        return max(self.minimum_reusable_offsets, default=0)

    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes per row and column of the buffers; 0 when nothing is held."""

    def projected_bytes(self, tokens: int) -> float:
        """Bytes that one row will hold after ``tokens`` tokens."""
        return self.bytes_per_token() * min(tokens, self.max_size)

    @property
    def round_offsets(self) -> tuple[int, ...] | None:
        """Positions per row when the open round began; None when no round is open."""
        return self._before

    def spec_round_begin(self) -> None:
        """Open a round. Raises RoundError when one is open, PendingPrefillError in an open prefill."""
        self._require_no_round("begin another")
        self.position.require_no_pending("a speculative round")
        self._before = self.row_offsets

    def spec_round_commit(self) -> None:
        """Keep every token of the open round. Raises RoundError when none is open."""
        self._round()
        self._before = None

    def spec_round_rollback(self, keep: int | Sequence[int]) -> None:
        """Keep the first ``keep`` tokens (of each row) of the open round and close it.

        Raises RoundError when none is open, else as rotating_rollback_plan; after an error the round is still open.
        """
        self._roll_back(self._round(), keep)
        self._before = None

    @abstractmethod
    def _roll_back(self, before: tuple[int, ...], keep: int | Sequence[int]) -> None:
        """Take back all but ``keep`` tokens since the offsets ``before``, or change nothing and raise."""

    def _filter_round(self, rows: Sequence[int]) -> None:
        """Keep the given rows of an open round: rows that left must not be counted when it is rolled back."""
        if self._before is not None:
            self._before = tuple(self._before[row] for row in rows)

    def _round(self) -> tuple[int, ...]:
        if self._before is None:
            raise RoundError("no speculative round is open; call spec_round_begin before the tokens")
        return self._before

    def _require_no_round(self, operation: str) -> None:
        if self._before is not None:
            raise RoundError(f"cannot {operation} in an open speculative round; commit or roll back first")
