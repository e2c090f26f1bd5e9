"""Kind `ring`: what a KV cache shows to attention, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.base import Kind
from harness.kinds.ring.complaints import complaints
from harness.kinds.ring.run import run
from harness.kinds.ring.schema import RingCase
from harness.kinds.ring.script import row_stride
from harness.kinds.ring.timed import timed

if TYPE_CHECKING:
    from collections.abc import Iterator


def describe(case: RingCase) -> Iterator[str]:
    """Write the cache and the steps, with the ids that they write."""
    yield f"cache: {case.given.spec()}"
    first, stride = 1, row_stride(case)
    for number, step in enumerate(case.steps, start=1):
        count = getattr(step, step.operation, None) if step.operation in ("append", "decode") else None
        ids = f"  tokens {first}..{first + count - 1}" if isinstance(count, int) else ""
        first += count if isinstance(count, int) else 0
        yield f"step {number}: {step.text()}{ids}{'  (a ring may refuse this)' if step.expect else ''}"
    if case.given.rows > 1:
        yield f"tokens of row r are these plus r * {stride}"
    yield f"checked after every step: {', '.join(case.check)}"


KIND = Kind("ring", RingCase, complaints, run, timed, describe)
__all__ = ["KIND"]
