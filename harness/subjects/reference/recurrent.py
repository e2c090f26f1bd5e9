"""Recurrent layers of `impl` behind the protocol of kind `recurrent`.

A round keeps a copy of the cache and the blocks written since; a rollback is `impl.recurrent.rollback` over them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import HandedOut, Recurrent, RecurrentAnswer
from impl.recurrent import RecurrentCache, gated_delta_layer, rollback, run_layer, selective_scan_layer
from impl.saving import load_cache, save_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import RecurrentBlock, RecurrentSpec, TimedCall
    from impl.recurrent import RecurrentLayer

    Chunk = tuple[mx.array, mx.array, mx.array]


def open_recurrent(spec: RecurrentSpec) -> Recurrent:
    """Return an empty cache, and the layer that `spec` describes."""
    weight = to_mlx(spec.weights.conv)
    sizes = (spec.heads, spec.key_dim, spec.value_dim)
    if spec.layer == "gated-delta":
        layer = gated_delta_layer(weight, *sizes)
    else:
        layer = selective_scan_layer(weight, to_mlx(spec.weights.skip), *sizes)
    return ReferenceRecurrent(RecurrentCache(spec.rows), layer)


class ReferenceRecurrent(Recurrent):
    """One cache of `impl`, with its layer."""

    def __init__(self, cache: RecurrentCache, layer: RecurrentLayer) -> None:
        """Wrap a cache."""
        self.cache, self.layer = cache, layer
        self._before: RecurrentCache | None = None
        self._round: list[Chunk] = []
        self._book: list[tuple[str, mx.array, NDArray[np.generic]]] = []

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        """Run the layer over one chunk."""
        chunk = (to_mlx(block.inputs), to_mlx(block.decay), to_mlx(block.gate))
        tokens = block.inputs.shape[1]
        mask, lengths, padding = (
            self.cache.make_mask(tokens),
            self.cache.convolution_lengths(tokens),
            self.cache.padding,
        )
        output = run_layer(self.layer, *chunk, self.cache)
        counts = [tokens] * self.cache.batch_size if padding is None else padding.advance(tokens)
        if self._before is not None:
            self._round.append(chunk)
        given = zip(("inputs", "decays", "gates"), chunk, (block.inputs, block.decay, block.gate), strict=True)
        self._book += [(f"the {name} given to an update", array, then) for name, array, then in given]
        for name, shown in (
            ("a mask", mask),
            ("an output", output),
            ("a convolution state", self.cache.conv_state),
            ("a state", self.cache.state),
        ):
            if shown is not None:
                self._book.append((f"{name} shown earlier", shown, to_numpy(shown)))
        return RecurrentAnswer("all" if mask is None else to_numpy(mask), lengths, counts, to_numpy(output))

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill."""
        self.cache.prepare_prefill(lengths, left, right)

    def finalize(self) -> None:
        """Close it."""
        self.cache.finalize_prefill()

    def begin(self) -> None:
        """Keep a copy."""
        self._before, self._round = self.cache.copy(), []

    def commit(self) -> None:
        """Drop the copy."""
        self._before = None

    def rollback(self, keep: Sequence[int]) -> None:
        """Replay what is kept of the round's blocks."""
        if self._before is not None and self._round:
            inputs, decay, gate = (mx.concatenate(list(parts), axis=1) for parts in zip(*self._round, strict=True))
            rollback(self.layer, self.cache, self._before, (inputs, decay, gate), keep)
        self._before = None

    def trim(self, tokens: int) -> int:
        """Ask the cache, which refuses."""
        return self.cache.trim(tokens)

    def merge(self, others: Sequence[Recurrent]) -> Recurrent:
        """Make one batch."""
        caches = [other.cache for other in others if isinstance(other, ReferenceRecurrent)]
        return ReferenceRecurrent(RecurrentCache.merge(caches), self.layer)

    def extend(self, other: Recurrent) -> None:
        """Add the rows of another batch."""
        assert isinstance(other, ReferenceRecurrent)  # noqa: S101 - the driver opens both
        self.cache.extend(other.cache)

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        self.cache.filter_rows(rows)

    def extract(self, row: int) -> Recurrent:
        """Return one row alone."""
        return ReferenceRecurrent(self.cache.extract_row(row), self.layer)

    def copy(self) -> Recurrent:
        """Return a copy."""
        return ReferenceRecurrent(self.cache.copy(), self.layer)

    def save_load(self) -> Recurrent:
        """Write the cache to a file and read it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cache.safetensors"
            save_cache(path, self.cache)
            return ReferenceRecurrent(load_cache(path, RecurrentCache), self.layer)

    def conv_state(self) -> NDArray[np.generic] | None:
        """Return the inputs that the next convolution begins with."""
        return None if self.cache.conv_state is None else to_numpy(self.cache.conv_state)

    def state(self) -> NDArray[np.generic] | None:
        """Return the states."""
        return None if self.cache.state is None else to_numpy(self.cache.state)

    def offsets(self) -> list[int]:
        """Return the position of every row."""
        return list(self.cache.offsets)

    def timed(self, operation: str, blocks: Sequence[RecurrentBlock]) -> TimedCall:
        """Return what runs the layer over the next block, on arrays that are on the device beforehand."""
        del operation
        chunks = [(to_mlx(block.inputs), to_mlx(block.decay), to_mlx(block.gate)) for block in blocks]
        mx.eval(chunks)

        def update(number: int) -> tuple[RecurrentAnswer, mx.array | None, mx.array | None]:
            output: Any = run_layer(self.layer, *chunks[number], self.cache)
            return RecurrentAnswer(output=output), self.cache.conv_state, self.cache.state

        return update

    def handed_out(self) -> list[HandedOut]:
        """Return the book."""
        return [HandedOut(label, then, to_numpy(array)) for label, array, then in self._book]
