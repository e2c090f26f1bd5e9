"""Kind `attention`: softmax attention over plain or affine keys and values."""

from __future__ import annotations


class Attention:
    """Attention under test (kind `attention`)."""
