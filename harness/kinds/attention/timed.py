"""What is timed of an attention case: the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.attention.data import make_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.attention.schema import AttentionCase
    from harness.kinds.base import TimedCall
    from harness.subjects.protocol import Subject


def timed(case: AttentionCase, subject: Subject) -> Mapping[str, TimedCall]:
    """Prepare every timed operation of the case."""
    if not case.time:
        return {}
    return {"attention": subject.attention().timed(make_inputs(case.given).shown)}
