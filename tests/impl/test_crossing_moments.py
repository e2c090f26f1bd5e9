"""A row may be converted at any moment, also inside rounds and open prefills: its tokens stay right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.rings.aligned import align_rotating_rows
from impl.rings.positions import RotatingKvPositions, combined_position
from tests.impl.rows import BITS, held, one_by_one, solo
from tests.impl.token_table import GROUP, table

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: tuple[tuple[str, Any], ...] = (
    ("feed", 1),
    ("feed", 3),
    ("feed", 1),
    ("round", (3, [1, 0, 3])),
    ("prefill", ([1, 4, 0], (3, 1))),
    ("round", (2, [2, 2, 2])),
    ("feed", 1),
    ("round", (5, [0, 4, 1])),
    ("feed", 1),
)


class Apart:
    """Aligned rows and the list of tokens of each; row ``turn`` becomes affine at moment number ``moment``."""

    def __init__(self, max_size: int, turn: int, moment: int) -> None:
        self.rows = align_rotating_rows([one_by_one(max_size, [1, 2, 3, 4, 5]), solo(max_size, [11]), solo(max_size)])
        self.lists = [[1, 2, 3, 4, 5], [11], []]
        self.positions = RotatingKvPositions(max_size)
        self.max_size, self.turn, self.moment, self.now, self.used = max_size, turn, moment, 0, 100

    def tick(self) -> None:
        if self.now == self.moment:
            before = combined_position(self.max_size, self.rows)
            self.rows[self.turn] = self.rows[self.turn].to_quantized(GROUP, BITS)
            assert combined_position(self.max_size, self.rows) == before
        self.now += 1
        for row, tokens in zip(self.rows, self.lists, strict=True):
            position = row.position
            stored, end = position.stored(0), position.end(0)
            assert held(row)[end - stored : end] == (tokens[-stored:] if stored else [])
            assert stored >= min(len(tokens), self.max_size - 1)

    def feed(self, ids: Sequence[Sequence[int]]) -> None:
        self.positions.sync(self.rows)
        mask = np.array(self.positions.make_mask(len(ids[0])))
        for row, tokens, new, shown in zip(self.rows, self.lists, ids, mask[:, 0], strict=True):
            assert np.array_equal(np.array(row.make_mask(len(new), return_array=True))[0, 0], shown)
            bits = None if row.affine_conversion else BITS
            keys, values = row.update_and_fetch(*table(mx.float32, None).block([new]))
            [found] = table(mx.float32, bits).read(keys, values)
            for token, sees in zip(new, shown, strict=True):
                if token >= 0:
                    tokens.append(token)
                    visible = [column for column, seen in zip(found, sees, strict=True) if seen]
                    assert sorted(visible) == sorted(tokens[-self.max_size :])
        self.tick()

    def fresh(self, count: int) -> list[int]:
        self.used += count
        return list(range(self.used - count, self.used))

    def run(self, operation: str, argument: Any) -> None:
        if operation == "feed":
            self.feed([self.fresh(argument) for _ in self.rows])
        elif operation == "round":
            count, keeps = argument
            before = [len(tokens) for tokens in self.lists]
            self.feed([self.fresh(count) for _ in self.rows])
            for row, start, keep in zip(self.rows, before, keeps, strict=True):
                row.rollback(start, keep, preserve_columns=len(set(keeps)) > 1)
            for tokens, start, keep in zip(self.lists, before, keeps, strict=True):
                del tokens[start + keep :]
        else:
            lengths, chunks = argument
            coming = []
            for row, length in zip(self.rows, lengths, strict=True):
                row.prepare_prefill(length, right_padding=sum(chunks) - length, force=True)
                coming.append(self.fresh(length) + [-1] * (sum(chunks) - length))
            for count in chunks:
                self.feed([ids[:count] for ids in coming])
                coming = [ids[count:] for ids in coming]
            for row in self.rows:
                row.finalize_prefill()
        self.tick()


@pytest.mark.parametrize(("max_size", "turn"), [(2, 0), (4, 1), (2, 2)])
def test_storage_stays_right_whenever_a_row_is_converted(max_size: int, turn: int) -> None:
    moment = 0
    while True:
        apart = Apart(max_size, turn, moment)
        for operation, argument in PROGRAM:
            apart.run(operation, argument)
        if moment >= apart.now:
            assert moment > 12
            return
        moment += 1
