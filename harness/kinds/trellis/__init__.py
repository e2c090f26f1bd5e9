"""Kind `trellis`: matrices coded by a bitshift trellis, decoded and multiplied."""

from __future__ import annotations

from harness.kinds.base import Kind
from harness.kinds.trellis.complaints import complaints
from harness.kinds.trellis.describe import describe
from harness.kinds.trellis.run import run
from harness.kinds.trellis.schema import TrellisCase
from harness.kinds.trellis.timed import timed

KIND = Kind("trellis", TrellisCase, complaints, run, timed, describe)
__all__ = ["KIND"]
