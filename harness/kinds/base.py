"""What a kind is, and the notebook in which a run of an instance keeps its comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from harness.outcome import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from harness.case.model import CaseModel
    from harness.case.source import Source
    from harness.compare import Policy
    from harness.subjects.protocol import Subject, TimedCall

    # A place in a case file (keys and indices from its root) and what is wrong there.
    Complaint = tuple[tuple[str | int, ...], str]


CaseT = TypeVar("CaseT", bound="CaseModel")


class StopInstance(Exception):  # noqa: N818 - control flow
    """Enough is known: later checks would only repeat the finding just noted."""


@dataclass
class Notes:
    """Comparisons made and findings noted while an instance runs."""

    comparisons: int = 0
    findings: list[Finding] = field(default_factory=list)
    # Arrays as the subject returned them, with the policy that each was judged by; None: nobody wants to know.
    judged: list[tuple[NDArray[Any], Policy]] | None = None

    def compared(self, count: int = 1) -> None:
        """Count comparisons that agreed or not; an instance that made none proves nothing."""
        self.comparisons += count

    def found(self, check: str, where: str, expected: str, actual: str, note: str = "") -> None:
        """Note one difference."""
        self.findings.append(Finding(check, where, expected, actual, note))

    def judged_by(self, shown: NDArray[Any], policy: Policy) -> None:
        """Tell by which policy a whole array is judged, the very object that the subject returned.

        A recording keeps it, so that another device may be as far off. A bound is infinite where any finite number
        will do.
        """
        if self.judged is not None:
            self.judged.append((shown, policy))


# Inputs that calls take in turn: what is kept of an earlier call is no answer to this one.
TURNS = 8
# Turns of large arrays are fewer, and still enough for that.
FEWEST_TURNS = 3
_MOST_TURNED_BYTES = 16 << 20


@dataclass(frozen=True)
class Work:
    """What one call of an operation must do at least, however it does it.

    moved_bytes: every input read once and every output written once; operations: arithmetic, a multiply-add being two.
    None: this can't be said.
    """

    moved_bytes: int | None = None
    operations: int | None = None


@dataclass(frozen=True)
class Timed:
    """One operation, prepared for the clock.

    Calls are numbered 0, 1, 2, ... without a gap, and call n takes input n modulo `turns`. `check(n, output, notes)`
    compares what call n returned, as NumPy arrays, with the baseline by the policies of the case; it is asked in
    ascending order. `stateful`: calls build on each other. `most_calls`: after so many it must be prepared anew.
    `queued(output)`: where a queue of calls that build on each other is waited for at its end, what to wait for beside
    the last output; the state itself, of which every output may be a view, must be let go.
    """

    call: TimedCall
    check: Callable[[int, Any, Notes], None]
    work: Work = Work()
    turns: int = TURNS
    stateful: bool = False
    most_calls: int | None = None
    queued: Callable[[Any], object] = lambda _output: None


def turns_of(case_bytes: int) -> int:
    """Return how many different inputs of so many bytes calls take in turn."""
    return max(FEWEST_TURNS, min(TURNS, _MOST_TURNED_BYTES // max(1, case_bytes)))


def turned(case: CaseT, turn: int) -> CaseT:
    """Return a case like this one with other random values, the same for the same `turn`."""
    given: Any = case.given  # type: ignore[attr-defined]  # every kind has it, with a seed
    # A prime apart, so that turns of neighboring seeds do not meet.
    return case.model_copy(update={"given": given.model_copy(update={"seed": given.seed + 7919 * (turn + 1)})})


@dataclass(frozen=True)
class Kind:
    """A kind of case.

    `model` is the pydantic model of its files. `complaints(case)` finds what a schema can't (a step that can't
    follow). `run(case, subject, notes)` drives the subject and compares; it raises Unsupported, Refused or
    SubjectError as the subject's calls do (`harness.subjects.call.subject_call`). `timed(case, subject, operation,
    salt)` prepares one operation of `time:` for the clock, other salts with other random values. `describe(case)`
    returns lines for `assay show`. `include(source, own)` puts the text of files that a case names into it, before
    anything else looks at it; `own`: the case comes with the package.
    """

    name: str
    model: type[CaseModel]
    complaints: Callable[[Any], Iterable[Complaint]]
    run: Callable[[Any, Subject, Notes], None]
    timed: Callable[[Any, Subject, str, int], Timed]
    describe: Callable[[Any], Iterable[str]]
    include: Callable[[Source, bool], Source] | None = None
