"""Rotary positions, and attention over views and masks for each head, with one mistake each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.attention import rotate
from harness.dtypes import numpy_dtype
from harness.kinds.affine.matrices import mapped
from harness.subjects.protocol import AffineArrays
from tests.fakes.attention import Right as Attending
from tests.fakes.quantizers import in_memory_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol.attention import AttentionInput, RopeInput

    Array = NDArray[np.float64]


class Right(Attending):
    """No mistake: float64, rounded to the dtype once. Its steps are what mistakes override."""

    def rope(self, given: RopeInput) -> NDArray[Any]:
        x = given.x.astype(np.float64)
        rows, _, tokens, _ = x.shape
        offsets = np.broadcast_to(np.asarray(given.offsets, np.float64), (rows,))
        turned = x.copy()
        for row in range(rows):
            positions = self.positions(offsets, row, tokens, given.scale)
            for head in range(x.shape[1]):
                turned[row, head] = self.turn(x[row, head], positions, given)
        answer: NDArray[Any] = turned.astype(given.x.dtype)
        return answer

    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        positions: Array = scale * (offsets[row] + np.arange(tokens))
        return positions

    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        return rotate(x, positions, given.dims, given.base, traditional=given.traditional)


class Zeros(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        return np.zeros_like(super().attend(given))

    def rope(self, given: RopeInput) -> NDArray[Any]:
        return np.zeros_like(given.x)


class FirstOffsetForAll(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return super().positions(offsets, 0 * row, tokens, scale)


class OneTokenStaysAtItsOffset(Right):
    """For several tokens, all are at the position of the first."""

    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return np.full(tokens, scale * offsets[row])


class OffsetsForgotten(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return super().positions(0 * offsets, row, tokens, scale)


class NegativeOffsetsCutOff(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return super().positions(np.maximum(offsets, 0), row, tokens, scale)


class PositionsOffByOne(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return super().positions(offsets + 1, row, tokens, scale)


class ScaleOfTheOffsetOnly(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        positions: Array = scale * offsets[row] + np.arange(tokens)
        return positions


class ScaleDivides(Right):
    def positions(self, offsets: Array, row: int, tokens: int, scale: float) -> Array:
        return super().positions(offsets, row, tokens, 1 / scale)


class PositionsInTheDtype(Right):
    """Rounds positions to 16 bits, as x is."""

    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        narrow = numpy_dtype("bfloat16") if given.x.dtype.itemsize == 2 else np.dtype(np.float32)
        return super().turn(x, positions.astype(narrow).astype(np.float64), given)


class OtherPairs(Right):
    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        return super().turn(x, positions, replace(given, traditional=not given.traditional))


class TurnsBackwards(Right):
    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        return super().turn(x, -positions, given)


class BaseOfTenThousand(Right):
    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        return super().turn(x, positions, replace(given, base=10000.0))


class AllChannelsTurn(Right):
    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        return super().turn(x, positions, replace(given, dims=x.shape[-1]))


class FrequenciesOfTheWholeHead(Right):
    """Frequencies go by head_dim, whatever part of it turns."""

    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        base = given.base ** (given.dims / x.shape[-1])
        return super().turn(x, positions, replace(given, base=base))


class OtherChannelsZero(Right):
    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        turned = super().turn(x, positions, given)
        turned[:, given.dims :] = 0
        return turned


class FrequenciesInNarrowPowers(Right):
    """Forms the frequencies in 16 bits."""

    def turn(self, x: Array, positions: Array, given: RopeInput) -> Array:
        exponent = np.arange(given.dims // 2) / (given.dims // 2)
        powers = (given.base**-exponent).astype(np.float16).astype(np.float64)
        turned, half = x.copy(), given.dims // 2
        for i in range(half):
            first, second = (2 * i, 2 * i + 1) if given.traditional else (i, i + half)
            cos, sin = np.cos(positions * powers[i]), np.sin(positions * powers[i])
            turned[:, first] = x[:, first] * cos - x[:, second] * sin
            turned[:, second] = x[:, first] * sin + x[:, second] * cos
        return turned


class StridesIgnored(Right):
    """Walks through memory instead of a view."""

    def rope(self, given: RopeInput) -> NDArray[Any]:
        return super().rope(replace(given, x=np.nan_to_num(in_memory_order(given.x))))

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        keys = mapped(given.keys, lambda _, array: in_memory_order(array))
        return super().attend(replace(given, keys=keys))


class TurnsInPlace(Right):
    def rope(self, given: RopeInput) -> NDArray[Any]:
        turned = super().rope(given)
        given.x[...] = turned
        return turned


class FirstHeadsMask(Right):
    def masked(self, scores: Array, mask: Any) -> Array:
        return super().masked(scores, mask[:, :1] if isinstance(mask, np.ndarray) else mask)


class MaskHeadsTransposed(Right):
    """Takes the mask's heads by turns of the kv heads, where scores are grouped by them."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        first = given.keys.packed if isinstance(given.keys, AffineArrays) else given.keys.data
        self.kv_heads = first.shape[1]
        return super().attend(given)

    def masked(self, scores: Array, mask: Any) -> Array:
        if isinstance(mask, np.ndarray) and mask.shape[1] > 1:
            mask = mask.reshape(mask.shape[0], -1, self.kv_heads, *mask.shape[2:]).swapaxes(1, 2).reshape(mask.shape)
        return super().masked(scores, mask)


