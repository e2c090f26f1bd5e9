"""Kind `affine`: quantization by groups with a scale and a bias each, and products with what it made."""

from __future__ import annotations

from harness.kinds.affine.complaints import complaints
from harness.kinds.affine.describe import describe
from harness.kinds.affine.run import run
from harness.kinds.affine.schema import AffineCase
from harness.kinds.affine.timed import timed
from harness.kinds.base import Kind

KIND = Kind("affine", AffineCase, complaints, run, timed, describe)
__all__ = ["KIND"]
