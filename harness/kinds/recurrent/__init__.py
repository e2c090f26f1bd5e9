"""Kind `recurrent`: what padding, batching and rollback leave in the state of a recurrent layer."""

from __future__ import annotations

from harness.kinds.base import Kind
from harness.kinds.recurrent.complaints import complaints
from harness.kinds.recurrent.describe import describe
from harness.kinds.recurrent.run import run
from harness.kinds.recurrent.schema import RecurrentCase
from harness.kinds.recurrent.timed import timed

KIND = Kind("recurrent", RecurrentCase, complaints, run, timed, describe)
__all__ = ["KIND"]
