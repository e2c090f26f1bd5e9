"""What a schema can't see in a donor case: the same as in a ring case, and checks that look at nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.ring import steps
from harness.kinds.ring.complaints import complaints as ring_complaints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.donor.schema import DonorCase

DONOR_PINS = ("ends", "starts", "width")


def complaints(case: DonorCase) -> Iterator[Complaint]:
    """Find steps that can't follow, caches that can't be, and what would be looked at twice or not at all."""
    yield from ring_complaints(case, DONOR_PINS)
    for index, step in enumerate(case.steps):
        if isinstance(step, steps.DonorStep):
            message = "is what every step of this kind does; write `- check`, and windows under `lend:`"
            yield ("steps", index, "donor"), message
    if (
        case.lend.decoded
        and case.given.storage == "plain"
        and not any(isinstance(step, steps.QuantizeStep) for step in case.steps)
    ):
        yield ("lend", "decoded"), "does nothing to plain storage; remove it, or write `storage: affine4x64`"
    if set(case.check) == {"untouched"}:
        yield ("check",), "untouched looks again at what other checks saw; write it beside `visible`"
