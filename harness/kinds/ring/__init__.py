"""Kind `ring`: what a KV cache shows to attention, step by step."""

from __future__ import annotations

from harness.kinds.base import Kind
from harness.kinds.ring.complaints import complaints
from harness.kinds.ring.describe import describe
from harness.kinds.ring.run import run
from harness.kinds.ring.schema import RingCase
from harness.kinds.ring.timed import timed

KIND = Kind("ring", RingCase, complaints, run, timed, describe)
__all__ = ["KIND"]
