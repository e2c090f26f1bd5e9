"""Driving one recurrent cache through the steps of a case, and comparing after each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.kinds.base import StopInstance
from harness.kinds.recurrent import checks as look
from harness.kinds.recurrent import steps
from harness.kinds.recurrent.data import make_block
from harness.kinds.recurrent.operations import OPERATIONS
from harness.kinds.recurrent.script import most_tokens
from harness.kinds.recurrent.track import Bench, Track
from harness.kinds.ring import steps as ring
from harness.kinds.ring.arguments import PrefillArguments, PrepareArguments
from harness.subjects.call import subject_call
from harness.subjects.protocol import Refused, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kinds.base import Notes
    from harness.kinds.recurrent.schema import RecurrentCase
    from harness.kinds.recurrent.steps import Step
    from harness.subjects.protocol import RecurrentBlock, Subject


def run(case: RecurrentCase, subject: Subject, notes: Notes) -> None:
    """Run the steps; see `Kind.run`."""
    Driver(case, subject, notes).run()


class Driver:
    """One run: the subject's cache on one side, rows that are alone on the other."""

    def __init__(self, case: RecurrentCase, subject: Subject, notes: Notes, bench: Bench | None = None) -> None:
        """Open the cache, unless the first step builds it; `bench`: one with more tokens than the steps take."""
        self.case, self.notes = case, notes
        self.bench = Bench(subject, case.given, most_tokens(case)) if bench is None else bench
        # Caches of which a copy went on, as they were then: looked at when everything else is done.
        self.left_behind: list[Track] = []
        self._track: Track | None = None
        if not isinstance(case.steps[0], steps.MergeStep):
            self._track = Track.open(self.bench, case.given.rows)

    @property
    def track(self) -> Track:
        """The cache that steps happen to now."""
        assert self._track is not None  # noqa: S101 - a case without a cache merges one first
        return self._track

    def run(self) -> None:
        """Take every step; stops at the first one with a finding, since later ones would repeat it."""
        for number, step in enumerate(self.case.steps, start=1):
            where = f"step {number} ({step.text()})"
            self.take(step, where)
            self._look_around(where, step)
        for original in self.left_behind:
            self._track = original
            where = "one token given to the cache that was copied, after its copy went on"
            if original.columns is None or original.came < len(original.columns[0]):
                self._update(1, where)
            self._look_around(where)
        if self.notes.comparisons == 0:
            raise Unsupported(f"shows nothing of {', '.join(self.case.check)}")

    def _look_around(self, where: str, step: Step | None = None) -> None:
        track, checks = self.track, self.case.check
        if not self.notes.findings:
            with subject_call(f"{where}, looking at the cache"):
                # A chunk was looked at when it came.
                if not isinstance(step, (ring.AppendStep, ring.DecodeStep, ring.ChunkStep)):
                    look.check_states(track, where, checks, self.notes)
                if "positions" in checks:
                    look.check_positions(track, where, self.notes)
                if "untouched" in checks:
                    look.check_untouched(track, where, self.notes)
        if self.notes.findings:
            remarks = track.cache.remarks()
            if remarks:
                last = self.notes.findings.pop()
                self.notes.findings.append(replace(last, note="; ".join(filter(None, [last.note, *remarks]))))
            raise StopInstance

    def take(self, step: Step, where: str) -> None:
        """Do one step, and compare what it showed."""
        match step:
            case ring.AppendStep():
                self._update(step.append, where)
            case ring.DecodeStep():
                for number in range(1, step.decode + 1):
                    self._update(1, where if step.decode == 1 else f"{where}, token {number}")
            case ring.ChunkStep():
                self._update(step.chunk, where)
            case ring.PrefillStep():
                self._prefill(step.prefill, where)
            case steps.MergeStep():
                first = [] if self._track is None else [self._track]
                self._track = self._merged([*first, *self._build(step.merge.rows)], where)
            case steps.ExtendStep():
                other = self._merged(self._build(step.extend.rows), where)
                with subject_call(where, refusable=True):
                    self.track.cache.extend(other.cache)
                self.track.join([other])
            case _:
                self._operate(step, where)

    def _operate(self, step: Step, where: str) -> None:
        before = self.track
        try:
            with subject_call(where, refusable=True):
                after = OPERATIONS[type(step)](step, before)
        except Refused:
            if step.expect != "refused":
                raise
            return
        if isinstance(step, ring.CopyStep):
            self.left_behind.append(before)
        self._track = after

    def _prefill(self, arguments: PrefillArguments, where: str) -> None:
        announced = PrepareArguments(lengths=arguments.lengths, left=arguments.left)
        self._operate(ring.PrepareStep(prepare=announced), where)
        width = len(self.track.columns[0]) if self.track.columns else 0
        done = 0
        for size in arguments.chunks or [width]:
            self._update(size, f"{where}, columns {done}..{done + size - 1}")
            done += size
        self._operate(ring.FinalizeStep(), where)

    def _update(self, count: int, where: str) -> None:
        """Give the next `count` columns to every row: tokens, and padding where a prefill says so."""
        track = self.track
        if self.notes.findings:
            return
        real, ends = track.next_columns(count), track.ends(count)
        block = self._block(track, real)
        with subject_call(where):
            answer = track.cache.update(block)
        expected = [[row.next() if token else None for token in own] for row, own in zip(track.rows, real, strict=True)]
        if track.columns is not None:
            track.came += count
        checks = self.case.check
        if "mask" in checks:
            look.check_mask(answer, real, where, self.notes)
        if "lengths" in checks:
            look.check_numbers("lengths", "convolution lengths", ends, answer.lengths, where, self.notes)
        if "counts" in checks:
            tokens = [sum(own) for own in real]
            look.check_numbers("counts", "tokens", tokens, answer.counts, where, self.notes)
        if "output" in checks and not self.notes.findings:
            look.check_output(answer, expected, track, where, self.notes)
        if not self.notes.findings:
            look.check_states(track, where, checks, self.notes)

    def _block(self, track: Track, real: list[list[bool]]) -> RecurrentBlock:
        places = []
        for row, own in zip(track.rows, real, strict=True):
            positions = iter(range(row.position, row.position + sum(own)))
            places.append([(row.stream, next(positions)) if token else None for token in own])
        return make_block(self.case.given, places)

    def _build(self, rows: Sequence[Sequence[Step]]) -> list[Track]:
        """Make solo caches by their own steps."""
        built, at_hand = [], self._track
        for number, own in enumerate(rows):
            self._track = Track.open(self.bench, 1)
            for step in own:
                self.take(step, f"building row {number} ({step.text()})")
            built.append(self.track)
        self._track = at_hand
        return built

    @staticmethod
    def _merged(tracks: Sequence[Track], where: str) -> Track:
        """Let the subject make one batch of solo caches; a single one is a batch already."""
        first, *others = tracks
        if not others:
            return first
        with subject_call(where, refusable=True):
            cache = first.cache.merge([track.cache for track in tracks])
        batch = replace(first, cache=cache)
        batch.join(others)
        return batch
