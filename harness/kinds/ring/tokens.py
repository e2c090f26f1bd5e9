"""Keys and values that carry their token's id, so that a cache's columns can be told apart after any storage.

A bfloat16 channel can't tell 300 ids apart, and groups of 2 bits lose small numbers. So an id is two digits in base
240, each in a channel of its own quantization group, where it is by far the largest value: affine quantization
stores the largest magnitude of a group exactly (as the group's bias). All other values are below 1. With a single
group a head there is one digit, and ids end at 239.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol import RingSpec

BASE = 240
# Digits are stored as 8..247: larger than any other value, and whole numbers up to 256 are exact in bfloat16.
LIFT = 8
LARGEST = np.float32(0.97)
# Of a long cache, noise is drawn once: what every token and head has of it begins somewhere else. Drawing all of it
# takes most of the time until a cache can be timed.
_DRAWN = 1 << 17
# Queries of ids this far apart are the same.
_QUERIES = 509
_QUERY_SIZE = {"float32": 1.0, "float16": 1 / 256, "bfloat16": 1 / 2048}


def marker_channels(dim: int, group_size: int | None) -> tuple[int, ...]:
    """Return the channels that hold the id's digits: the first of two groups, or of the only one."""
    if group_size is None:
        return (0, 1) if dim > 1 else (0,)
    return (0, group_size) if dim >= 2 * group_size else (0,)


def largest_id(dim: int, group_size: int | None) -> int:
    """Return the largest id that `dim` channels can carry."""
    digits = len(marker_channels(dim, group_size))
    return int(BASE**digits) - 1


def read_ids(decoded: NDArray[np.float64], group_size: int | None) -> NDArray[np.int64]:
    """Return the ids of decoded keys or values [..., dim]; -1 where there is none (padding, garbage)."""
    ids = np.zeros(decoded.shape[:-1], np.int64)
    valid = np.ones(decoded.shape[:-1], bool)
    for channel in marker_channels(decoded.shape[-1], group_size):
        # Numbers beyond any digit, NaN among them, are clipped to one that is none.
        value = np.clip(np.nan_to_num(decoded[..., channel], nan=-1.0), -1.0, 2.0 * BASE)
        digit = np.rint(value).astype(np.int64) - LIFT
        valid &= (digit >= 0) & (digit < BASE) & (np.abs(value - digit - LIFT) < 0.25)
        ids = ids * BASE + digit
    return np.where(valid & (ids > 0), ids, -1)


@dataclass(frozen=True)
class Tokens:
    """Keys, values and queries of every id: `keys` [ids, kv_heads, head_dim] and so on, in the case's dtype.

    `queries` [up to 509, query_heads, head_dim] come round again; `asked` has those of any ids.
    """

    keys: NDArray[Any]
    values: NDArray[Any]
    queries: NDArray[Any]

    @property
    def last_id(self) -> int:
        """The largest id that there is data of."""
        return len(self.keys) - 1

    def asked(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the queries [..., query_heads, head_dim] of ids."""
        return np.asarray(self.queries[ids % len(self.queries)])

    def block(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return keys, values and queries [rows, heads, tokens, dim] of `ids` [rows, tokens]; id 0 is a pad."""
        found = (self.keys[ids], self.values[ids], self.asked(ids))
        return tuple(np.ascontiguousarray(one.transpose(0, 2, 1, 3)) for one in found)  # type: ignore[return-value]  # a tuple of exactly three


def make_tokens(spec: RingSpec, dtype: np.dtype[Any], seed: int, last_id: int, group: int | None) -> Tokens:
    """Make the data of ids 0..last_id, marked for quantization groups of up to `group` channels (None: plain only).

    Row 0 is a pad: large noise without an id, so that a visible pad shows.
    """
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> NDArray[Any]:
        data = rng.random(shape, np.float32)
        data *= 2 * LARGEST
        data -= LARGEST
        return data.astype(dtype, copy=False)

    def table(ids: int, heads: int, dim: int, *, marked: bool) -> NDArray[Any]:
        if ids * heads * dim <= _DRAWN:
            data = noise(ids, heads, dim)
        else:
            # As bits, which NumPy copies faster than a dtype of somebody else's.
            drawn = noise(_DRAWN).view(f"u{dtype.itemsize}")
            starts = np.resize(rng.permutation(_DRAWN - dim + 1), (ids, heads))
            data = np.lib.stride_tricks.sliding_window_view(drawn, dim)[starts].view(dtype)
        channels = marker_channels(dim, group)
        if marked:
            rest = np.arange(last_id + 1)
            for channel in channels[::-1]:
                data[:, :, channel] = (rest % BASE + LIFT)[:, None]
                if group is not None:
                    # With 1 bit MLX stores the smallest value exactly and the difference to the largest: a whole
                    # number below keeps the difference whole, too.
                    data[:, :, channel + 1] = -1
                rest = rest // BASE
            data[0] = -5 * np.sign(data[0])
        return data

    keys = table(last_id + 1, spec.kv_heads, spec.head_dim, marked=True)
    values = table(last_id + 1, spec.kv_heads, spec.value_dim, marked=True)
    queries = table(min(last_id + 1, _QUERIES), spec.query_heads, spec.head_dim, marked=False)
    # The digits would drown every other channel of a score. In a quantized group they also blur their neighbors, so
    # there the whole group is left out.
    for channel in marker_channels(spec.head_dim, group):
        queries[..., channel : channel + (group or 1)] = 0
    # Sums over quantized planes may be formed in the storage dtype. Small queries keep the error of the scores, and
    # with it the bound on the output, below the weight of a single token.
    if group is not None:
        queries = queries * np.asarray(_QUERY_SIZE[spec.dtype], dtype)
    return Tokens(keys, values, queries)
