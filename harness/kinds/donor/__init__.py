"""Kind `donor`: what a KV cache lends to layers that have queries but no cache of their own."""

from __future__ import annotations

from harness.kinds.base import Kind
from harness.kinds.donor.complaints import complaints
from harness.kinds.donor.describe import describe
from harness.kinds.donor.run import run
from harness.kinds.donor.schema import DonorCase
from harness.kinds.donor.timed import timed

KIND = Kind("donor", DonorCase, complaints, run, timed, describe)
__all__ = ["KIND"]
