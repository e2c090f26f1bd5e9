"""A naive batch of caches in NumPy that is right in every step of kind ring.

It keeps every token of every row for good and hides by mask, so it never has to refuse what a ring can't do.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.baseline import affine as naive_affine
from harness.dtypes import numpy_dtype
from harness.subjects.protocol import (
    AffineArrays,
    AffineStorage,
    Answer,
    HandedOut,
    PlainArrays,
    Refused,
    Ring,
    RingSpec,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Array = Any
NAMES = ("keys", "values")


@dataclass
class NaiveRow:
    """Tokens of one request: planes [kv_heads, tokens, ...] of keys and values; `first` may be shown, none before."""

    planes: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    length: int = 0
    first: int = 0
    round_length: int = 0

    def add(self, name: str, new: tuple[Array, ...]) -> None:
        """Put tokens behind the others."""
        old = self.planes.get(name)
        joined = new if old is None else tuple(np.concatenate(pair, axis=1) for pair in zip(old, new, strict=True))
        self.planes[name] = joined

    def cut(self, length: int) -> None:
        """Keep the first tokens."""
        self.planes = {name: tuple(part[:, :length] for part in parts) for name, parts in self.planes.items()}
        self.length = length


class NaiveBatch(Ring):
    """Right in everything."""

    def __init__(self, spec: RingSpec, rows: list[NaiveRow] | None = None) -> None:
        self.spec = spec
        self.rows = [NaiveRow() for _ in range(spec.rows)] if rows is None else rows
        self.real: list[list[bool]] | None = None
        self.book: list[tuple[str, Array, Array]] = []

    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        tokens = keys.shape[2]
        real = self.next_real(tokens)
        before = [row.length for row in self.rows]
        blocks = {name: self.encode(block) for name, block in zip(NAMES, (keys, values), strict=True)}
        shown = {name: self.columns(name, blocks[name], max(before)) for name in NAMES}
        mask = np.stack([self.mask(row, real[b], max(before)) for b, row in enumerate(self.rows)])[:, None]
        for b, row in enumerate(self.rows):
            for name in NAMES:
                row.add(name, tuple(part[b][:, real[b]] for part in blocks[name]))
            row.length += int(sum(real[b]))
        k, v = self.arrays(shown["keys"]), self.arrays(shown["values"])
        output = None if queries is None else self.attend(queries, self.decoded(k), self.decoded(v), mask)
        self.book += [("given keys", keys, keys.copy()), ("given values", values, values.copy())]
        return Answer(k, v, mask, output)

    def next_real(self, tokens: int) -> NDArray[np.bool_]:
        """Return which columns of the block are tokens [rows, columns]."""
        if self.real is None:
            return np.ones((len(self.rows), tokens), bool)
        block, self.real = [row[:tokens] for row in self.real], [row[tokens:] for row in self.real]
        return np.array(block)

    def columns(self, name: str, block: tuple[Array, ...], width: int) -> tuple[Array, ...]:
        """Put each row's tokens, behind columns of zeros up to `width`, before its block."""
        rows = []
        for b, row in enumerate(self.rows):
            new = tuple(part[b] for part in block)
            old = row.planes.get(name) or tuple(part[:, :0] for part in new)
            pads = [(0, 0), (width - row.length, 0), (0, 0)]
            rows.append(
                tuple(np.concatenate([np.pad(a, pads), b], axis=1) for a, b in zip(old, new, strict=True)),
            )
        return tuple(np.stack(parts) for parts in zip(*rows, strict=True))

    def mask(self, row: NaiveRow, real: Array, width: int) -> NDArray[np.bool_]:
        """Return what the queries of one row see [queries, columns]; a padding query sees everything."""
        old = np.arange(width) - (width - row.length)
        new = np.where(real, row.length + np.cumsum(real) - 1, -1)
        column = np.concatenate([old, new])[None, :]
        query = new[:, None]
        sees: NDArray[np.bool_] = (column >= 0) & (column <= query) & self.near(row, column, query)
        sees |= ~real[:, None]
        return sees

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        """Say which positions are within the window of which queries."""
        window, sinks = self.spec.window, self.spec.sinks
        if window is None:
            return column >= row.first
        if self.spec.chunked:
            return column >= row.length - window
        kept = (column > query - window + sinks) | (query < window)
        return kept & (column >= row.first) | (column < sinks)

    def encode(self, block: Array) -> tuple[Array, ...]:
        storage = self.spec.storage
        return (block,) if storage is None else naive_affine.encode(block, storage.group_size, storage.bits)

    def arrays(self, planes: tuple[Array, ...]) -> PlainArrays | AffineArrays:
        storage = self.spec.storage
        if storage is None:
            return PlainArrays(planes[0])
        return AffineArrays(planes[0], planes[1], planes[2], storage.group_size, storage.bits)

    def decoded(self, arrays: PlainArrays | AffineArrays) -> NDArray[np.float64]:
        if isinstance(arrays, PlainArrays):
            return arrays.data.astype(np.float64)
        a = arrays
        return naive_affine.dequantize(a.packed, a.scales, a.biases, a.group_size, a.bits)

    def attend(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        heads = [head * self.spec.kv_heads // self.spec.query_heads for head in range(self.spec.query_heads)]
        scores = queries.astype(np.float64) @ keys[:, heads].swapaxes(-1, -2) * self.spec.head_dim**-0.5
        scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ values[:, heads]
        return out.astype(numpy_dtype(self.spec.dtype))

    def trim(self, tokens: int) -> int:
        if tokens > min(row.length for row in self.rows):
            raise Refused("a row has fewer tokens")
        for row in self.rows:
            row.cut(row.length - tokens)
        return tokens

    def begin(self) -> None:
        for row in self.rows:
            row.round_length = row.length

    def commit(self) -> None:
        """Nothing to do."""

    def rollback(self, keep: Sequence[int]) -> None:
        for row, kept in zip(self.rows, keep, strict=True):
            row.cut(row.round_length + kept)

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        self.real = [
            [False] * pad + [True] * (end - pad) + [False] * behind
            for end, pad, behind in zip(lengths, left, right, strict=True)
        ]

    def finalize(self) -> None:
        self.real = None

    def merge(self, others: Sequence[Ring]) -> Ring:
        rows = [row for other in others if isinstance(other, NaiveBatch) for row in other.rows]
        return type(self)(replace(self.spec, rows=len(rows)), rows)

    def extend(self, other: Ring) -> None:
        assert isinstance(other, NaiveBatch)
        self.rows = [*self.rows, *other.rows]

    def filter(self, rows: Sequence[int]) -> None:
        self.rows = [self.rows[row] for row in rows]
        if self.real is not None:
            self.real = [self.real[row] for row in rows]

    def extract(self, row: int, limit: int | None) -> Ring:
        solo = self.rows[row]
        if limit is not None:
            solo.first = max(solo.first, solo.length - limit)
        return type(self)(replace(self.spec, rows=1), [solo])

    def quantize(self, bits: int, group_size: int) -> Ring:
        other = type(self)(replace(self.spec, storage=AffineStorage(bits, group_size)), deepcopy(self.rows))
        other.real = self.real
        for row in other.rows:
            row.planes = {name: other.encode(parts[0]) for name, parts in row.planes.items() if row.length}
        return other

    def copy(self) -> Ring:
        return deepcopy(self)

    def save_load(self) -> Ring:
        return deepcopy(self)

    def offsets(self) -> list[int]:
        return [row.length for row in self.rows]

    def rope_offsets(self) -> list[int] | None:
        return self.offsets()

    def handed_out(self) -> list[HandedOut]:
        return [HandedOut(label, then, now) for label, now, then in self.book]


class NaiveBatches(Subject):
    """The right one."""

    name: ClassVar[str] = "naive-batches"
    capabilities: ClassVar[frozenset[str]] = frozenset({"sinks", "chunked", "save-load"})
    ring_class: ClassVar[type[NaiveBatch]] = NaiveBatch

    def ring(self, spec: RingSpec) -> Ring:
        return self.ring_class(spec)
