"""Attention with one mistake each, named after the case that must catch it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.subjects.protocol import AffineArrays, Attention, PlainArrays, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol.attention import AttentionInput

    Array = NDArray[np.float64]


class Right(Attention):
    """No mistake: float64, rounded to the dtype once. Its steps are what mistakes override."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        queries = given.queries.astype(np.float64)
        keys, values = self.decode(given.keys), self.decode(given.values)
        share = queries.shape[1] // keys.shape[1]
        keys, values = self.spread_heads(keys, share), self.spread_heads(values, share)
        scores = self.scores(queries, keys, given.scale)
        scores = self.masked(scores, given.mask)
        sinks = None if given.sinks is None else given.sinks.astype(np.float64)[np.newaxis, :, np.newaxis, np.newaxis]
        weights = self.softmax(scores, sinks)
        return (weights @ values).astype(given.queries.dtype)

    def decode(self, arrays: PlainArrays | AffineArrays) -> Array:
        if isinstance(arrays, PlainArrays):
            return arrays.data.astype(np.float64)
        return baseline.dequantize(arrays.packed, arrays.scales, arrays.biases, arrays.group_size, arrays.bits)

    def spread_heads(self, array: Array, share: int) -> Array:
        return np.repeat(array, share, axis=1)

    def scores(self, queries: Array, keys: Array, scale: float) -> Array:
        return scale * (queries @ keys.swapaxes(-1, -2))

    def masked(self, scores: Array, mask: Any) -> Array:
        if mask is None:
            return scores
        if isinstance(mask, str):
            queries, columns = scores.shape[-2:]
            mask = self.causal(queries, columns)
        return self.hide(scores, mask) if mask.dtype == np.bool_ else self.add(scores, mask)

    def causal(self, queries: int, columns: int) -> NDArray[np.bool_]:
        return np.arange(columns) <= np.arange(columns - queries, columns)[:, np.newaxis]

    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return np.where(mask, scores, -np.inf)

    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return scores + mask.astype(np.float64)

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        top = scores.max(axis=-1, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks)
        top = np.where(np.isfinite(top), top, 0.0)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks - top)
        return weights / np.where(total > 0, total, 1.0)


class ScaledTwice(Right):
    def scores(self, queries: Array, keys: Array, scale: float) -> Array:
        return super().scores(queries, keys, scale**2)


class ScaleOfTheHeadDim(Right):
    def scores(self, queries: Array, keys: Array, scale: float) -> Array:
        return super().scores(queries, keys, keys.shape[-1] ** -0.5 + 0 * scale)


