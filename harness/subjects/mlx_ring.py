"""A ring whose cache speaks mlx-lm's way: `make_mask`, `update_and_fetch`, `trim`, `offset`.

Thin on purpose: it converts arrays, calls the cache's own methods without asking first whether it may, and keeps
book of every array that crosses the border.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import AffineArrays, Answer, Arrays, HandedOut, PlainArrays, Ring, RowsApart, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import Block, RingSpec, TimedCall


class Cache(Protocol):
    """The part of mlx-lm's cache interface that is used here."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Take a block, return everything attention reads: arrays, or (packed, scales, biases) triples."""

    def trim(self, n: int) -> int:
        """Forget n tokens, return how many were forgotten."""


@dataclass(frozen=True)
class Apart:
    """Keys or values of rows that are not all stored alike: each part holds the next rows."""

    parts: tuple[Any, ...]


class MlxRing(Ring):
    """One cache. Subclasses, or the two functions given here, say how a mask is made and attention computed.

    `make_mask(cache, tokens)` is asked before each update. `attend(queries, keys, values, scale, mask)` gets what the
    cache and `make_mask` returned.
    """

    def __init__(
        self,
        cache: Any,
        spec: RingSpec,
        make_mask: Callable[[Any, int], Any],
        attend: Callable[[mx.array, Any, Any, float, Any], mx.array] | None,
    ) -> None:
        """Wrap an empty cache."""
        self.cache, self.spec = cache, spec
        self._make_mask, self._attend = make_mask, attend
        self._book: list[tuple[str, mx.array, NDArray[np.generic]]] = []
        self._remarks: list[str] = []
        self._updates = 0

    def append(
        self, keys: NDArray[np.generic], values: NDArray[np.generic], queries: NDArray[np.generic] | None
    ) -> Answer:
        """Make the mask, update, attend; everything evaluated."""
        k, v = to_mlx(keys), to_mlx(values)
        self._updates += 1
        number = self._updates
        mask = self.mask(keys.shape[2])
        got_k, got_v = self.fetch(k, v)
        output = None
        if self._attend is not None and queries is not None:
            output = to_numpy(self._attend(to_mlx(queries), got_k, got_v, self.spec.head_dim**-0.5, mask))
        answer = Answer(
            self.arrays(got_k), self.arrays(got_v), to_numpy(mask) if isinstance(mask, mx.array) else mask, output
        )
        self._book += [
            (f"the keys given to update {number}", k, keys),
            (f"the values given to update {number}", v, values),
        ]
        for label, got, seen in (("keys", got_k, answer.keys), ("values", got_v, answer.values)):
            for array, then in zip(flat(got), _parts(seen), strict=True):
                self._book.append((f"the {label} returned by update {number}", array, then))
        return answer

    def mask(self, tokens: int) -> Any:
        """Return the cache's mask for the next `tokens` tokens."""
        return self._make_mask(self.cache, tokens)

    def fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Update the cache, and return what attention reads."""
        fetched: tuple[Any, Any] = self.cache.update_and_fetch(keys, values)
        return fetched

    def trim(self, tokens: int) -> int:
        """Call the cache's own trim; a cache that said it can't is called all the same, and the remark kept."""
        asked = self.cache.is_trimmable() if hasattr(self.cache, "is_trimmable") else True
        removed = int(self.cache.trim(tokens))
        if not asked and removed:
            self._remarks.append(f"is_trimmable() said no, and trim({tokens}) returned {removed} all the same")
        return removed

    def remarks(self) -> list[str]:
        """Return remarks on trims."""
        return self._remarks

    def offsets(self) -> list[int] | None:
        """Return the cache's offset, one a row."""
        offset = getattr(self.cache, "offset", None)
        if offset is None:
            return None
        if isinstance(offset, mx.array):
            return [int(value) for value in offset.reshape(-1).tolist()]  # type: ignore[union-attr, arg-type]  # a list
        return [int(offset)] * self.spec.rows

    def handed_out(self) -> list[HandedOut]:
        """Return the book."""
        return [HandedOut(label, then, to_numpy(array)) for label, array, then in self._book]

    def arrays(self, got: Any) -> Arrays:
        """Turn what the cache returned into NumPy arrays."""
        if isinstance(got, Apart):
            return RowsApart(tuple(self._alike(part) for part in got.parts))
        return self._alike(got)

    def _alike(self, got: Any, convert: Callable[[mx.array], Any] = to_numpy) -> PlainArrays | AffineArrays:
        found = flat(got)
        if len(found) == 1:
            return PlainArrays(convert(found[0]))
        # Three bare arrays do not tell their format; then it is what the case asked for.
        storage = got if hasattr(got, "bits") else self.spec.storage
        if len(found) != 3 or storage is None:
            raise Unsupported(f"{len(found)} arrays where keys or values were expected")
        packed, scales, biases = (convert(array) for array in found)
        return AffineArrays(packed, scales, biases, storage.group_size, storage.bits)

    def timed(self, operation: str, blocks: Sequence[Block]) -> TimedCall:
        """Return the operation on blocks that are on the device already."""
        inputs = [tuple(to_mlx(array) for array in (block.keys, block.values, block.queries)) for block in blocks]
        mx.eval(inputs)
        scale = self.spec.head_dim**-0.5
        if operation == "attention":
            if self._attend is None:
                raise Unsupported("attention")
            mask = self.mask(inputs[0][0].shape[2])
            got_k, got_v = self.fetch(*inputs[0][:2])
            mx.eval(flat(got_k), flat(got_v))
            attend = self._attend
            keys, values = self._lazy(got_k), self._lazy(got_v)

            def ask(number: int) -> Answer:
                output: Any = attend(inputs[number % len(inputs)][2], got_k, got_v, scale, mask)
                return Answer(keys, values, mask, output)

            return ask

        def write(number: int) -> Answer:
            k, v, _ = inputs[number % len(inputs)]
            made = self.mask(k.shape[2])
            shown_k, shown_v = self.fetch(k, v)
            return Answer(self._lazy(shown_k), self._lazy(shown_v), made, None)

        return write

    def _lazy(self, got: Any) -> Arrays:
        """Put what the cache returned into the arrays of the protocol, as it is."""
        if isinstance(got, Apart):
            return RowsApart(tuple(self._alike(part, lambda array: array) for part in got.parts))
        return self._alike(got, lambda array: array)


def flat(got: Any) -> list[mx.array]:
    """Return the arrays of keys or values: one, or packed, scales and biases."""
    if isinstance(got, mx.array):
        return [got]
    if isinstance(got, Apart):
        return [array for part in got.parts for array in flat(part)]
    if hasattr(got, "packed"):
        return [got.packed, got.scales, got.biases]
    return list(got)


def _parts(arrays: Arrays) -> tuple[NDArray[np.generic], ...]:
    if isinstance(arrays, RowsApart):
        return tuple(array for part in arrays.parts for array in _parts(part))
    if isinstance(arrays, PlainArrays):
        return (arrays.data,)
    return (arrays.packed, arrays.scales, arrays.biases)