class BiasTakenForSeen(Right):
    """Knows 0 and -inf: any finite number is 0."""

    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return self.hide(scores, np.isfinite(mask))


class BiasTakenForHidden(Right):
    """Knows 0 and -inf: any number but 0 hides, unless all are hidden."""

    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        hidden = np.where(mask == 0, scores, -1e4)
        return np.where(np.isfinite(mask), hidden, -np.inf)


class BiasScaled(Right):
    """Adds the bias before the scale."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        self.factor = given.scale
        return super().attend(given)

    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return super().add(scores, mask.astype(np.float64) * self.factor)


class BiasTwice(Right):
    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return super().add(super().add(scores, mask), mask)


class CausalInWholeTiles(Right):
    """Skips tiles of 32 keys by the first query of a block, once there are more than 8 of them."""

    def causal(self, queries: int, columns: int) -> NDArray[np.bool_]:
        sees = super().causal(queries, columns)
        if queries > 8:
            sees = sees & (np.arange(columns) < -(-(columns - queries + 1) // 32) * 32)
        return sees


class CornerLeftOut(Right):
    """Leaves out the keys of a partial tile for queries of a partial tile, when both have whole ones before."""

    def masked(self, scores: Array, mask: Any) -> Array:
        scores = super().masked(scores, mask).copy()
        queries, columns = scores.shape[-2:]
        if queries > 32 and queries % 32 and columns > 32 and columns % 32:
            scores[..., queries // 32 * 32 :, columns // 32 * 32 :] = -np.inf
        return scores


class LastAffineKeysLeftOut(Right):
    """Reads affine planes by 32 tokens, once there are so many."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        self.affine = isinstance(given.keys, AffineArrays)
        return super().attend(given)

    def masked(self, scores: Array, mask: Any) -> Array:
        scores = super().masked(scores, mask).copy()
        columns = scores.shape[-1]
        if self.affine and columns > 32 and columns % 32:
            scores[..., columns // 32 * 32 :] = -np.inf
        return scores


# A mistake, the case that must catch it, and the check that shows it there.
MISTAKES: list[tuple[type[Attending], str, str]] = [
    (CornerLeftOut, "queries-and-keys-around-tiles", "output"),
    (CausalInWholeTiles, "causal-blocks-around-tiles", "output"),
    (LastAffineKeysLeftOut, "quantized-keys-around-tiles", "output"),
    (StridesIgnored, "views-are-read-by-their-strides", "output"),
    (StridesIgnored, "rows-as-views", "output"),
    (StridesIgnored, "rope-of-views", "rope"),
    (FirstHeadsMask, "every-head-with-a-mask-of-its-own", "output"),
    (MaskHeadsTransposed, "every-head-with-a-mask-of-its-own", "output"),
    (FirstHeadsMask, "a-bias-for-every-head", "output"),
    (MaskHeadsTransposed, "a-bias-for-every-head", "output"),
    (FirstHeadsMask, "finite-biases", "output"),
    (BiasTakenForSeen, "finite-biases", "output"),
    (BiasTakenForHidden, "finite-biases", "output"),
    (BiasScaled, "finite-biases", "output"),
    (BiasTwice, "finite-biases", "output"),
    (FirstOffsetForAll, "rope-from-offsets-of-their-own", "rope"),
    (OneTokenStaysAtItsOffset, "rope-from-offsets-of-their-own", "rope"),
    (OffsetsForgotten, "rope-from-offsets-of-their-own", "rope"),
    (NegativeOffsetsCutOff, "rope-from-offsets-of-their-own", "rope"),
    (PositionsOffByOne, "rope-from-offsets-of-their-own", "rope"),
    (PositionsOffByOne, "rope-far-out", "rope"),
    (TurnsBackwards, "rope-from-offsets-of-their-own", "rope"),
    (OtherPairs, "rope-from-offsets-of-their-own", "rope"),
    (TurnsInPlace, "rope-from-offsets-of-their-own", "untouched"),
    (PositionsInTheDtype, "rope-far-out", "rope"),
    (FrequenciesInNarrowPowers, "rope-far-out", "rope"),
    (AllChannelsTurn, "rope-of-some-channels", "rope"),
    (FrequenciesOfTheWholeHead, "rope-of-some-channels", "rope"),
    (OtherChannelsZero, "rope-of-some-channels", "rope"),
    (ScaleOfTheOffsetOnly, "rope-scale-and-base", "rope"),
    (ScaleDivides, "rope-scale-and-base", "rope"),
    (BaseOfTenThousand, "rope-scale-and-base", "rope"),
]
