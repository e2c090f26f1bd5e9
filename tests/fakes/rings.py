"""A naive cache in NumPy that is right, and the same cache with one mistake each, for the cases of kind ring.

The cache keeps every column for good and hides by mask; a mistake changes one method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.baseline import affine as naive_affine
from harness.dtypes import numpy_dtype
from harness.subjects.protocol import AffineArrays, Answer, HandedOut, PlainArrays, Refused, Ring, RingSpec, Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array = Any


class NaiveRing(Ring):
    """Right in everything."""

    def __init__(self, spec: RingSpec) -> None:
        self.spec = spec
        self.planes: dict[str, tuple[Array, ...]] = {}
        self.length = 0
        self.lost = 0
        self.book: list[tuple[str, Array, Array]] = []

    def encode(self, block: Array) -> tuple[Array, ...]:
        storage = self.spec.storage
        return (block,) if storage is None else naive_affine.encode(block, storage.group_size, storage.bits)

    def join(self, old: tuple[Array, ...], new: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(np.concatenate([a, b], axis=2) for a, b in zip(old, new, strict=True))

    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        before = self.length
        for name, block in (("keys", keys), ("values", values)):
            new = self.encode(block)
            self.planes[name] = self.join(self.planes[name], new) if name in self.planes else new
        self.length += keys.shape[2]
        self.lose(before, keys.shape[2])
        mask = self.mask(before, keys.shape[2])
        k, v = self.arrays("keys"), self.arrays("values")
        output = None if queries is None else self.attend(queries, self.decoded(k), self.decoded(v), mask)
        self.book += [("given keys", keys, keys.copy()), ("given values", values, values.copy())]
        return Answer(k, v, mask, output)

    def lose(self, before: int, tokens: int) -> None:
        """Say what a ring would have evicted: all but window - 1 old tokens and the block."""
        if self.spec.window is not None:
            kept = self.spec.window if tokens == 1 else self.spec.window - 1 + tokens
            self.lost = max(self.lost, self.length - min(kept, before + tokens))

    def mask(self, before: int, tokens: int) -> Array:
        position = np.arange(before, before + tokens)[:, None]
        column = np.arange(before + tokens)[None, :]
        sees = column <= position
        if self.spec.window is not None:
            sees &= column > position - self.spec.window
        return sees[None, None]

    def arrays(self, name: str) -> PlainArrays | AffineArrays:
        storage = self.spec.storage
        planes = [part.copy() for part in self.planes[name]]
        if storage is None:
            return PlainArrays(planes[0])
        return AffineArrays(planes[0], planes[1], planes[2], storage.group_size, storage.bits)

    def decoded(self, arrays: PlainArrays | AffineArrays) -> NDArray[np.float64]:
        if isinstance(arrays, PlainArrays):
            return arrays.data.astype(np.float64)
        a = arrays
        return naive_affine.dequantize(a.packed, a.scales, a.biases, a.group_size, a.bits)

    def head_of(self, query_head: int) -> int:
        return query_head * self.spec.kv_heads // self.spec.query_heads

    def attend(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        heads = [self.head_of(head) for head in range(self.spec.query_heads)]
        scores = queries.astype(np.float64) @ keys[:, heads].swapaxes(-1, -2) * self.spec.head_dim**-0.5
        scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ values[:, heads]
        return out.astype(numpy_dtype(self.spec.dtype))

    def trim(self, tokens: int) -> int:
        window = self.spec.window or 1
        if self.lost and self.length - tokens - self.lost < min(self.length - tokens, window - 1):
            raise Refused("the tokens before are gone")
        self.planes = {
            name: tuple(p[:, :, : self.length - tokens] for p in parts) for name, parts in self.planes.items()
        }
        self.length -= tokens
        return tokens

    def offsets(self) -> list[int]:
        return [self.length]

    def handed_out(self) -> list[HandedOut]:
        return [HandedOut(label, then, now) for label, now, then in self.book]


class Naive(Subject):
    """The right one."""

    name: ClassVar[str] = "naive"
    ring_class: ClassVar[type[NaiveRing]] = NaiveRing

    def ring(self, spec: RingSpec) -> Ring:
        return self.ring_class(spec)


class WindowTooLarge(NaiveRing):
    def mask(self, before: int, tokens: int) -> Array:
        self.spec, spec = _with_window(self.spec, 1), self.spec
        sees = super().mask(before, tokens)
        self.spec = spec
        return sees


class WindowTooSmall(NaiveRing):
    def mask(self, before: int, tokens: int) -> Array:
        self.spec, spec = _with_window(self.spec, -1), self.spec
        sees = super().mask(before, tokens)
        self.spec = spec
        return sees


def _with_window(spec: RingSpec, more: int) -> RingSpec:
    from dataclasses import replace

    return spec if spec.window is None else replace(spec, window=max(1, spec.window + more))


class BlockCutToWindow(NaiveRing):
    """Crops a block to the window before attention: its first queries lose tokens."""

    def mask(self, before: int, tokens: int) -> Array:
        sees = super().mask(before, tokens).copy()
        if self.spec.window is not None and tokens > 1:
            sees[..., : max(0, self.length - self.spec.window)] = False
            sees[..., np.arange(tokens), before + np.arange(tokens)] = True
        return sees


class NotCausal(NaiveRing):
    def mask(self, before: int, tokens: int) -> Array:
        sees = super().mask(before, tokens).copy()
        sees[..., before:] = True
        return sees


class SpareColumnsSeen(NaiveRing):
    """Shows one spare column of zeros until the window is full."""

    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        if isinstance(answer.keys, PlainArrays) and isinstance(answer.values, PlainArrays):
            pad = [(0, 0), (0, 0), (0, 1), (0, 0)]
            mask = np.pad(np.asarray(answer.mask), pad, constant_values=self.spec.window is not None)
            k, v = (PlainArrays(np.pad(a.data, pad)) for a in (answer.keys, answer.values))
            return Answer(k, v, mask, answer.output)
        return answer


class TrimCountersOnly(NaiveRing):
    """Moves the offset, leaves the columns, and puts the next block behind them."""

    def trim(self, tokens: int) -> int:
        self.hidden = getattr(self, "hidden", 0) + tokens
        return tokens

    def offsets(self) -> list[int]:
        return [self.length - getattr(self, "hidden", 0)]


class TrimNeverRefuses(NaiveRing):
    def trim(self, tokens: int) -> int:
        dropped = self.lost
        super_trim = NaiveRing.trim
        self.lost = 0
        super_trim(self, tokens)
        # What a ring has evicted does not come back.
        self.gone = dropped
        return tokens

    def mask(self, before: int, tokens: int) -> Array:
        sees = super().mask(before, tokens).copy()
        sees[..., : getattr(self, "gone", 0)] = False
        return sees


class TrimRefusesAlways(NaiveRing):
    def trim(self, tokens: int) -> int:
        raise Refused(f"no trim of {tokens}")


class RefusesAfterChanging(NaiveRing):
    def trim(self, tokens: int) -> int:
        super().trim(tokens)
        raise Refused("half done")


class ValuesAreKeys(NaiveRing):
    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        return Answer(answer.keys, answer.keys, answer.mask, answer.output)


class RoundedToHalf(NaiveRing):
    def encode(self, block: Array) -> tuple[Array, ...]:
        return super().encode(block.astype(np.float16).astype(block.dtype))


class WidensDtype(NaiveRing):
    def encode(self, block: Array) -> tuple[Array, ...]:
        return super().encode(block.astype(np.float32))


class ScaleLags(NaiveRing):
    """Pairs the codes of a token with the scale of its neighbor once there is history."""

    def join(self, old: tuple[Array, ...], new: tuple[Array, ...]) -> tuple[Array, ...]:
        joined = super().join(old, new)
        return joined if len(joined) == 1 else (joined[0], np.roll(joined[1], 1, axis=2), joined[2])


class QuantizesAgain(NaiveRing):
    """Decodes and quantizes what is stored when a block joins."""

    def join(self, old: tuple[Array, ...], new: tuple[Array, ...]) -> tuple[Array, ...]:
        storage = self.spec.storage
        if storage is None:
            return super().join(old, new)
        values = naive_affine.dequantize(old[0], old[1], old[2], storage.group_size, storage.bits).astype(new[1].dtype)
        return super().join(self.encode(values), new)


class HeadsInterleaved(NaiveRing):
    def head_of(self, query_head: int) -> int:
        return query_head % self.spec.kv_heads


class ForgetsScale(NaiveRing):
    def attend(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        return super().attend(queries * np.float32(1.5), keys, values, mask)


class OffsetStops(NaiveRing):
    def offsets(self) -> list[int]:
        return [min(self.length, self.spec.window or self.length)]


class WritesIntoInput(NaiveRing):
    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        for label, now, _ in self.book[:-2]:
            if label == "given keys":
                now[...] = 0
        return answer


class SecondHeadStale(NaiveRing):
    """Stores the first head of a decoded token and leaves the second as it was."""

    def encode(self, block: Array) -> tuple[Array, ...]:
        if block.shape[1] > 1 and block.shape[2] == 1 and self.length > 2:
            block = block.copy()
            block[:, 1] = block[:, 0]
        return super().encode(block)


class WrongShape(NaiveRing):
    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        assert isinstance(answer.keys, PlainArrays)
        return Answer(PlainArrays(answer.keys.data[0]), answer.values, answer.mask, answer.output)


class MaskTooNarrow(NaiveRing):
    def mask(self, before: int, tokens: int) -> Array:
        return super().mask(before, tokens)[..., :-1]


class LosesFarToken(NaiveRing):
    """Loses the oldest visible token when a block arrives after a wrap."""

    def mask(self, before: int, tokens: int) -> Array:
        sees = super().mask(before, tokens).copy()
        if self.spec.window is not None and tokens > 1 and before > self.spec.window:
            sees[..., before - self.spec.window + 1] = False
        return sees


# Each mistake, and a case that is there to catch it.
MISTAKES: dict[str, tuple[type[NaiveRing], str]] = {
    "a window one too large": (WindowTooLarge, "decode-past-the-window"),
    "a window one too small": (WindowTooSmall, "decode-past-the-window"),
    "a block cut to the window": (BlockCutToWindow, "first-block-longer-than-the-window"),
    "queries of a block see later tokens": (NotCausal, "full-cache-shows-everything"),
    "spare columns are seen": (SpareColumnsSeen, "decode-before-the-window-fills"),
    "trim moves counters only": (TrimCountersOnly, "trim-before-the-window-fills"),
    "trim never refuses": (TrimNeverRefuses, "trim-past-what-is-held"),
    "trim never refuses, after a block": (TrimNeverRefuses, "trim-more-than-the-last-block"),
    "a refusal that changed something": (RefusesAfterChanging, "trim-a-full-cache"),
    "values are keys": (ValuesAreKeys, "full-cache-shows-everything"),
    "rounded to half": (RoundedToHalf, "storage-keeps-every-dtype"),
    "a wider dtype": (WidensDtype, "storage-keeps-every-dtype"),
    "scales one token behind": (ScaleLags, "quantized-ring-takes-blocks"),
    "decoded and quantized again": (QuantizesAgain, "quantized-tokens-are-stored-alone"),
    "query heads interleaved": (HeadsInterleaved, "grouped-query-heads"),
    "another attention scale": (ForgetsScale, "head-dims-of-real-models"),
    "an offset that stops at the window": (OffsetStops, "long-history"),
    "writes into its input": (WritesIntoInput, "arrays-handed-out-do-not-change"),
    "a stale second head": (SecondHeadStale, "decode-past-the-window"),
    "a missing axis": (WrongShape, "decode-past-the-window"),
    "a mask one column short": (MaskTooNarrow, "full-cache-shows-everything"),
    "the oldest token lost by a block": (LosesFarToken, "block-on-a-wrapped-ring"),
}
