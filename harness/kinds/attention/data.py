"""The values of a case: queries, keys, values, mask and sinks. The same seed makes the same values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.attention_bound import Attended
from harness.baseline import affine as baseline
from harness.dtypes import numpy_dtype
from harness.kinds.affine.layouts import repeated
from harness.kinds.attention.masks import make_bias, make_mask, spoken
from harness.subjects.protocol import AffineArrays, PlainArrays
from harness.subjects.protocol.attention import AttentionInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.attention.schema import AttentionGiven

SPARSE_CHANNELS = 4
# Score of a key that shares one of its two channels with the query; the key that is meant has twice as much.
PICK, PICK_HIDDEN = 64.0, 8.0
LARGE_QUERIES = 32.0
LARGE_SINK = 100.0
_LOUD = 1000.0
_LOWEST = {
    "float32": -(2 - 2.0**-23) * 2.0**127,
    "float16": -65504.0,
    "bfloat16": -(2 - 2.0**-7) * 2.0**127,
}


@dataclass(frozen=True)
class Inputs:
    """`shown` is what the subject gets; `targets` [rows, heads, queries] are the keys of `pick`.

    `sees` and `bias`, which is added to the scores, are [rows, heads, queries, keys].
    """

    shown: AttentionInput
    sees: NDArray[np.bool_]
    bias: NDArray[np.float64] | None
    targets: NDArray[np.intp] | None
    _stored: tuple[Stored, Stored]

    def attended(self, row: int, kv_head: int) -> Attended:
        """Return the keys and values of one head in float64, decoded, with the magnitudes of their terms."""
        keys, values = self._stored
        at = row, kv_head
        return Attended(keys.numbers[at], keys.terms[at], values.numbers[at], values.terms[at])


@dataclass(frozen=True)
class Stored:
    """Keys or values as they are handed over, the numbers that they stand for, and the terms of these."""

    arrays: PlainArrays | AffineArrays
    numbers: NDArray[np.float64]
    terms: NDArray[np.float64]


def make_inputs(given: AttentionGiven) -> Inputs:
    """Make all arrays of a case."""
    rng = np.random.default_rng(given.seed)
    mask = make_mask(rng, given)
    bias = make_bias(rng, given)
    everywhere = (given.rows, given.heads, given.queries, given.keys)
    sees = np.broadcast_to(mask, everywhere)
    targets = _targets(rng, given, sees) if given.data in ("pick", "pick-hidden") else None
    shared = given.views == "stride-0"
    if shared and targets is not None:
        targets = repeated(targets)
    queries, keys = _queries_and_keys(rng, given, targets)
    values = _values(rng, given)
    if shared:
        queries, keys, values = repeated(queries), repeated(keys), repeated(values)
    if given.unseen == "loud":
        values = np.where(np.any(sees, axis=(1, 2))[:, np.newaxis, :, np.newaxis], values, _LOUD)
    stored = _store(keys, given), _store(values, given)
    dtype = numpy_dtype(given.dtype)
    shown = AttentionInput(
        queries.astype(dtype),
        stored[0].arrays,
        stored[1].arrays,
        given.factor,
        spoken(given, mask, bias),
        _sinks(rng, given),
    )
    return Inputs(shown, sees, None if bias is None else np.broadcast_to(bias, everywhere), targets, stored)


def pick_side(given: AttentionGiven) -> int:
    """Return p: `pick` tells p * p keys apart, by one of the first p channels and one of the next p."""
    return given.head_dim // 2


def _targets(rng: np.random.Generator, given: AttentionGiven, sees: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Choose a key for every query: by turns the first and the last that it sees, and any; or one next to those."""
    targets = np.zeros((given.rows, given.heads, given.queries), np.intp)
    for row, head, query in np.ndindex(targets.shape):
        seen = sees[row, head, query]
        if given.data == "pick-hidden":
            padded = np.pad(seen, 1)
            near = np.flatnonzero(~seen & (padded[:-2] | padded[2:]))
            choice = near if near.size else np.flatnonzero(~seen)
        else:
            choice = np.flatnonzero(seen)
        if not choice.size:
            choice = np.arange(given.keys)
        turn = (row + head + query) % 3
        targets[row, head, query] = choice[0] if turn == 1 else choice[-1] if turn == 0 else rng.choice(choice)
    return targets


def _queries_and_keys(
    rng: np.random.Generator, given: AttentionGiven, targets: NDArray[np.intp] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    queries, keys = rng.standard_normal(given.query_shape()), rng.standard_normal(given.key_shape())
    if targets is not None:
        keys = _coordinates(given)
        size = (PICK if given.data == "pick" else PICK_HIDDEN) / given.factor
        own = np.repeat(keys, given.share, axis=1)
        return size * np.take_along_axis(own, targets[..., np.newaxis], axis=2), keys
    if given.data == "equal":
        keys = np.broadcast_to(keys[:, :, :1], keys.shape)
    elif given.data == "large":
        queries *= LARGE_QUERIES
    elif given.data == "zeros":
        queries *= 0
    elif given.data == "sparse":
        order = rng.permuted(np.broadcast_to(np.arange(given.head_dim), queries.shape), axis=-1)
        queries = np.where(order < SPARSE_CHANNELS, queries * (given.head_dim / SPARSE_CHANNELS) ** 0.5, 0.0)
    return queries, keys


def _coordinates(given: AttentionGiven) -> NDArray[np.float64]:
    """Return keys with a 1 in two channels, a pair of its own for every key; each head numbers its keys otherwise.

    Scores of a sum of two terms are so exact, in every dtype and with codes of any width, that softmax picks one key.
    """
    side = pick_side(given)
    row, head, column = np.ogrid[: given.rows, : given.kv_heads, : given.keys]
    number = (column + (0 if given.views == "stride-0" else 3 * head + 7 * row)) % given.keys
    keys = np.zeros(given.key_shape())
    for channel in (number % side, side + number // side):
        np.put_along_axis(keys, channel[..., np.newaxis], 1.0, axis=-1)
    return keys


def _values(rng: np.random.Generator, given: AttentionGiven) -> NDArray[np.float64]:
    values = rng.standard_normal(given.value_shape())
    if given.values == "offset":
        return values + _LOUD
    if given.values == "cancel":
        # In float32 and narrower +x and -x are stored alike.
        values = _LOUD * (1 + np.abs(values))
        values[:, :, given.keys // 2 :] = -values[:, :, : given.keys // 2]
    return values


def _sinks(rng: np.random.Generator, given: AttentionGiven) -> NDArray[Any] | None:
    if given.sinks == "none":
        return None
    logits = {
        "zeros": 0.0,
        "normal": rng.standard_normal(given.heads),
        "half": np.log(given.keys),
        "large": LARGE_SINK,
        "lowest": _LOWEST[given.dtype],
    }
    return np.broadcast_to(np.asarray(logits[given.sinks]), (given.heads,)).astype(numpy_dtype(given.dtype))


def _store(numbers: NDArray[np.float64], given: AttentionGiven) -> Stored:
    stored = numbers.astype(numpy_dtype(given.dtype))
    storage = given.affine()
    if storage is None:
        plain = stored.astype(np.float64)
        return Stored(PlainArrays(stored), plain, np.abs(plain))
    planes = AffineArrays(*baseline.encode(stored, storage.group_size, storage.bits), storage.group_size, storage.bits)
    decoded = baseline.dequantize(planes.packed, planes.scales, planes.biases, planes.group_size, planes.bits)
    biases = np.repeat(planes.biases.astype(np.float64), planes.group_size, axis=-1)
    return Stored(planes, decoded, np.abs(decoded - biases) + np.abs(biases))
