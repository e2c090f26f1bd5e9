"""What is timed of a donor: lending, and attention over what is lent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.kinds.base import Notes
from harness.kinds.ring.run import Driver
from harness.kinds.ring.timed import ROTATING_BLOCKS
from harness.subjects.protocol import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.base import TimedCall
    from harness.kinds.donor.schema import DonorCase
    from harness.subjects.protocol import Subject


def timed(case: DonorCase, subject: Subject) -> Mapping[str, TimedCall]:
    """Prepare each timed operation on a cache of its own, as the steps of the case left it."""
    calls: dict[str, TimedCall] = {}
    for operation in case.time:
        driver = Driver(case, subject, Notes())
        driver.case = case.model_copy(update={"check": ["positions"]})
        driver.run()
        tokens, rows = driver.bench.tokens, driver.track.rows
        ids = np.arange(1, len(tokens.keys))
        turns = (np.resize(np.roll(ids, -turn), case.lend.queries) for turn in range(ROTATING_BLOCKS))
        blocks = [Block(*tokens.block(np.tile(turn, (rows, 1)))) for turn in turns]
        calls[operation] = driver.track.ring.timed(operation, blocks)
    return calls
