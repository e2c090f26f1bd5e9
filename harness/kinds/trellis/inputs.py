"""The arrays of a trellis case: symbols, codes, scales and vectors, made from the seed. They can't be written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import trellis as baseline
from harness.baseline.trellis_search import codebook_rms
from harness.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.trellis.schema import TrellisGiven
    from harness.subjects.protocol import TrellisSpec


@dataclass(frozen=True)
class Inputs:
    """What a subject is given (`spec`, `codes`, `scales` [rows], `x` [batch, rows]), and the `blocks` behind it.

    `blocks` are the words [rows, blocks, words] before they are laid out: the baseline reads these.
    """

    spec: TrellisSpec
    blocks: NDArray[np.uint32]
    codes: NDArray[np.uint32]
    scales: NDArray[np.float32]
    x: NDArray[Any]


def make_inputs(given: TrellisGiven) -> Inputs:
    """Make the arrays that `given` asks for; each has a random stream of its own, so that keys don't shift others."""
    blocks = baseline.pack(_symbols(given), given.bits)
    codes = baseline.lay_out(blocks, interleave=given.interleave)
    inputs = Inputs(given.spec(), blocks, codes, _scales(given), _vectors(given))
    for array in (inputs.blocks, inputs.codes, inputs.scales, inputs.x):
        array.flags.writeable = False
    return inputs


def normal_weights(given: TrellisGiven) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a matrix [rows, columns] of normal numbers times the scale of their row, and scales to encode it with.

    Those are the scale of the row times the gain, divided by the root mean square of the codebook.
    """
    scales = _scales(given)
    numbers = np.random.default_rng([given.seed, 3]).standard_normal((given.rows, given.columns), np.float32)
    wide = scales.astype(np.float64) * (given.gain_percent / 100 / codebook_rms(given.codebook, given.state_bits))
    return numbers * scales[:, np.newaxis], wide.astype(np.float32)


def any_codes(given: TrellisGiven) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return codes and scales for a format that can't be: words enough for blocks filled up."""
    words = -(-given.columns // given.block) * -(-given.block * given.bits // baseline.WORD_BITS) * given.rows
    codes = np.random.default_rng([given.seed, 0]).integers(0, 1 << 32, words, np.uint32)
    return codes, _scales(given)


def golden_symbols(block: int, bits: int) -> NDArray[np.uint32]:
    """Return the symbols [block] that published values are given for: no random numbers, so any language can."""
    column = np.arange(block, dtype=np.uint32)
    size = np.uint32(1 << bits)
    return ((5 * column + 1) % size + column // 7) % size


def _symbols(given: TrellisGiven) -> NDArray[np.uint32]:
    shape = (given.rows, given.columns // given.block, given.block)
    if given.symbols == "golden":
        return np.broadcast_to(golden_symbols(given.block, given.bits), shape)
    return np.random.default_rng([given.seed, 0]).integers(0, 1 << given.bits, shape, np.uint32)


def _scales(given: TrellisGiven) -> NDArray[np.float32]:
    if given.scales == "ones":
        return np.ones(given.rows, np.float32)
    rng = np.random.default_rng([given.seed, 1])
    magnitudes = rng.uniform(0.5, 2.0, given.rows)
    # Signs alternate: random ones would be all positive in some small case.
    signs = np.where(np.arange(given.rows) % 2, 1.0, -1.0) if given.scales == "signed" else 1.0
    return (magnitudes * signs).astype(np.float32)


def _vectors(given: TrellisGiven) -> NDArray[Any]:
    if given.x == "one-hot":
        return np.eye(given.rows)[np.arange(given.batch) % given.rows].astype(numpy_dtype(given.dtype))
    rng = np.random.default_rng([given.seed, 2])
    return rng.standard_normal((given.batch, given.rows)).astype(numpy_dtype(given.dtype))
