"""What is timed of an affine case: one operation on W, its planes or x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.affine.data import make_values
from harness.subjects.protocol import AffineArrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.affine.schema import AffineCase
    from harness.kinds.base import TimedCall
    from harness.subjects.protocol import Subject


def timed(case: AffineCase, subject: Subject) -> Mapping[str, TimedCall]:
    """Prepare every timed operation of the case; `quantize` gets W in the place of x."""
    values = make_values(case.given)
    planes = values.planes
    if not isinstance(planes, AffineArrays):
        # By `complaints` such a case lists nothing to time.
        return {}
    affine = subject.affine()
    calls: dict[str, TimedCall] = {}
    for operation in case.time:
        x = values.weights if operation == "quantize" else values.x
        calls[operation] = affine.timed(operation, x, planes, transpose=case.given.transposed)
    return calls
