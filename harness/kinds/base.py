"""What a kind is, and the notebook in which a run of an instance keeps its comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.outcome import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from harness.case.model import CaseModel
    from harness.case.source import Source
    from harness.compare import Policy
    from harness.subjects.protocol import Subject

    # A place in a case file (keys and indices from its root) and what is wrong there.
    Complaint = tuple[tuple[str | int, ...], str]
    TimedCall = Callable[[int], None]


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


@dataclass(frozen=True)
class Kind:
    """A kind of case.

    `model` is the pydantic model of its files. `complaints(case)` finds what a schema can't (a step that can't
    follow). `run(case, subject, notes)` drives the subject and compares; it raises Unsupported, Refused or
    SubjectError as the subject's calls do (`harness.subjects.call.subject_call`). `timed(case, subject)` prepares
    one function a timed operation: called with a call number, it does the operation once, evaluated.
    `describe(case)` returns lines for `assay show`. `include(source, own)` puts the text of files that a case names
    into it, before anything else looks at it; `own`: the case comes with the package.
    """

    name: str
    model: type[CaseModel]
    complaints: Callable[[Any], Iterable[Complaint]]
    run: Callable[[Any, Subject, Notes], None]
    timed: Callable[[Any, Subject], Mapping[str, TimedCall]]
    describe: Callable[[Any], Iterable[str]]
    include: Callable[[Source, bool], Source] | None = None
