"""Weights and tokens of a recurrent case, made from its seed. Each row has a stream of its own, whatever the batch.

Integer data keeps every sum exact in float32, whatever its order, so that any difference is a mistake:
inputs are small whole numbers; decays are powers of two of which any run multiplies to 1/4..4; keys are one-hot and
convolved by a single tap, so that a delta step moves one column of a state towards a value and never grows it; gates
are 0, 1 or 2, and 1/2 at every eighth token at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.recurrent import Token
from harness.dtypes import numpy_dtype
from harness.subjects.protocol import RecurrentBlock, RecurrentWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from harness.kinds.recurrent.schema import RecurrentGiven

# More tokens would need more bits for the halves than float32 has; a test holds the data to it.
MOST_INTEGER_TOKENS = 64


@dataclass(frozen=True)
class Stream:
    """All tokens of one row: `inputs` [tokens, channels], `decay` and `gate` [tokens, heads]."""

    inputs: NDArray[Any]
    decay: NDArray[np.float32]
    gate: NDArray[np.float32]

    def token(self, index: int) -> Token:
        """Return one token for the baseline."""
        arrays = (self.inputs[index], self.decay[index], self.gate[index])
        return Token(*(np.asarray(array).astype(np.float64) for array in arrays))


def make_weights(given: RecurrentGiven) -> RecurrentWeights:
    """Make the convolution [channels, kernel], the skip and the rates [heads] of the layer."""
    rng = np.random.default_rng([given.seed, 0])
    skip = rng.choice(np.array([-1.0, 1.0, 2.0]), given.heads).astype(np.float32)
    if given.data == "normal":
        conv = rng.uniform(-0.5, 0.5, (given.channels, given.kernel))
        rate = rng.uniform(0.2, 1.0, given.heads).astype(np.float32)
        return RecurrentWeights(_typed(conv, given), skip, rate if given.layer == "ssm" else None)
    conv = rng.choice(np.array([-1.0, 1.0]), (given.channels, given.kernel))
    for channel, tap in _single_taps(given).items():
        conv[channel, np.arange(given.kernel) != tap] = 0
    return RecurrentWeights(_typed(conv, given), skip, None)


def make_stream(given: RecurrentGiven, weights: RecurrentWeights, row: int, tokens: int) -> Stream:
    """Make the tokens of one row."""
    rng = np.random.default_rng([given.seed, row + 1])
    if given.data == "normal":
        inputs = rng.normal(0, 0.5, (tokens, given.channels))
        gate = rng.uniform(0.1, 1.0, (tokens, given.heads)).astype(np.float32)
        decay = rng.uniform(0.5, 1.0, (tokens, given.heads))
        if weights.rate is not None:
            decay = np.exp(-weights.rate.astype(np.float64) * gate.astype(np.float64))
        return Stream(_typed(inputs, given), decay.astype(np.float32), gate)
    inputs = rng.integers(-2, 3, (tokens, given.channels)).astype(np.float64)
    if given.layer == "gated-delta":
        keys = given.heads * given.key_dim
        inputs[:, keys : 2 * keys] = _one_hot(rng, tokens, given)
    gates = [0.0, 1.0, 1.0] if given.layer == "gated-delta" else [1.0, 2.0]
    gate = rng.choice(np.array(gates), (tokens, given.heads))
    if given.layer == "gated-delta":
        gate[7::8] = 0.5
    return Stream(_typed(inputs, given), _decays(rng, tokens, given.heads), gate.astype(np.float32))


def make_block(given: RecurrentGiven, columns: Sequence[Sequence[tuple[Stream, int] | None]]) -> RecurrentBlock:
    """Make a chunk of tokens (stream, index) [rows][columns]; None is padding, which holds what the case says."""
    shape = (len(columns), len(columns[0]))
    nan = given.padding == "nan"
    inputs = _typed(np.full((*shape, given.channels), np.nan if nan else 3.0), given)
    decay = np.full((*shape, given.heads), np.nan if nan else 0.5, np.float32)
    gate = np.full((*shape, given.heads), np.nan if nan else 1.0, np.float32)
    for row, own in enumerate(columns):
        for column, place in enumerate(own):
            if place is not None:
                stream, index = place
                inputs[row, column] = stream.inputs[index]
                decay[row, column], gate[row, column] = stream.decay[index], stream.gate[index]
    return RecurrentBlock(inputs, decay, gate)


def _typed(array: NDArray[np.float64], given: RecurrentGiven) -> NDArray[Any]:
    return array.astype(numpy_dtype(given.dtype))


def _single_taps(given: RecurrentGiven) -> dict[int, int]:
    """Return the only tap of those channels that are multiplied with others: by head for keys, by channel else."""
    if given.layer == "ssm":
        values = given.heads * given.value_dim
        return {values + channel: channel % given.kernel for channel in range(2 * given.key_dim)}
    keys = given.heads * given.key_dim
    queries = {channel: channel % given.kernel for channel in range(keys)}
    return queries | {keys + channel: channel // given.key_dim % given.kernel for channel in range(keys)}


def _one_hot(rng: Generator, tokens: int, given: RecurrentGiven) -> NDArray[np.float64]:
    keys = np.zeros((tokens, given.heads, given.key_dim))
    place = rng.integers(0, given.key_dim, (tokens, given.heads, 1))
    np.put_along_axis(keys, place, rng.choice(np.array([-1.0, 1.0]), place.shape), axis=2)
    return keys.reshape(tokens, -1)


def _decays(rng: Generator, tokens: int, heads: int) -> NDArray[np.float32]:
    """Draw a level of -1, 0 or 1 for every token; decays lead from one to the next, so a run multiplies to 1/4..4."""
    levels = rng.integers(-1, 2, (tokens + 1, heads))
    steps: NDArray[np.float64] = np.exp2(levels[1:] - levels[:-1])
    return steps.astype(np.float32)
