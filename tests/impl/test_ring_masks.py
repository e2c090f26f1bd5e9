"""Masks of one token on rings larger than those of the random programs, where masks are cut from remembered ones."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from impl.rings.masks import MASK_COLUMNS, build_batched_rotating_mask, make_ring_mask
from impl.rings.position import UNBOUNDED, BatchedRotatingState

STEP = MASK_COLUMNS


def expected(position: BatchedRotatingState, window: int) -> np.ndarray:
    """Say of every physical column which rows see it: it holds a token, and one among the newest ``window``."""
    columns = min(position.active_length + 1, position.max_size)
    stepped = position.stepped()
    physical = [column for piece in stepped.physical_ranges(0, columns) for column in range(*piece)]
    mask = np.zeros((position.batch_size, 1, 1, columns), dtype=bool)
    for row in range(position.batch_size):
        for age, column in enumerate(reversed(physical)):
            mask[row, 0, 0, column] = age < min(window, stepped.stored(row))
    return mask


@pytest.mark.parametrize("max_size", [STEP - 1, STEP, STEP + 1, 2 * STEP + 3, UNBOUNDED])
def test_a_token_sees_its_row_and_no_padding(max_size: int) -> None:
    for pads in ((0,), (0, 0), (5, 0, 200), (STEP - 2, 3)):
        position = BatchedRotatingState(max_size, tuple(-pad for pad in pads), pads)
        for step in range(3 * STEP):
            if min(abs(step - edge) for edge in (0, STEP, 2 * STEP, max_size, max_size + STEP)) < 3:
                for window in (max_size, 3, STEP):
                    mask = np.array(build_batched_rotating_mask(position, 1, window))
                    assert np.array_equal(mask, expected(position, min(window, max_size))), (position, window)
            position = position.stepped()


def test_assigning_into_a_mask_changes_no_other() -> None:
    position = BatchedRotatingState(4, (2, 2), (0, 0), 2, 2)
    for full in (position, position.stepped().stepped()):
        spoiled = make_ring_mask(full, 1, return_array=True)
        assert isinstance(spoiled, mx.array)
        spoiled[...] = False
        again = make_ring_mask(full, 1, return_array=True)
        assert isinstance(again, mx.array)
        assert bool(again.all())


def test_a_batch_without_rows_has_a_mask_without_rows() -> None:
    mask = make_ring_mask(BatchedRotatingState(4), 1, return_array=True)
    assert isinstance(mask, mx.array)
    assert (mask.shape, mask.dtype) == ((0, 1, 1, 1), mx.bool_)
