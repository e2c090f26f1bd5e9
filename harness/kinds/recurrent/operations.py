"""What each step that is no chunk does to a cache and to its rows: the subject first, the books only if it agreed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.kinds.recurrent import steps
from harness.kinds.ring import steps as ring
from harness.subjects.protocol import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kinds.recurrent.steps import Step
    from harness.kinds.recurrent.track import Track


def _prepare(step: ring.PrepareStep, track: Track) -> Track:
    after = replace(track)
    announced = after.open_prefill(step.prepare.lengths, step.prepare.left or [0])
    track.cache.prepare(*announced)
    return after


def _finalize(_: ring.FinalizeStep, track: Track) -> Track:
    track.cache.finalize()
    return replace(track, columns=None)


def _begin(_: ring.BeginStep, track: Track) -> Track:
    track.cache.begin()
    return replace(track, before=[row.position for row in track.rows])


def _commit(_: ring.CommitStep, track: Track) -> Track:
    track.cache.commit()
    return replace(track, before=None)


def _rollback(step: ring.RollbackStep, track: Track) -> Track:
    keeps, before = step.rollback.keep, track.before or []
    written = [row.position - then for row, then in zip(track.rows, before, strict=True)]
    keep = [min(keeps[row % len(keeps)], count) for row, count in enumerate(written)]
    track.cache.rollback(keep)
    for row, then, kept in zip(track.rows, before, keep, strict=True):
        row.cut(then + kept)
    return replace(track, before=None)


def _trim(step: ring.TrimStep, track: Track) -> Track:
    removed = track.cache.trim(step.trim)
    if removed == 0:
        raise Refused("returns 0")
    for row in track.rows:
        row.cut(max(0, row.position - removed))
    return track


def _filter(step: ring.FilterStep, track: Track) -> Track:
    track.cache.filter(step.filter.rows)
    after = replace(track)
    after.keep(step.filter.rows)
    return after


def _extract(step: steps.ExtractStep, track: Track) -> Track:
    row = step.extract.row
    return replace(track, cache=track.cache.extract(row), rows=[track.rows[row]], columns=None)


def _copy(_: ring.CopyStep, track: Track) -> Track:
    return replace(track.snapshot(), cache=track.cache.copy())


def _save_load(_: ring.SaveLoadStep, track: Track) -> Track:
    return replace(track, cache=track.cache.save_load())


OPERATIONS: dict[type[Step], Callable[[Any, Track], Track]] = {
    ring.PrepareStep: _prepare,
    ring.FinalizeStep: _finalize,
    ring.BeginStep: _begin,
    ring.CommitStep: _commit,
    ring.RollbackStep: _rollback,
    ring.TrimStep: _trim,
    ring.FilterStep: _filter,
    steps.ExtractStep: _extract,
    ring.CopyStep: _copy,
    ring.SaveLoadStep: _save_load,
}
