"""Running a donor case: after each step the cache lends, and in the end every loan is looked at once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.ring import lending, steps
from harness.kinds.ring.run import Driver
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from harness.kinds.base import Notes
    from harness.kinds.donor.schema import DonorCase
    from harness.kinds.ring.lending import Loan
    from harness.kinds.ring.steps import Step
    from harness.subjects.protocol import Pinned, Subject

_OWN_CHECKS = ("visible", "stored", "attention")


def run(case: DonorCase, subject: Subject, notes: Notes) -> None:
    """Run the steps; see `Kind.run`."""
    Lender(case, subject, notes).run()


class Lender(Driver):
    """Takes the steps as kind `ring` does, and looks at what is lent instead of what updates return."""

    def __init__(self, case: DonorCase, subject: Subject, notes: Notes) -> None:
        """Prepare the steps, and a shelf for loans."""
        super().__init__(case, subject, notes)
        self._lend = case.lend
        self._loans: list[Loan] = []

    def run(self) -> None:
        """Take every step; then look again at what was lent on the way."""
        super().run()
        if "untouched" in self.case.checks:
            for loan in self._loans:
                lending.look_again(loan, "after the last step", self.notes)
                self._stop_if_found()

    def take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        """Take the step; then look at a loan, or where a step `check` says so."""
        super().take(step, where, ())
        if checks and not self.notes.findings and lending.has_something(self.track) and not _looks_only(step):
            self._look_at_loan(where, checks)

    def _look_at_loan(self, where: str, checks: tuple[str, ...]) -> None:
        loan = lending.take(self.track, where, decoded=self._lend.decoded)
        self._loans.append(loan)
        own = tuple(check for check in checks if check in _OWN_CHECKS)
        for window in self._lend.window_tokens():
            lending.look(loan, window, self._lend.queries, self.group, own, self.notes)
            self._stop_if_found()
        if "positions" in checks:
            lending.look_at_offsets(loan, self.notes)

    def pinned(self, where: str) -> dict[str, Pinned]:
        """Return what the subject tells of a loan at this point."""
        loan = lending.take(self.track, where, decoded=self._lend.decoded)
        with subject_call(f"pins of what was lent after {where}"):
            return loan.donor.pinned()


def _looks_only(step: Step) -> bool:
    return isinstance(step, steps.CheckStep | steps.PinStep)
