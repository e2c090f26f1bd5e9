"""What is timed of a donor: lending, and attention over what is lent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.kinds.base import TURNS, Notes, Timed, Work, turned
from harness.kinds.ring import lending
from harness.kinds.ring.run import Driver
from harness.kinds.ring.timed import attention_work
from harness.subjects.protocol import Answer, Block, Donor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.kinds.donor.schema import DonorCase
    from harness.kinds.ring.checks import Expected
    from harness.subjects.protocol import Subject


def timed(case: DonorCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare one operation on a cache of its own, as the steps of the case left it; see `Kind.timed`."""
    driver = Driver(turned(case, salt).model_copy(update={"check": ["positions"]}), subject, Notes())
    driver.run()
    track, tokens, queries = driver.track.snapshot(), driver.bench.tokens, case.lend.queries
    ids = [lending.query_ids(track, queries, turn) for turn in range(TURNS)]
    call = track.ring.timed(operation, [Block(*tokens.block(own)) for own in ids])
    window = track.spec.window
    checks = ("visible", "stored") if operation == "lend" else ("visible", "attention")

    def check(number: int, output: Any, notes: Notes) -> None:
        loan = lending.Loan(track, _Answering(output), decoded=False, where=f"call {number}")
        lending.look(loan, window, queries, driver.group, checks, notes, turn=number % TURNS)

    seen: Expected = [[track.histories.lent(row, window)[-1] or None] * queries for row in range(track.rows)]
    # A loan may be a view of what is there already.
    work = Work() if operation == "lend" else attention_work(track.spec, seen, track.storages)
    return Timed(call, check, work)


class _Answering(Donor):
    """Says what a timed call returned."""

    def __init__(self, output: Any) -> None:
        self._output = output

    def look(self, window: int | None, queries: NDArray[np.generic] | None) -> Answer:
        del window, queries
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look
