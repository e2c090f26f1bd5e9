"""Lines of `assay show` for a donor case: the steps, and which tokens each row lends after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.base import Notes
from harness.kinds.ring import steps
from harness.kinds.ring.describe import Silent, Teller, told_cache, told_loan
from harness.kinds.ring.lending import has_something

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.donor.schema import DonorCase
    from harness.kinds.ring.steps import Step


def describe(case: DonorCase) -> Iterator[str]:
    """Write the cache, the steps, and what layers of each window may see of what is lent."""
    yield f"cache: {told_cache(case.given.spec())}"
    teller = _LoanTeller(case, Silent(), Notes())
    teller.windows = case.lend.window_tokens()
    teller.run()
    yield from teller.lines
    decoded = ", decoded" if case.lend.decoded else ""
    yield f"lent after {'steps followed by `check`' if teller.only_listed else 'every step'}{decoded}"
    yield f"asked by {case.lend.queries} draft position{'s' * (case.lend.queries > 1)} at once"
    yield f"checked: {', '.join(case.check)}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


class _LoanTeller(Teller):
    """Tells loans, not what updates show."""

    windows: list[int | None]

    def take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        first = len(self.lines) + 1
        super().take(step, where, checks)
        if step.expect is None and not isinstance(step, steps.PinStep):
            asked = checks and self._track is not None and has_something(self.track)
            self.lines[first:] = told_loan(self.track, self.windows) if asked else []
