"""Plain batched ring with speculative rounds: draft tokens are verified, then kept or taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from impl.errors import MergeError, RoundError
from impl.rings.batched import BatchedRotatingCache
from impl.rings.donor import DonorRows, capture_donor_rows
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from impl.rings.contents import RingContents
    from impl.rings.position import BatchedRotatingState
    from impl.rings.solo import RotatingKVCache


class SpeculativeRotatingKVCache(BatchedRotatingCache):
    """Batched plain ring whose newest tokens can be taken back, per row, also when they crossed the window.

    A round is opened, filled with one block (several updates work as long as the history is held), then committed or
    rolled back. In an open round rows may leave, but none may come, be extracted or be prefilled.
    """

    def __init__(self, max_size: int, left_padding: Sequence[int] = (), keep: int = 0) -> None:
        super().__init__(max_size, left_padding, keep)
        self._before: tuple[int, ...] | None = None

    @property
    def round_offsets(self) -> tuple[int, ...] | None:
        """Positions per row when the open round began; None when no round is open."""
        return self._before

    def make_empty_batch(self) -> Self:
        """Make a ring of the same kind and size, without rows."""
        return type(self)(self.max_size)

    def spec_round_begin(self) -> None:
        """Open a round. Raises RoundError when one is open, PendingPrefillError in an open prefill."""
        self._require_no_round("begin another")
        self._contents.position.require_no_pending("a speculative round")
        self._before = self.row_offsets

    def spec_round_commit(self) -> None:
        """Keep every token of the open round. Raises RoundError when none is open."""
        self._round()
        self._before = None

    def spec_round_rollback(self, keep: int | Sequence[int]) -> None:
        """Keep the first ``keep`` tokens (of each row) of the open round and close it.

        Raises RoundError when none is open, else as rotating_rollback_plan; after an error the round is still open.
        """
        self._contents = rollback_rotating_ring(self, self._round(), keep).contents
        self._before = None

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order, in an open round too; raises RowIndexError."""
        before = self._before
        super().filter_rows(rows)
        if before is not None:
            self._before = tuple(before[row] for row in rows)

    def merge_rows(self, sources: Sequence[RotatingKVCache | SpeculativeRotatingKVCache]) -> None:
        """Replace the contents by the rows of solo rings and of other rings of this kind, which stay as they are.

        One ring of this kind alone is taken over as it is, an open prefill included; otherwise each row brings its
        newest ``max_size`` tokens, right-aligned. No source makes an empty batch. Raises RoundError when a round is
        open here or in a source, MergeError when the rows cannot share a batch.
        """
        self._require_no_round("merge rows")
        if len(sources) == 1 and isinstance(sources[0], SpeculativeRotatingKVCache):
            self._contents = self._whole(sources[0])
            return
        rows: list[RotatingKVCache] = []
        for source in sources:
            if isinstance(source, SpeculativeRotatingKVCache):
                rows.extend(source.extract_row(row) for row in range(source.batch_size))
            else:
                rows.append(source)
        self._contents = self.with_rows(rows).contents

    def extract_row(self, row: int, limit: int | None = None) -> RotatingKVCache:
        """Solo ring with the newest ``limit`` tokens of one row, copied; ``max_size`` when None, and at most.

        Raises RoundError in an open round, RowIndexError, or RingShapeError for a limit below 1.
        """
        self._require_no_round("extract a row")
        newest = self.max_size if limit is None else min(limit, self.max_size)
        return super().extract_row(row, newest)

    def capture_donor_rows(self) -> DonorRows[mx.array]:
        """Lend the newest ``max_size`` columns, uncommitted tokens included; later updates do not change them.

        Raises RingError when nothing is held.
        """
        return capture_donor_rows(self)

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Announce a padded prefill; raises RoundError in an open round, else as BatchedRing.prepare_prefill."""
        self._require_no_round("prepare a prefill")
        super().prepare_prefill(lengths, left_padding, right_padding, force=force)

    def extend(self, other: Self) -> None:
        """Append the rows of another batch; raises RoundError when a round is open in either."""
        self._require_no_round("extend")
        other._require_no_round("extend by this batch")
        super().extend(other)

    def restore_state(self, keys: mx.array | None, values: mx.array | None, position: BatchedRotatingState) -> None:
        """Take over planes with their position state; raises RoundError in an open round."""
        self._require_no_round("restore another state")
        super().restore_state(keys, values, position)

    def _whole(self, source: SpeculativeRotatingKVCache) -> RingContents[mx.array]:
        source._require_no_round("be merged")
        if source.max_size != self.max_size:
            raise MergeError(f"a ring of max_size {source.max_size} cannot be merged into one of {self.max_size}")
        return source.contents

    def _round(self) -> tuple[int, ...]:
        if self._before is None:
            raise RoundError("no speculative round is open; call spec_round_begin before the tokens")
        return self._before

    def _require_no_round(self, operation: str) -> None:
        if self._before is not None:
            raise RoundError(f"cannot {operation} in an open speculative round; commit or roll back first")
