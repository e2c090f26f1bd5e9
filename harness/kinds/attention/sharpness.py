"""How large the bound of a case will be beside its answers, estimated before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.attention_bound import Arithmetic, gamma, logit_limit
from harness.kinds.attention.data import LARGE_QUERIES, PICK_HIDDEN, SPARSE_CHANNELS

if TYPE_CHECKING:
    from harness.kinds.attention.schema import AttentionGiven

# Mean magnitude of a standard normal number, and of a product of two.
_ONE, _TWO = 0.8, 0.64
# A decoded number has terms about twice as large as itself.
_AFFINE_TERMS = 2.0
# Where the bound is half as large as an answer, an answer of zeros still fails, and half of the wrong ones do.
LOOSEST = 0.5


def looseness(given: AttentionGiven) -> float:
    """Estimate the bound over the size of an answer: at 1 an answer of zeros would pass.

    Values count as normal: n of them with equal weights make an answer of 1 / sqrt(n), and a bound that follows their
    magnitudes, 0.8 whatever n.
    """
    arithmetic = Arithmetic(given.dtype, affine=given.affine() is not None)
    widest = max(end - first for first, end in (given.range_of(row) for row in range(given.rows)))
    many = min(widest, given.window or widest)
    unit = arithmetic.unit
    stored = (5 if arithmetic.affine else 3) * unit
    if given.data == "pick":
        return stored + float(gamma(5, arithmetic.sums))
    terms, sums, logit, effective = _scores(given, many)
    sums *= _AFFINE_TERMS if arithmetic.affine else 1.0
    off = float(logit_limit(np.full((1, 1), logit), np.full((1, 1), sums), np.full(1, terms), arithmetic)[0, 0])
    moved = float(np.expm1(2 * off)) if off < 50 else np.inf
    rounded = float(gamma(many + 4, arithmetic.sums)) * (_AFFINE_TERMS if arithmetic.affine else 1.0)
    size = 1.0 if given.values == "offset" else effective**-0.5
    return _ONE * (moved * (0.0 if given.values == "offset" else 1.0) + rounded + stored) / size


def _scores(given: AttentionGiven, many: int) -> tuple[int, float, float, float]:
    """Return terms of a score, scale * sum |q k|, a large score, and how many keys share the weight."""
    standard = given.factor * given.head_dim**0.5
    if given.data == "zeros":
        return 0, 0.0, 0.0, float(many)
    if given.data == "sparse":
        return SPARSE_CHANNELS, standard * _TWO * SPARSE_CHANNELS**0.5, 2.0 * standard, max(many / 2.7, 1.0)
    if given.data == "pick-hidden":
        return 2, 2 * PICK_HIDDEN, PICK_HIDDEN, max(2 * many / given.head_dim, 1.0)
    size = LARGE_QUERIES * standard if given.data == "large" else standard
    effective = 1.0 if given.data == "large" else many if given.data == "equal" else max(many / 2.7, 1.0)
    return given.head_dim, size * _TWO * given.head_dim**0.5, 2 * size, float(effective)
