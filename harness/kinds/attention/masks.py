"""Who sees what: the columns of each query, and the form in which a subject is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.attention.schema import AttentionGiven

_BIAS = 2.0
# Of the masks `random` and `blind`.
_SEEN_SHARE = 0.6
_BLIND_EVERY = 3


def make_mask(rng: np.random.Generator, given: AttentionGiven) -> NDArray[np.bool_]:
    """Return the mask [rows or 1, heads or 1, queries or 1, keys], True where a query sees a key; short as can be."""
    columns = np.arange(given.keys)
    own = np.arange(given.keys - given.queries, given.keys)[:, np.newaxis]
    if given.mask in ("causal", "sliding"):
        sees = columns <= own
        if given.mask == "sliding":
            sees &= columns > own - (given.window or given.keys)
        return sees[np.newaxis, np.newaxis]
    if given.mask in ("ranges", "padded"):
        edges = np.array([given.range_of(row) for row in range(given.rows)])[:, :, np.newaxis, np.newaxis]
        within = (columns >= edges[:, 0]) & (columns < edges[:, 1])
        return (within & (columns <= own) if given.mask == "padded" else within)[:, np.newaxis]
    if given.mask in ("random", "blind"):
        shape = (given.rows, given.heads if given.per_head else 1, given.queries, given.keys)
        sees = rng.random(shape) < _SEEN_SHARE
        np.put_along_axis(sees, rng.integers(0, given.keys, (*shape[:3], 1)), values=True, axis=-1)
        if given.mask == "blind":
            sees[:, :, ::_BLIND_EVERY] = False
        return sees
    return np.ones((1, 1, 1, given.keys), bool)


def make_bias(rng: np.random.Generator, given: AttentionGiven) -> NDArray[np.float64] | None:
    """Return what is added to the scores [rows or 1, heads or 1, queries or 1, keys], as its dtype holds it."""
    if given.bias == "none":
        return None
    if given.bias == "slopes":
        own = np.arange(given.keys - given.queries, given.keys)[:, np.newaxis]
        slopes = 2.0 ** -np.arange(1, given.heads + 1)[:, np.newaxis, np.newaxis]
        bias = (-slopes * np.abs(own - np.arange(given.keys)))[np.newaxis]
    else:
        heads = given.heads if given.per_head else 1
        bias = _BIAS * rng.standard_normal((given.rows, heads, given.queries, given.keys))
    stored: NDArray[np.float64] = bias.astype(numpy_dtype(given.dtype)).astype(np.float64)
    return stored


def spoken(
    given: AttentionGiven, sees: NDArray[np.bool_], bias: NDArray[np.float64] | None
) -> Literal["causal"] | NDArray[Any] | None:
    """Return the mask in the form in which the subject gets it."""
    if bias is not None:
        return np.where(sees, bias, -np.inf).astype(numpy_dtype(given.dtype))
    if given.mask == "none":
        return None
    if given.mask_form is None and given.mask == "causal":
        return "causal"
    return np.where(sees, 0.0, -np.inf).astype(numpy_dtype(given.dtype)) if given.mask_form == "additive" else sees
