"""How far a right answer of softmax attention may be from the float64 one, derived from roundings it can't avoid.

A sink is one more key, with a logit of its own and a value of 0. u is the unit roundoff of the dtype, a that of the
accumulator, and gamma as in `dot_bound` (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.compare import UNIT_ROUNDOFF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Smallest steps: what a product or a stored weight loses when it underflows. Float32 may flush subnormal numbers.
_TINY = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
# Errors of a float32 exponential: a few units in the last place, and its argument's (shifted, and in base 2 on GPUs).
_EXP, _EXP_ARGUMENT = 1e-6, 4 * UNIT_ROUNDOFF["float32"]
# Beyond this error of a logit any weight may come out; e^200 squared is still a number.
_HOPELESS = 200.0


@dataclass(frozen=True)
class Arithmetic:
    """The dtype of arrays, and whether keys and values are affine planes.

    MLX's CPU backend sums products with planes in the dtype of their scales, plain ones in float32.
    """

    dtype: str
    affine: bool

    @property
    def unit(self) -> float:
        """Unit roundoff of the dtype."""
        return UNIT_ROUNDOFF[self.dtype]

    @property
    def sums(self) -> float:
        """Unit roundoff of the accumulator."""
        return self.unit if self.affine else UNIT_ROUNDOFF["float32"]


@dataclass(frozen=True)
class Attended:
    """Keys [tokens, head_dim] and values [tokens, value_dim] of a head, and the magnitudes of the terms behind them.

    A plain number is its own term; a decoded one has |scale * code| + |bias|.
    """

    keys: Array
    key_terms: Array
    values: Array
    value_terms: Array


def attention_limit(
    queries: Array,
    attended: Attended,
    scale: float,
    weights: Array,
    arithmetic: Arithmetic,
    sink: float | None = None,
    bias: Array | None = None,
) -> Array:
    """Bound |error| of the output [queries, value_dim] of one head.

    `queries` [queries, head_dim]; `weights` [queries, tokens] are exact, 0 where a query sees nothing. A `bias`
    [queries, tokens] that is added to the scores costs 2u |bias|: for the sum, whose other part `logit_limit` has, and
    for a change of its base.

    A logit s_j is off by at most d_j (`logit_limit`). So weight w_j lies between w e^-d / (w e^-d + sum' w_k e^d_k)
    and w e^d / (w e^d + sum' w_k e^-d_k), sum' over the others and the sink: it moves by at most D_j. The weights sum
    to 1 before and after, hence the output moves by at most sum D_j |v_j - c| for any c: here 0 or the mean value.
    Summing rounds gamma (`_summing`), storing weights and output 3u more, and decoding values 2u.
    """
    sizes = np.abs(queries)
    logits = scale * (queries @ attended.keys.T)
    visible = weights > 0
    off = logit_limit(logits, scale * (sizes @ attended.key_terms.T), np.count_nonzero(queries, axis=1), arithmetic)
    if bias is not None:
        added = np.where(visible, bias, 0.0)
        off, logits = off + 2 * arithmetic.unit * np.abs(added), logits + added
    top, rest = _sink_weight(logits, visible, sink)
    off = np.where(visible, off + _EXP_ARGUMENT * (np.abs(logits) + top) + _EXP, 0.0)
    sink_off = _EXP_ARGUMENT * (abs(sink or 0.0) + top) + _EXP
    moved = _moved(np.hstack([weights, rest]), np.hstack([off, sink_off]).clip(max=_HOPELESS))
    moved, sink_moved = moved[:, :-1], moved[:, -1:]
    mean = attended.values.mean(axis=0, keepdims=True)
    shifted = moved @ np.abs(attended.values - mean) + sink_moved * np.abs(mean)
    spread = np.minimum(moved @ np.abs(attended.values), shifted)
    largest = weights + moved
    stored = (5 if arithmetic.affine else 3) * arithmetic.unit + _EXP
    total: Array = (
        spread + largest @ attended.value_terms * stored + _summing(largest, attended.value_terms, arithmetic)
    )
    return total + _TINY[arithmetic.dtype] * (1 + visible @ (1 + attended.value_terms))


def logit_limit(logits: Array, sums: Array, terms: NDArray[np.intp], arithmetic: Arithmetic) -> Array:
    """Bound the error of logits [queries, tokens]; `sums` are scale * sum |q k|, `terms` nonzero entries of a query.

    gamma_{terms + 4}(a) sum |q k| for the product: entries that are 0 add exactly 0, and the 4 are the scaled query,
    the decoded key and the result. Plain keys are summed in float32, where the scaled query's u is apart. 3u |s| for
    the rounded scale, the stored logit and the mask that is added to it.
    """
    scaled = 0.0 if arithmetic.affine else arithmetic.unit
    factor = gamma(terms + 4, arithmetic.sums)[:, np.newaxis] + scaled
    underflow = terms[:, np.newaxis] * _TINY[arithmetic.dtype]
    # The products of an infinite factor and a sum of 0 are 0.
    product = np.where(sums > 0, np.minimum(factor, 1e300) * sums, 0.0)
    bound: Array = product + 3 * arithmetic.unit * np.abs(logits) + underflow
    return bound


def gamma(roundings: NDArray[np.intp] | int, unit: float) -> Array:
    """Return gamma_m = m u / (1 - m u) for m `roundings`, infinite from m u = 1 on."""
    mu = np.asarray(roundings, np.float64) * unit
    return np.where(mu < 1, mu / np.where(mu < 1, 1 - mu, 1.0), np.inf)


def _sink_weight(logits: Array, visible: NDArray[np.bool_], sink: float | None) -> tuple[Array, Array]:
    """Return the magnitude of the largest logit, the sink's included, and the weight of the sink, both [queries, 1].

    Not as what the weights lack to 1: a sink far below the scores has a weight of 0, whatever the error of its logit.
    """
    below = -np.inf if sink is None else sink
    top = np.where(visible, logits, -np.inf).max(axis=1, keepdims=True, initial=below)
    top = np.where(np.isfinite(top), top, 0.0)
    rest = np.exp(below - top)
    total = np.exp(np.where(visible, logits - top, -np.inf)).sum(axis=1, keepdims=True) + rest
    return np.abs(top), np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)


def _moved(weights: Array, off: Array) -> Array:
    """Return by how much each weight [queries, n] moves at most when logits are off by `off`."""
    up, down = weights * np.exp(off), weights * np.exp(-off)
    others_low = np.clip(down.sum(axis=1, keepdims=True) - down, 0.0, None)
    others_high = np.clip(up.sum(axis=1, keepdims=True) - up, 0.0, None)
    some = weights > 0
    high = np.divide(up, up + others_low, out=np.zeros_like(up), where=some)
    low = np.divide(down, down + others_high, out=np.zeros_like(up), where=some)
    moved: Array = np.maximum(high - weights, weights - low)
    return moved


def _summing(weights: Array, terms: Array, arithmetic: Arithmetic) -> Array:
    """Bound what summing n weighted values and n weights rounds, [queries, value_dim].

    Adding y to s rounds by at most min(a |s + y|, |y|). So terms that are small beside a / n^2 do not count as
    terms: together they cost at most n times themselves. A kernel that takes keys block by block scales its sums
    anew with each: 4 roundings a key, in float32.
    """
    float32 = UNIT_ROUNDOFF["float32"]
    count = max(weights.shape[1], 1)
    small = weights < arithmetic.sums / count**2
    large = (~small).sum(axis=1)
    factor = np.maximum(gamma(large + 4, arithmetic.sums), gamma(4 * count + 16, float32))
    # An infinite factor times a term of 0 is 0.
    rounded = np.minimum(factor, 1e300)[:, np.newaxis] * (weights @ terms)
    total: Array = rounded + count * (np.where(small, weights, 0.0) @ terms)
    return total
