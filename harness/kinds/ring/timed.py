"""What is timed of a ring: one operation over and over, on the cache as the case's steps left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.kinds.base import Notes
from harness.kinds.ring import steps
from harness.kinds.ring.run import Driver
from harness.subjects.protocol import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.base import TimedCall
    from harness.kinds.ring.schema import RingCase
    from harness.subjects.protocol import Subject

# Inputs rotate, so that no cache of the machine holds the one block that is always written.
ROTATING_BLOCKS = 8


def timed(case: RingCase, subject: Subject) -> Mapping[str, TimedCall]:
    """Prepare each timed operation on a cache of its own: `decode` one token, `append` the last block, `attention`."""
    calls: dict[str, TimedCall] = {}
    for operation in case.time:
        driver = Driver(case, subject, Notes())
        driver.case = case.model_copy(update={"check": ["positions"]})
        driver.run()
        tokens = _block_tokens(case) if operation == "append" else 1
        ids = np.arange(1, driver.bench.tokens.keys.shape[0])
        blocks = [
            Block(*driver.bench.tokens.block(np.tile(np.resize(np.roll(ids, -turn), tokens), (driver.track.rows, 1))))
            for turn in range(ROTATING_BLOCKS)
        ]
        calls[operation] = driver.track.ring.timed(operation, blocks)
    return calls


def _block_tokens(case: RingCase) -> int:
    sizes = [step.append for step in case.steps if isinstance(step, steps.AppendStep)]
    return sizes[-1] if sizes else 1
