"""How many bytes a ring holds: the tokens of its window and at most one growth step, never more after a decode step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.ring import GROWTH_COLUMNS
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADS, HEAD_DIM = 2, 64
DTYPE = mx.bfloat16
# (group_size, bits) of affine storage, None for plain; bytes of one token and head, in the keys or in the values.
STORAGES = {None: HEAD_DIM * 2, (64, 4): HEAD_DIM // 2 + 2 * 2, (32, 8): HEAD_DIM + 2 * 2 * 2}
STEP = GROWTH_COLUMNS
WINDOWS = (1, 7, STEP - 1, STEP, STEP + 1, 2 * STEP + 44)


def solo(storage: tuple[int, int] | None, window: int) -> Any:
    return RotatingKVCache(window) if storage is None else RotatingQuantizedKVCache(window, *storage)


def batch(storage: tuple[int, int] | None, window: int, left_padding: list[int]) -> Any:
    if storage is None:
        return BatchedRotatingCache(window, left_padding)
    return BatchedRotatingQuantCache(window, *storage, left_padding)


def tokens_around(window: int) -> Iterator[int]:
    """Prompt lengths at which something happens: empty, around a growth step, around the window, far beyond it."""
    for edge in (STEP, window, 2 * window):
        yield from (edge - 1, edge, edge + 1)
    yield from (0, 1, window // 2, window + STEP)


def feed(ring: Any, rows: int, tokens: int) -> None:
    block = mx.ones((rows, HEADS, tokens, HEAD_DIM), dtype=DTYPE)
    ring.update_and_fetch(block, block)
    mx.eval(ring.state())


def bound(storage: tuple[int, int] | None, rows: int, columns: int) -> int:
    return rows * HEADS * columns * 2 * STORAGES[storage]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rows", [0, 1, 3], ids=["solo", "one row", "three rows"])
def test_a_ring_holds_its_window_and_one_growth_step_at_most(
    storage: tuple[int, int] | None, window: int, rows: int
) -> None:
    for prompt in sorted(set(tokens_around(window))):
        ring = batch(storage, window, [row * prompt // 4 for row in range(rows)]) if rows else solo(storage, window)
        seen = 0
        # A block a little longer than the room left, decode steps over the next growth, and both once more.
        for tokens in (prompt, *[1] * 4, 9, *[1] * 3):
            if not tokens:
                continue
            feed(ring, max(rows, 1), tokens)
            before, seen = seen, seen + tokens
            held = min(seen, window) if tokens == 1 else min(before, window - 1) + tokens
            spare = STEP if tokens == 1 else 0
            assert ring.nbytes <= bound(storage, max(rows, 1), held + spare), (prompt, seen)
            assert ring.nbytes >= bound(storage, max(rows, 1), held)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rows", [0, 2], ids=["solo", "two rows"])
def test_the_bound_holds_at_every_step_of_a_long_decode(storage: tuple[int, int] | None, rows: int) -> None:
    window = 2 * STEP + 44
    ring = batch(storage, window, [0] * rows) if rows else solo(storage, window)
    for seen in range(1, window + 20):
        feed(ring, max(rows, 1), 1)
        most = min(min(seen, window) + STEP, window)
        assert ring.nbytes <= bound(storage, max(rows, 1), most), seen
    assert ring.nbytes == bound(storage, max(rows, 1), window)


@pytest.mark.parametrize("storage", STORAGES)
def test_merged_rows_hold_as_many_columns_as_the_longest(storage: tuple[int, int] | None) -> None:
    window, lengths = STEP + 10, (3, STEP + 40, 90)
    solos = [solo(storage, window) for _ in lengths]
    for ring, length in zip(solos, lengths, strict=True):
        feed(ring, 1, length)
    merged = type(batch(storage, window, [])).merge(solos)
    assert merged.nbytes == bound(storage, len(lengths), window)
    feed(merged, len(lengths), 1)
    assert merged.nbytes == bound(storage, len(lengths), window)
    alone = merged.extract_row(0)
    assert alone.nbytes == bound(storage, 1, 4)


@pytest.mark.parametrize("storage", STORAGES)
def test_memory_follows_the_bound(storage: tuple[int, int] | None) -> None:
    # A plane may be a view of something larger, which nbytes does not show.
    rows, window = 2, 2 * STEP
    start = mx.get_active_memory()
    ring = batch(storage, window, [0, 5])
    for tokens in (3 * window, 1, 1):
        feed(ring, rows, tokens)
    assert mx.get_active_memory() - start <= bound(storage, rows, window + STEP)
    ring.trim(1)
    for _ in range(3):
        feed(ring, rows, 1)
    assert mx.get_active_memory() - start <= bound(storage, rows, window + STEP)
    del ring
    assert mx.get_active_memory() - start <= bound(storage, rows, 1)
