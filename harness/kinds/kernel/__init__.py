"""Kind `kernel`: the text of a Metal kernel, its launch, and what it must write."""

from __future__ import annotations

from harness.kinds.base import Kind
from harness.kinds.kernel.complaints import complaints
from harness.kinds.kernel.describe import describe
from harness.kinds.kernel.files import include
from harness.kinds.kernel.run import run
from harness.kinds.kernel.schema import KernelCase
from harness.kinds.kernel.timed import timed

KIND = Kind("kernel", KernelCase, complaints, run, timed, describe, include)
__all__ = ["KIND"]
