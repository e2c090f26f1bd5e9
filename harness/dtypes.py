"""Names of the storage dtypes as NumPy dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of `float32`, `float16` or `bfloat16` (the last from ml_dtypes)."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
