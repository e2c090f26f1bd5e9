"""Kind `attention`: softmax attention over plain or affine keys and values, with masks and sinks."""

from __future__ import annotations

from harness.kinds.attention.complaints import complaints
from harness.kinds.attention.describe import describe
from harness.kinds.attention.run import run
from harness.kinds.attention.schema import AttentionCase
from harness.kinds.attention.timed import timed
from harness.kinds.base import Kind

KIND = Kind("attention", AttentionCase, complaints, run, timed, describe)
__all__ = ["KIND"]
