"""Groups of aligned rows: all take every step, and positions say where they stand."""

from __future__ import annotations

import mlx.core as mx
import pytest

from impl.errors import HistoryLostError, MergeError, RingShapeError, RowIndexError
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows
from impl.rings.position import BatchedRotatingState
from impl.rings.positions import RotatingKvPositions, combined_position
from tests.impl.rows import feed, four, held, snapshot, solo


def two_empty() -> list[AlignedRotatingCache]:
    return align_rotating_rows([solo(2), solo(2)])


def test_rows_that_keep_other_numbers_must_preserve_their_columns() -> None:
    for preserve in (True, False):
        rows = two_empty()
        for token, row in enumerate(rows):
            feed(row, [token])
        for keep, row in enumerate(rows):
            row.rollback(0, keep, preserve_columns=preserve)
        assert [row.offset for row in rows] == [0, 1]
        if preserve:
            assert combined_position(2, rows) == BatchedRotatingState(2, (0, 1), (1, 0), 1, 1)
        else:
            with pytest.raises(MergeError, match="let all of them take every step"):
                combined_position(2, rows)


def test_padding_of_one_row_opens_the_prefill_of_all() -> None:
    for force in (True, False):
        rows = two_empty()
        for row, length in zip(rows, (1, 3), strict=True):
            row.prepare_prefill(length, right_padding=3 - length, force=force)
        for row, ids in zip(rows, ([1, -1], [11, 12]), strict=True):
            feed(row, ids)
        for row, ids in zip(rows, ([-1], [13]), strict=True):
            feed(row, ids)
        if not force:
            with pytest.raises(MergeError):
                combined_position(2, rows)
            continue
        position = combined_position(2, rows)
        assert position.prefill_ends == (1, 3)
        assert [position.valid_offset(row) for row in range(2)] == [1, 3]
        for row in rows:
            row.finalize_prefill()
        assert [held(row.extract()) for row in rows] == [[1], [12, 13]]


def test_rolling_back_needs_the_history_of_the_row() -> None:
    row = align_rotating_rows([solo(2, [1])])[0]
    feed(row, [2])
    feed(row, [3])
    before = snapshot(row)
    with pytest.raises(HistoryLostError):
        row.rollback(1, 0, preserve_columns=True)
    assert snapshot(row) == before
    row.rollback(1, 1, preserve_columns=True)
    assert held(row)[-1] == 2


def test_positions_follow_the_rows_when_asked_to_and_never_alone() -> None:
    rows = align_rotating_rows(four())
    positions = RotatingKvPositions(4)
    assert told(positions) == ((), (), 0, None, None)
    positions.sync(rows)
    assert told(positions) == ((6, 2, 0, 9), (0, 2, 4, 0), 4, 4, [6, 2, 0, 9])
    for tokens, window in ((1, None), (1, 2), (3, None), (3, 2)):
        mask = positions.make_mask(tokens, window)
        for index, row in enumerate(rows):
            own = row.make_mask(tokens, window, return_array=True)
            assert isinstance(own, mx.array)
            assert mx.array_equal(mask[index], own[0])
    rope = positions.rope_offset_arr
    for row in rows:
        feed(row, [50, 51])
    assert told(positions) == ((6, 2, 0, 9), (0, 2, 4, 0), 4, 4, [6, 2, 0, 9])
    positions.sync(rows)
    assert told(positions) == ((8, 4, 2, 11), (0, 1, 3, 0), 6, 4, [8, 4, 2, 11])
    for row, before, keep in zip(rows, (6, 2, 0, 9), (1, 0, 2, 1), strict=True):
        row.rollback(before, keep, preserve_columns=True)
    positions.sync(rows)
    # Only the offsets tell that rows were rolled back: the total is the same.
    assert told(positions) == ((7, 2, 2, 10), (1, 3, 3, 1), 6, 4, [7, 2, 2, 10])
    positions.filter_rows([3, 1])
    assert told(positions) == ((10, 2), (1, 3), 6, 2, [10, 2])
    positions.sync([])
    assert told(positions) == ((), (), 0, None, None)
    assert positions.max_size == 4
    assert rope is not None
    assert rope.tolist() == [6, 2, 0, 9]


def told(positions: RotatingKvPositions) -> tuple[object, ...]:
    rope = positions.rope_offset_arr
    assert rope is None or rope.dtype == mx.int32
    offsets = None if rope is None else rope.tolist()
    return positions.row_offsets, positions.left_pad, positions.offset, positions.batch_size, offsets


def test_positions_refuse_rows_of_different_columns_and_stay() -> None:
    rows = align_rotating_rows([solo(4, [1, 2]), solo(4, [101])])
    positions = RotatingKvPositions(4)
    positions.sync(rows)
    before = positions.position
    feed(rows[0], [3])
    for wrong in (rows, align_rotating_rows([solo(5, [1])])):
        with pytest.raises(MergeError, match="cannot share the columns of a group of max_size 4"):
            positions.sync(wrong)
        assert positions.position == before
    with pytest.raises(RowIndexError):
        positions.filter_rows([0, 2])
    with pytest.raises(RingShapeError, match="max_size=0"):
        RotatingKvPositions(0)
