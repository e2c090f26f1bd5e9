"""What each step that is no update does to a cache and to its histories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from harness.kinds.ring import steps
from harness.subjects.protocol import AffineStorage, Refused

if TYPE_CHECKING:
    from harness.kinds.ring.steps import Step
    from harness.kinds.ring.track import Track


@dataclass(frozen=True)
class Change:
    """The track that goes on, one that was left behind by a copy, or what was expected and answered instead."""

    track: Track
    left_behind: Track | None = None
    finding: tuple[str, str] | None = None


class Operation(Protocol):
    """Calls the subject first and changes the books only when it did not refuse."""

    def __call__(self, step: Any, track: Track, /, *, expect_refused: bool) -> Change:
        """Do the step."""


def _trim(step: steps.TrimStep, track: Track, *, expect_refused: bool) -> Change:
    removed = track.ring.trim(step.trim)
    if removed == 0:
        raise Refused("returns 0")
    # A cache that gives back less than asked, and says so, where a refusal was due, is taken at its word.
    if removed != step.trim and not (expect_refused and 0 < removed < step.trim):
        return Change(track, finding=(f"returns {step.trim}", f"returns {removed}"))
    track.histories.trim(removed)
    return Change(track)


def _begin(_: steps.BeginStep, track: Track, **__: bool) -> Change:
    track.ring.begin()
    track.before = track.histories.lengths()
    return Change(track)


def _commit(_: steps.CommitStep, track: Track, **__: bool) -> Change:
    if track.before is None:
        return Change(track)  # closed by a rollback that a ring would have refused
    track.ring.commit()
    track.before = None
    return Change(track)


def _rollback(step: steps.RollbackStep, track: Track, **__: bool) -> Change:
    before = track.before
    if before is None:
        return Change(track)  # as in _commit
    written = [now - then for now, then in zip(track.histories.lengths(), before, strict=True)]
    keep = [min(step.rollback.keep[row % len(step.rollback.keep)], count) for row, count in enumerate(written)]
    track.ring.rollback(keep)
    track.histories.cut([then + kept for then, kept in zip(before, keep, strict=True)])
    track.before = None
    return Change(track)


def _prepare(step: steps.PrepareStep, track: Track, **__: bool) -> Change:
    lengths, left, right = track.open_prefill(step.prepare.lengths, step.prepare.left or [0])
    opened, track.prefill = track.prefill, None
    track.ring.prepare(lengths, left, right)
    track.prefill = opened
    return Change(track)


def _finalize(_: steps.FinalizeStep, track: Track, **__: bool) -> Change:
    track.ring.finalize()
    track.prefill = None
    return Change(track)


def _filter(step: steps.FilterStep, track: Track, **__: bool) -> Change:
    track.ring.filter(step.filter.rows)
    track.keep_rows(step.filter.rows)
    return Change(track)


def _extract(step: steps.ExtractStep, track: Track, **__: bool) -> Change:
    row, limit = step.extract.row, step.extract.limit
    ring = track.ring.extract(row, limit)
    histories = replace(track.histories, rows=list(track.histories.rows))
    histories.extract(row, limit)
    # A row that goes on alone is stored as it is, from now on: what was to become of it was the batch's affair.
    solo = replace(
        track,
        ring=ring,
        spec=replace(track.spec, rows=1, layout="ring", crossing=(), storage=track.storages[row]),
        histories=histories,
        written=[track.written[row]],
        storages=[track.storages[row]],
        crossings=[None],
        prefill=None,
        before=None,
    )
    return Change(solo)


def _quantize(step: steps.QuantizeStep, track: Track, **__: bool) -> Change:
    storage = AffineStorage(step.quantize.bits, step.quantize.group)
    chosen = step.quantize.rows
    if chosen is None:
        ring = track.ring.quantize(storage.bits, storage.group_size)
        return Change(
            replace(track, ring=ring, spec=replace(track.spec, storage=storage), storages=[storage] * track.rows)
        )
    ring = track.ring.quantize_rows(chosen, storage.bits, storage.group_size)
    storages = [storage if row in chosen else stored for row, stored in enumerate(track.storages)]
    return Change(replace(track, ring=ring, storages=storages))


def _copy(_: steps.CopyStep, track: Track, **__: bool) -> Change:
    return Change(replace(track.snapshot(), ring=track.ring.copy()), left_behind=track.snapshot())


def _save_load(_: steps.SaveLoadStep, track: Track, **__: bool) -> Change:
    return Change(replace(track, ring=track.ring.save_load()))


OPERATIONS: dict[type[Step], Operation] = {
    steps.TrimStep: _trim,
    steps.BeginStep: _begin,
    steps.CommitStep: _commit,
    steps.RollbackStep: _rollback,
    steps.PrepareStep: _prepare,
    steps.FinalizeStep: _finalize,
    steps.FilterStep: _filter,
    steps.ExtractStep: _extract,
    steps.QuantizeStep: _quantize,
    steps.CopyStep: _copy,
    steps.SaveLoadStep: _save_load,
}