class ScaleOfThePaddedHeadDim(Right):
    """Pads the head dim to a multiple of 32 and scales by that."""

    def scores(self, queries: Array, keys: Array, scale: float) -> Array:
        wide = -(-keys.shape[-1] // 32) * 32
        return super().scores(queries, keys, scale if keys.shape[-1] == wide else wide**-0.5)


class TiledHeads(Right):
    def spread_heads(self, array: Array, share: int) -> Array:
        return np.tile(array, (1, share, 1, 1))


class FirstHeadForAll(Right):
    def spread_heads(self, array: Array, share: int) -> Array:
        return np.broadcast_to(array[:, :1], (array.shape[0], array.shape[1] * share, *array.shape[2:]))


class HeadsFoldedIntoQueries(Right):
    """Folds the heads of a group behind the queries, and reads them back as if they stood in front."""

    def scores(self, queries: Array, keys: Array, scale: float) -> Array:
        return super().scores(self.fold(queries), keys, scale)

    def fold(self, queries: Array) -> Array:
        rows, heads, length, width = queries.shape
        if heads % 2:
            return queries
        return queries.reshape(rows, heads // 2, 2, length, width).swapaxes(2, 3).reshape(queries.shape)


class CausalFromTheFirstKey(Right):
    def causal(self, queries: int, columns: int) -> NDArray[np.bool_]:
        return np.arange(columns) <= np.arange(queries)[:, np.newaxis]


class CausalSeesTheNextKey(Right):
    def causal(self, queries: int, columns: int) -> NDArray[np.bool_]:
        return np.arange(columns) <= np.arange(columns - queries, columns)[:, np.newaxis] + 1


class CausalHidesItsOwnKey(Right):
    def causal(self, queries: int, columns: int) -> NDArray[np.bool_]:
        sees = np.arange(columns) < np.arange(columns - queries, columns)[:, np.newaxis]
        sees[:, 0] = True
        return sees


class RangesEndOneLate(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, mask | np.pad(mask, [(0, 0)] * 3 + [(1, 0)])[..., :-1])


class RangesStartOneEarly(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, mask | np.pad(mask, [(0, 0)] * 3 + [(0, 1)])[..., 1:])


class RangesEndOneEarly(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, mask & np.pad(mask, [(0, 0)] * 3 + [(0, 1)])[..., 1:])


class WindowWithoutItsOldest(Right):
    """Takes the oldest key off the window of every query that doesn't see the first column."""

    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        oldest = mask & (np.cumsum(mask, axis=-1) == 1)
        oldest &= ~mask[..., :1]
        return super().hide(scores, mask & ~oldest)


class FirstMaskForAllRows(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, mask[:1])


class FirstMaskForAllQueries(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, mask[:, :, :1])


class MaskIgnored(Right):
    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return super().hide(scores, np.ones_like(mask))


class HiddenHalfWay(Right):
    """Hides by taking 10 off a score."""

    def hide(self, scores: Array, mask: NDArray[np.bool_]) -> Array:
        return np.where(mask, scores, scores - 10)


class AdditiveMaskIgnored(Right):
    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return super().add(scores, np.zeros_like(mask))


class AdditiveMaskAsBoolean(Right):
    """Reads 0 as hidden."""

    def add(self, scores: Array, mask: NDArray[Any]) -> Array:
        return self.hide(scores, mask != 0)


class NanWhereBlind(Right):
    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        with np.errstate(invalid="ignore"):
            if sinks is not None:
                return super().softmax(scores, sinks)
            weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            return weights


class SinksIgnored(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        return super().attend(replace(given, sinks=None))


class SinksBringAValue(Right):
    """Takes the sink for a logit of the first key."""

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        weights = super().softmax(scores, sinks)
        if sinks is None:
            return weights
        weights[..., :1] += 1 - weights.sum(axis=-1, keepdims=True)
        return weights


class SinksNotShifted(Right):
    """Adds exp(sink), where the scores have had their largest taken off."""

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        if sinks is None:
            return super().softmax(scores, None)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        answer: Array = weights / (weights.sum(axis=-1, keepdims=True) + np.exp(sinks))
        return answer


class SinksNotInTheMaximum(Right):
    """Takes off the largest score, whatever the sink, in float32, and divides by what that leaves."""

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        if sinks is None:
            return super().softmax(scores, None)
        with np.errstate(over="ignore", invalid="ignore"):
            top = scores.max(axis=-1, keepdims=True)
            weights = np.exp((scores - top).astype(np.float32))
            total = weights.sum(axis=-1, keepdims=True)
            sink = np.exp((sinks - top).astype(np.float32))
            # As one normalizes and then corrects for the sink: (w / t) * (t / (t + s)).
            share = 1 - sink / (total + sink)
            answer: Array = (weights / total * share).astype(np.float64)
            return answer


class SinksScaled(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        sinks = None if given.sinks is None else (given.sinks.astype(np.float64) * given.scale)
        return super().attend(replace(given, sinks=sinks))


class SinksOfOtherHeads(Right):
    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        return super().softmax(scores, None if sinks is None else sinks[:, ::-1])


class LowPrecisionSoftmax(Right):
    """Adds up weights in the dtype of the queries."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        self.dtype = given.queries.dtype
        return super().attend(given)

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        if sinks is not None:
            return super().softmax(scores, sinks)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True)).astype(self.dtype)
        total = np.zeros((*weights.shape[:-1], 1), self.dtype)
        for column in range(weights.shape[-1]):
            total = total + weights[..., column : column + 1]
        answer: Array = weights.astype(np.float64) / total.astype(np.float64)
        return answer


class NoMaximum(Right):
    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        if sinks is not None or not np.isfinite(scores.max(axis=-1)).all():
            return super().softmax(scores, sinks)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp(scores.astype(np.float32))
            answer: Array = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float64)
            return answer


class LowPrecisionSums(Right):
    """Adds up weighted values in the dtype of the queries."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        keys, values = self.decode(given.keys), self.decode(given.values)
        share = given.queries.shape[1] // keys.shape[1]
        queries = given.queries.astype(np.float64)
        scores = self.masked(self.scores(queries, self.spread_heads(keys, share), given.scale), given.mask)
        weights, values = self.softmax(scores, None), self.spread_heads(values, share)
        total = np.zeros((*weights.shape[:-1], values.shape[-1]), given.queries.dtype)
        for column in range(weights.shape[-1]):
            term = weights[..., column : column + 1] * values[:, :, column : column + 1]
            total = total + term.astype(total.dtype)
        return total


class LastKeysLeftOut(Right):
    """Leaves out what is behind the last whole block of 32 keys, once there is one."""

    def masked(self, scores: Array, mask: Any) -> Array:
        scores = super().masked(scores, mask)
        columns = scores.shape[-1]
        if columns > 32 and columns % 32:
            scores[..., columns // 32 * 32 :] = -np.inf
        return scores


class PassesMergedWithoutTheirMaximum(Right):
    """From 1024 keys on: two halves are normalized apart, and their mean is taken."""

    def softmax(self, scores: Array, sinks: Array | None) -> Array:
        if scores.shape[-1] < 1024 or sinks is not None:
            return super().softmax(scores, sinks)
        half = scores.shape[-1] // 2
        parts = [super(PassesMergedWithoutTheirMaximum, self).softmax(s, None) for s in np.split(scores, [half], -1)]
        return np.concatenate(parts, axis=-1) / 2


class LastQueriesLeftOut(Right):
    """Leaves out queries behind the last whole tile of 8, once there is one."""

    def attend(self, given: AttentionInput) -> NDArray[Any]:
        output = super().attend(given)
        length = output.shape[2]
        if length > 8 and length % 8:
            output[:, :, length // 8 * 8 :] = 0
        return output


class FirstGroupForAll(Right):
    def decode(self, arrays: PlainArrays | AffineArrays) -> Array:
        if isinstance(arrays, AffineArrays):
            scales, biases = (np.broadcast_to(p[..., :1], p.shape) for p in (arrays.scales, arrays.biases))
            arrays = replace(arrays, scales=scales, biases=biases)
        return super().decode(arrays)


class BitsTurnedAround(Right):
    """Turns the bits of 3-bit codes around."""

    def decode(self, arrays: PlainArrays | AffineArrays) -> Array:
        if isinstance(arrays, AffineArrays) and arrays.bits == 3:
            codes = baseline.unpack(arrays.packed, 3)
            turned = (codes & 1) << 2 | (codes & 2) | codes >> 2
            arrays = replace(arrays, packed=baseline.pack(turned.astype(np.uint32), 3))
        return super().decode(arrays)


class OutputOfTheHeadDim(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        output, width = super().attend(given), given.queries.shape[-1]
        return np.resize(output, (*output.shape[:-1], width))


class WrongDtype(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        return super().attend(given).astype(np.float64)


class ScalesItsInput(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        output = super().attend(given)
        given.queries[...] = given.queries.astype(np.float64) * given.scale
        return output


class Zeros(Right):
    def attend(self, given: AttentionInput) -> NDArray[Any]:
        return np.zeros_like(super().attend(given))


class Fake(Subject):
    """A subject that offers nothing but `attending`."""

    def __init__(self, attending: Attention) -> None:
        self.attending = attending

    def attention(self) -> Attention:
        return self.attending


# A mistake, the case that must catch it, and the check that shows it there.
MISTAKES: list[tuple[type[Right], str, str]] = [
    (PassesMergedWithoutTheirMaximum, "long-context", "output"),
    (CausalSeesTheNextKey, "block-of-a-prompt", "output"),
    (ScaledTwice, "scale-is-the-one-given", "output"),
    (ScaledTwice, "head-dims-of-real-models", "output"),
    (ScaleOfTheHeadDim, "scale-is-the-one-given", "output"),
    (ScaleOfThePaddedHeadDim, "head-dims-of-real-models", "output"),
    (TiledHeads, "query-heads-share-key-heads", "output"),
    (TiledHeads, "shared-heads-in-blocks", "output"),
    (FirstHeadForAll, "one-token-decodes", "output"),
    (HeadsFoldedIntoQueries, "shared-heads-in-blocks", "output"),
    (CausalFromTheFirstKey, "causal-ends-at-the-last-key", "output"),
    (CausalFromTheFirstKey, "a-prompt-of-every-length", "output"),
    (CausalSeesTheNextKey, "causal-hides-the-next-key", "output"),
    (CausalHidesItsOwnKey, "a-prompt-of-every-length", "output"),
    (RangesEndOneLate, "rows-of-different-lengths", "output"),
    (RangesEndOneLate, "rows-of-one-token", "output"),
    (RangesStartOneEarly, "rows-of-different-lengths", "output"),
    (RangesStartOneEarly, "rows-of-one-token", "output"),
    (RangesEndOneEarly, "rows-of-different-lengths", "output"),
    (RangesStartOneEarly, "a-window-of-any-size", "output"),
    (WindowWithoutItsOldest, "a-window-of-any-size", "output"),
    (FirstMaskForAllRows, "any-mask-hides-what-it-hides", "output"),
    (FirstMaskForAllRows, "sinks-behind-masks", "output"),
    (FirstMaskForAllQueries, "any-mask", "output"),
    (MaskIgnored, "any-mask-hides-what-it-hides", "output"),
    (HiddenHalfWay, "causal-hides-the-next-key", "output"),
    (AdditiveMaskIgnored, "additive-masks", "output"),
    (AdditiveMaskAsBoolean, "additive-masks", "output"),
    (NanWhereBlind, "padding-queries-are-finite", "output"),
    (NanWhereBlind, "blind-queries-are-finite", "output"),
    (SinksIgnored, "sinks-take-part", "output"),
    (SinksIgnored, "a-sink-that-outweighs-all", "output"),
    (SinksBringAValue, "a-sink-of-half-the-weight", "output"),
    (SinksBringAValue, "sinks-take-part", "output"),
    (SinksNotShifted, "sinks-take-part", "output"),
    (SinksNotInTheMaximum, "a-sink-that-outweighs-all", "output"),
    (SinksScaled, "a-sink-of-half-the-weight", "output"),
    (SinksScaled, "sinks-take-part", "output"),
    (SinksOfOtherHeads, "sinks-behind-masks", "output"),
    (LowPrecisionSoftmax, "weights-are-summed-in-float32", "output"),
    (LastKeysLeftOut, "opposite-values-cancel", "output"),
    (LowPrecisionSums, "equal-keys-give-the-mean", "output"),
    (NoMaximum, "scores-of-tens", "output"),
    (LastKeysLeftOut, "one-token-decodes", "output"),
    (PassesMergedWithoutTheirMaximum, "one-token-decodes-over-many-keys", "output"),
    (LastQueriesLeftOut, "a-prompt-of-every-length", "output"),
    (FirstGroupForAll, "quantized-scores-of-many-terms", "output"),
    (FirstGroupForAll, "every-quantized-format", "output"),
    (BitsTurnedAround, "every-quantized-format", "output"),
    (OutputOfTheHeadDim, "keys-and-values-differ-in-width", "shape"),
    (WrongDtype, "one-token-decodes", "shape"),
    (ScalesItsInput, "inputs-stay-as-they-are", "untouched"),
]
