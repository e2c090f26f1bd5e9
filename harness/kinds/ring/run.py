"""Driving one cache through the steps of a case, and comparing after each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.compare import Exact
from harness.dtypes import numpy_dtype
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring import steps
from harness.kinds.ring.checks import Expected, check_attention, check_stored, check_visible
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

    from harness.kinds.ring.schema import RingCase
    from harness.kinds.ring.steps import Step
    from harness.subjects.protocol import Subject

LOOKS_AT_UPDATES = frozenset({"visible", "stored", "attention"})


def run(case: RingCase, subject: Subject, notes: Notes) -> None:
    """Run the steps; see `Kind.run`."""
    Driver(case, subject, notes).run()


class Driver:
    """One run: the subject's ring on one side, lists of ids on the other."""

    def __init__(self, case: RingCase, subject: Subject, notes: Notes) -> None:
        """Make the data, and open the cache unless the first step builds it."""
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
            return tuple(self.case.check)
        following = self.case.steps[index + 1] if index + 1 < len(self.case.steps) else None
        return tuple(following.check or self.case.check) if isinstance(following, steps.CheckStep) else ()

    def take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        """Do one step and look at what it showed."""
        match step:
            case steps.CheckStep():
                return
            case steps.AppendStep():
                self.append(step.append, where, checks)
            case steps.DecodeStep():
                self._decode(step.decode, where, checks)
            case steps.ChunkStep():
                self.chunk(step.chunk, where, checks)
            case steps.PrefillStep():
                self._prefill(step.prefill, where, checks)
            case steps.MergeStep():
                self._track = self._build(step.merge.rows, where, self._track)
            case steps.ExtendStep():
                self._extend(step.extend.rows, where)
            case _:
                self._operate(step, where)
        if not self.notes.findings:
            self.look_at_positions(where, checks)
            self._look_at_earlier_arrays(where, checks)

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

    def _prefill(self, arguments: steps.PrefillArguments, where: str, checks: tuple[str, ...]) -> None:
        prepare = steps.PrepareStep(prepare=steps.PrepareArguments(lengths=arguments.lengths, left=arguments.left))
        self._operate(prepare, f"{where}, prepare")
        prefill = self.track.prefill
        width = prefill.columns.shape[1] if prefill is not None else 0
        done = 0
        for size in arguments.chunks or [width]:
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
        if not LOOKS_AT_UPDATES & set(checks):
            return
        view = read_answer(answer, track.spec, self.group, ids.shape[1], where, self.notes)
        expected = expected_ids(track, ids, before)
        alone = self.bench.stored_alone(track.spec)
        # A query that sees the wrong tokens has the wrong output, too: one finding a cause.
        good = check_visible(view, expected, ids, where, self.notes) if "visible" in checks else True
        if good and "stored" in checks:
            good = check_stored(view, alone, where, self.notes)
        if good and "attention" in checks:
            check_attention(view, expected, ids, self.bench.tokens, alone, track.spec, where, self.notes)

    def _build(self, rows: Sequence[Sequence[Step]], where: str, first: Track | None = None) -> Track:
        """Make solo caches by their own steps and merge them; a refusal of the merge is one of the whole case."""
        solos = [] if first is None else [first]
        for number, own in enumerate(rows):
            outer, self._track = self._track, Track.open(self.bench, replace(self.spec, rows=1))
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
            checks = tuple(check for check in self.case.check if check in ("visible", "positions")) or ("visible",)
            try:
                self.append(1, after, checks)
                self.look_at_positions(after, checks)
            except SubjectError as error:
                self.notes.found("untouched", after, "the cache works on as before", str(error))
        if not self.notes.findings:
            raise Unsupported(f"{where}: refuses: {refusal}")
        self._stop_if_found()

    def look_at_positions(self, where: str, checks: Sequence[str]) -> None:
        """Compare offsets; not while a padded prefill is open, when some count padding and some don't."""
        if "positions" not in checks or self.notes.findings or self.track.prefill is not None:
            return
        with subject_call(f"offsets after {where}"):
            told = {"offsets": self.track.ring.offsets(), "rope offsets": self.track.ring.rope_offsets()}
        wanted = self.track.histories.lengths()
        for name, offsets in told.items():
            if offsets is not None:
                self.notes.compared()
                if list(offsets) != wanted:
                    self.notes.found("positions", where, f"{name} {wanted}", f"{name} {list(offsets)}")

    def _look_at_earlier_arrays(self, where: str, checks: Sequence[str]) -> None:
        """Compare every array that crossed the border so far with what it held then."""
        if "untouched" not in checks or self.notes.findings:
            return
        with subject_call(f"looking at earlier arrays after {where}"):
            handed_out = self.track.ring.handed_out()
        for item in handed_out or ():
            self.notes.compared()
            wrong = Exact().check(item.then, item.now)
            if wrong is not None:
                place = f"{where}: {item.label}, element {wrong.where}"
                self.notes.found("untouched", place, wrong.expected, wrong.actual, wrong.note)
                return

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
