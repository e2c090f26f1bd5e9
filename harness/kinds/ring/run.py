"""Driving one cache through the steps of a case, and comparing after each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.dtypes import numpy_dtype
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring import arguments, lending, steps
from harness.kinds.ring.checks import Expected, check_attention, check_stored, check_visible
from harness.kinds.ring.looks import compare_earlier_arrays, compare_pins, compare_positions
from harness.kinds.ring.observe import read_answer
from harness.kinds.ring.operations import OPERATIONS
from harness.kinds.ring.script import last_id, marker_group, row_stride
from harness.kinds.ring.tokens import make_tokens
from harness.kinds.ring.track import Bench, Track
from harness.subjects.call import SubjectError, subject_call
from harness.subjects.protocol import Refused, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.kinds.ring.schema import RingCase, StepsCase
    from harness.kinds.ring.steps import Step
    from harness.subjects.protocol import Answer, Pinned, Subject

LOOKS_AT_UPDATES = frozenset({"visible", "stored", "attention"})


def run(case: RingCase, subject: Subject, notes: Notes) -> None:
    """Run the steps; see `Kind.run`."""
    Driver(case, subject, notes).run()


class Driver:
    """One run: the subject's ring on one side, lists of ids on the other."""

    def __init__(self, case: StepsCase, subject: Subject, notes: Notes) -> None:
        """Make the data, and open the cache unless the first step builds it."""
        if case.given.crossing and "crossing" not in subject.capabilities:
            raise Unsupported("rows that become affine one by one")
        self.case, self.notes = case, notes
        self.spec = case.given.spec()
        self.group = marker_group(case)
        tokens = make_tokens(self.spec, numpy_dtype(self.spec.dtype), case.given.seed, last_id(case), self.group)
        self.bench = Bench(subject, tokens, row_stride(case))
        self.only_listed = any(isinstance(step, steps.CheckStep) for step in case.steps)
        self.remarks: list[str] = []
        # Caches of which a copy went on, as they were then: looked at when everything else is done.
        self.left_behind: list[Track] = []
        self._track: Track | None = None
        if not isinstance(case.steps[0], steps.MergeStep):
            self._track = Track.open(self.bench, self.spec)

    @property
    def track(self) -> Track:
        """The cache that steps happen to now."""
        assert self._track is not None  # noqa: S101 - a case without a cache merges one first
        return self._track

    def run(self) -> None:
        """Take every step; stops at the first step with a finding, since later ones would repeat it."""
        for number, step in enumerate(self.case.steps, start=1):
            self.take(step, f"step {number} ({step.text()})", self._checks(number - 1))
            self._stop_if_found()
        for original in self.left_behind:
            self._track = original
            where = "one token given to the cache that was copied, after its copy went on"
            self.append(1, where, ("visible", "positions"))
            self.look_at_positions(where, ("positions",))
            self._stop_if_found()

    def _stop_if_found(self) -> None:
        if self.notes.findings:
            self._add_remarks()
            raise StopInstance

    def _checks(self, index: int) -> tuple[str, ...]:
        if not self.only_listed:
            return self.case.checks
        following = self.case.steps[index + 1] if index + 1 < len(self.case.steps) else None
        return tuple(following.check or self.case.checks) if isinstance(following, steps.CheckStep) else ()

    def take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        """Do one step and look at what it showed."""
        match step:
            case steps.CheckStep():
                return
            case steps.PinStep():
                # What holds for one implementation is not asked of others.
                if self.bench.subject.name == self.case.pins:
                    compare_pins(step.pin, self.pinned(where), where, self.notes)
            case steps.DonorStep():
                loan = lending.take(self.track, where, decoded=step.donor.decoded)
                lending.look(loan, step.donor.window, 1, self.group, checks, self.notes)
            case steps.MergeStep():
                self._track = self._build(step.merge.rows, where, self._track)
            case steps.ExtendStep():
                self._extend(step.extend.rows, where)
            case _ if not self._update_by(step, where, checks):
                self._operate(step, where)
        self.track.cross()
        if not self.notes.findings:
            self.look_at_positions(where, checks)
            if "untouched" in checks and not self.notes.findings:
                compare_earlier_arrays(self.track.ring, where, self.notes)

    def _update_by(self, step: Step, where: str, checks: tuple[str, ...]) -> bool:
        """Take a step that writes tokens; returns whether it is one."""
        match step:
            case steps.AppendStep():
                self.append(step.append, where, checks)
            case steps.DecodeStep():
                self._decode(step.decode, where, checks)
            case steps.ChunkStep():
                self.chunk(step.chunk, where, checks)
            case steps.PrefillStep():
                self._prefill(step.prefill, where, checks)
            case _:
                return False
        return True

    def _operate(self, step: Step, where: str) -> None:
        operation = OPERATIONS.get(type(step))
        if operation is None:
            raise Unsupported(f"{step.operation}: no subject offers this step yet")
        try:
            with subject_call(where, refusable=True):
                change = operation(step, self.track, expect_refused=step.expect == "refused")
        except Refused as refusal:
            self._refused(step, where, refusal)
            return
        if change.finding is not None:
            self.notes.found(step.operation, where, *change.finding)
            return
        if change.left_behind is not None:
            self.left_behind.append(change.left_behind)
        if step.expect == "refused":
            self.remarks.append(f"{where} was done although the cache no longer held what the rest needs")
        self._track = change.track

    def _decode(self, count: int, where: str, checks: tuple[str, ...]) -> None:
        for number in range(1, count + 1):
            self.append(1, where if count == 1 else f"{where}, token {number}", checks)
            if self.notes.findings:
                return

    def _prefill(self, asked: arguments.PrefillArguments, where: str, checks: tuple[str, ...]) -> None:
        prepare = steps.PrepareStep(prepare=arguments.PrepareArguments(lengths=asked.lengths, left=asked.left))
        self._operate(prepare, f"{where}, prepare")
        prefill = self.track.prefill
        width = prefill.columns.shape[1] if prefill is not None else 0
        done = 0
        for size in asked.chunks or [width]:
            self.chunk(size, f"{where}, columns {done}..{done + size - 1}", checks)
            done += size
            if self.notes.findings:
                return
        self._operate(steps.FinalizeStep(), f"{where}, finalize")

    def append(self, count: int, where: str, checks: tuple[str, ...]) -> None:
        """Write `count` new tokens into every row and look at what the block's queries see."""
        ids = self.track.new_ids(count)
        self._update(ids, where, checks)

    def chunk(self, count: int, where: str, checks: tuple[str, ...]) -> None:
        """Write the next columns of the open prefill; a cache may refuse (a single column, for one)."""
        prefill = self.track.prefill
        if prefill is None:
            raise Unsupported(f"{where}: no prefill is open")
        self._update(prefill.next(count), where, checks, refusable=True)

    def _update(self, ids: NDArray[np.int64], where: str, checks: Sequence[str], *, refusable: bool = False) -> None:
        track = self.track
        before = track.histories.lengths()
        keys, values, queries = self.bench.tokens.block(ids)
        try:
            with subject_call(where, refusable=refusable):
                answer = track.ring.append(keys, values, queries if "attention" in checks else None)
        except Refused as refusal:
            raise Unsupported(f"{where}: refuses: {refusal}") from None
        track.wrote(ids)
        if LOOKS_AT_UPDATES & set(checks):
            self._look(answer, expected_ids(track, ids, before), ids, where, checks)
        # A row crosses after the update: what that returned was stored as before.
        track.cross()

    def _look(
        self, answer: Answer, expected: Expected, ids: NDArray[np.int64], where: str, checks: Sequence[str]
    ) -> None:
        track = self.track
        view = read_answer(answer, track.spec, track.storages, self.group, ids.shape[1], where, self.notes)
        # A query that sees the wrong tokens has the wrong output, too: one finding a cause.
        good = check_visible(view, expected, ids, where, self.notes) if "visible" in checks else True
        if good and "stored" in checks:
            good = check_stored(view, track.alones(), where, self.notes)
        if good and "attention" in checks:
            check_attention(view, expected, ids, self.bench.tokens, track.alones(), track.spec, where, self.notes)

    def _build(self, rows: Sequence[Sequence[Step]], where: str, first: Track | None = None) -> Track:
        """Make solo caches by their own steps and merge them; a refusal of the merge is one of the whole case."""
        solos = [] if first is None else [first]
        crossing = self.case.given.crossing or []
        for number, own in enumerate(rows):
            spec = replace(
                self.spec, rows=1, crossing=tuple(crossing[number % len(crossing) :][:1]) if crossing else ()
            )
            outer, self._track = self._track, Track.open(self.bench, spec)
            for step in own:
                self.take(step, f"{where}, row {number}, {step.text()}", ())
            solos.append(self.track)
            self._track = outer
        try:
            with subject_call(where, refusable=True):
                ring = solos[0].ring.merge([solo.ring for solo in solos])
        except Refused as refusal:
            raise Unsupported(f"{where}: refuses: {refusal}") from None
        return Track.joined(ring, solos)

    def _extend(self, rows: Sequence[Sequence[Step]], where: str) -> None:
        other = self._build(rows, where)
        try:
            with subject_call(where, refusable=True):
                self.track.ring.extend(other.ring)
        except Refused as refusal:
            raise Unsupported(f"{where}: refuses: {refusal}") from None
        self._track = Track.joined(self.track.ring, [self.track, other])

    def _refused(self, step: Step, where: str, refusal: Refused) -> None:
        """Take a refusal: the state must be what it was, which the next token shows."""
        if step.expect == "refused":
            self.notes.compared()
            return
        if self.track.prefill is None:
            after = f"one token after {where} was refused"
            checks = tuple(check for check in self.case.checks if check in ("visible", "positions")) or ("visible",)
            try:
                self.append(1, after, checks)
                self.look_at_positions(after, checks)
            except SubjectError as error:
                self.notes.found("untouched", after, "the cache works on as before", str(error))
        if not self.notes.findings:
            raise Unsupported(f"{where}: refuses: {refusal}")
        self._stop_if_found()

    def pinned(self, where: str) -> dict[str, Pinned]:
        """Return what the subject tells of itself at this point."""
        with subject_call(f"pins after {where}"):
            return self.track.ring.pinned()

    def look_at_positions(self, where: str, checks: Sequence[str]) -> None:
        """Compare offsets; not while a padded prefill is open, when some count padding and some don't."""
        if "positions" in checks and not self.notes.findings and self.track.prefill is None:
            compare_positions(self.track, where, self.notes)

    def _add_remarks(self) -> None:
        """Put what the subject said and claimed beside the evidence."""
        remarks = [*self.remarks, *dict.fromkeys(self.track.ring.remarks())] if self._track else self.remarks
        if remarks:
            self.notes.findings[:] = [
                replace(finding, note="; ".join(filter(None, (finding.note, *remarks))))
                for finding in self.notes.findings
            ]


def expected_ids(track: Track, ids: NDArray[Any], before: Sequence[int]) -> Expected:
    """Return, for every row and query of a block just written, the ids it may attend to (None: it is padding)."""
    expected: Expected = []
    for row, start in enumerate(before):
        position = start
        queries: list[list[int] | None] = []
        for token in ids[row]:
            queries.append(track.histories.visible(row, position, start) if token else None)
            position += bool(token)
        expected.append(queries)
    return expected
