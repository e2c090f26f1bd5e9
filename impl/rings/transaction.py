"""Rollback of a batched ring to the accepted tokens of a speculative round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from impl.errors import HistoryLostError, RingShapeError
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.contents import cut_newest, roll_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.rings.position import BatchedRotatingState

RotatingRingT = TypeVar("RotatingRingT", BatchedRotatingCache, BatchedRotatingQuantCache)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """How rejected tokens leave: ``trim`` columns cut off every row, or row b moved right by ``shifts[b]``.

    ``position`` is the state afterwards; exactly one of ``trim`` and ``shifts`` is set.
    """

    position: BatchedRotatingState
    trim: int | None = None
    shifts: tuple[int, ...] | None = None


def rotating_rollback_plan(
    position: BatchedRotatingState, before: Sequence[int], keep: int | Sequence[int], *, preserve_columns: bool = False
) -> RollbackPlan:
    """Plan to keep the first ``keep[b]`` tokens written since offset ``before[b]``, as if the others had never come.

    Equal numbers of rejected tokens are cut off. Others are moved behind the oldest column, where they count as
    padding; so are all with ``preserve_columns``, for rows whose siblings in another ring reject other numbers and
    must keep the same columns.

    Raises PendingPrefillError in an open prefill, RingShapeError when ``before`` or ``keep`` does not belong to the
    rows or lies outside the round, HistoryLostError when a token that would be visible again is gone. After one block,
    however long, every ``keep`` is possible.
    """
    position.require_no_pending("rollback")
    keeps = [keep] * position.batch_size if isinstance(keep, int) else list(keep)
    if not len(before) == len(keeps) == position.batch_size:
        raise RingShapeError(
            f"{len(before)} offsets before and {len(keeps)} tokens to keep; give one per row, {position.batch_size}"
        )
    drops = tuple(
        _drop(position, row, start, kept) for row, (start, kept) in enumerate(zip(before, keeps, strict=True))
    )
    if not preserve_columns and len(set(drops)) <= 1:
        tokens = drops[0] if drops else 0
        return RollbackPlan(position.trimmed(tokens) if tokens else position, trim=tokens)
    return RollbackPlan(position.rolled(drops), shifts=drops)


def rollback_rotating_ring(
    ring: RotatingRingT, before: Sequence[int], keep: int | Sequence[int], *, preserve_columns: bool = False
) -> RotatingRingT:
    """Ring after the plan of rotating_rollback_plan; the given ring stays as it is, so does everything on an error."""
    plan = rotating_rollback_plan(ring.position, before, keep, preserve_columns=preserve_columns)
    if plan.shifts is not None:
        return ring.with_contents(roll_rows(ring.storage, ring.contents, plan.shifts, plan.position))
    return ring.with_contents(cut_newest(ring.storage, ring.contents, plan.trim)) if plan.trim else ring.copy()


def _drop(position: BatchedRotatingState, row: int, before: int, keep: int) -> int:
    written = position.offsets[row] - before
    if not 0 <= keep <= written:
        raise RingShapeError(
            f"row {row}: keep {keep} of {written} tokens since offset {before}; give 0 to the number written"
        )
    drop = written - keep
    # One token fewer than the window is enough: the next query brings itself.
    if drop and max(0, position.stored(row) - drop) < min(before + keep, position.max_size - 1):
        raise HistoryLostError(
            f"row {row}: going back to offset {before + keep} needs tokens that have left the ring; verify drafts in "
            "one block, or restore a copy taken before the round"
        )
    return drop
