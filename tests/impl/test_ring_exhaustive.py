"""Every small rollback and every small padded prefill, compared with rows that never saw the rest."""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from impl.errors import HistoryLostError
from impl.rings.batched import BatchedRotatingCache
from impl.rings.masks import build_batched_rotating_mask
from impl.rings.solo import RotatingKVCache
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Rows:
    """A ring whose keys are token numbers, and the list of tokens of every row."""

    def __init__(self, max_size: int, lengths: Sequence[int]) -> None:
        self.max_size, self.used = max_size, 0
        self.lists = [self.fresh(length) for length in lengths]
        rows = []
        for tokens in self.lists:
            row = RotatingKVCache(max_size)
            for token in tokens:
                row.update_and_fetch(block([[token]]), block([[token]]))
            rows.append(row)
        self.ring = BatchedRotatingCache.merge(rows)

    def fresh(self, count: int) -> list[int]:
        self.used += count
        return list(range(self.used - count + 1, self.used + 1))

    def feed(self, ids: Sequence[Sequence[int]]) -> None:
        mask = np.array(build_batched_rotating_mask(self.ring.position, len(ids[0])))
        keys, _ = self.ring.update_and_fetch(block(ids), block(ids))
        for tokens, new, columns, shown in zip(self.lists, ids, np.array(keys)[:, 0, :, 0], mask[:, 0], strict=True):
            for token, sees in zip(new, shown, strict=True):
                if token:
                    tokens.append(token)
                    assert sorted(columns[sees]) == tokens[-self.max_size :]

    def step(self, count: int) -> None:
        self.feed([self.fresh(count) for _ in self.lists])

    def check(self) -> None:
        position, view = self.ring.position, self.ring.temporal_view()
        columns = [[]] * len(self.lists) if view is None else np.array(view[0])[:, 0, :, 0].astype(int).tolist()
        for row, tokens in enumerate(self.lists):
            held, end = position.stored(row), position.end(row)
            assert min(len(tokens), self.max_size - 1) <= held <= len(tokens)
            assert columns[row][end - held : end] == tokens[len(tokens) - held :]
            assert position.valid_offset(row) == len(tokens)


def block(ids: Sequence[Sequence[int]]) -> mx.array:
    return mx.array(np.array(ids, dtype=np.float32)[:, None, :, None])


def chunkings(width: int) -> Iterator[list[int]]:
    for cuts in product((False, True), repeat=width - 1):
        edges = [0, *(at for at, cut in enumerate(cuts, 1) if cut), width]
        yield [stop - start for start, stop in pairwise(edges)]


@pytest.mark.parametrize("max_size", [1, 2, 3])
def test_every_rollback_of_one_block(max_size: int) -> None:
    for lengths in product((0, max_size, max_size + 2), (1, max_size)):
        for tokens in (1, 2, max_size + 1):
            for keep in product(range(tokens + 1), repeat=2):
                for preserve in (False, True):
                    rows = Rows(max_size, lengths)
                    before = rows.ring.row_offsets
                    starts = [len(tokens) for tokens in rows.lists]
                    rows.step(tokens)
                    rows.ring = rollback_rotating_ring(rows.ring, before, keep, preserve_columns=preserve)
                    for row, (start, kept) in enumerate(zip(starts, keep, strict=True)):
                        del rows.lists[row][start + kept :]
                    rows.check()
                    rows.step(1)
                    rows.step(2)
                    rows.check()


@pytest.mark.parametrize("max_size", [1, 2, 3])
def test_a_rollback_of_single_steps_is_refused_exactly_when_a_token_is_gone(max_size: int) -> None:
    for length, steps in product((0, 1, max_size, max_size + 2), range(1, max_size + 3)):
        for keep in range(steps + 1):
            rows = Rows(max_size, [length])
            for _ in range(steps):
                rows.step(1)
            tokens = rows.lists[0]
            kept = tokens[: length + keep]
            needed = kept[len(kept) - min(len(kept), max_size - 1) :]
            possible = keep == steps or set(needed) <= set(tokens[-max_size:])
            try:
                rows.ring = rollback_rotating_ring(rows.ring, [length], keep)
            except HistoryLostError:
                assert not possible
            else:
                assert possible
                rows.lists[0] = kept
                rows.check()


@pytest.mark.parametrize("warm", [(0, 0), (1, 3)])
@pytest.mark.parametrize("max_size", [1, 2])
def test_every_chunking_of_a_padded_prefill(max_size: int, warm: tuple[int, int]) -> None:
    for lengths in product(range(2 * max_size + 1), repeat=2):
        width = max(lengths)
        for chunks in chunkings(width) if width else ():
            rows = Rows(max_size, warm)
            rows.ring.prepare_prefill(lengths, right_padding=[width - length for length in lengths])
            coming = [rows.fresh(length) + [0] * (width - length) for length in lengths]
            for chunk in chunks:
                rows.feed([row[:chunk] for row in coming])
                coming = [row[chunk:] for row in coming]
                rows.check()
            rows.ring.finalize_prefill()
            rows.check()
            rows.step(1)
            rows.step(2)
            rows.check()
