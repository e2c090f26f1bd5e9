"""Aligned rows: one geometry for rows of different precision, examples written out, refusals, failures."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import AffinePlanes, dequantize, quantize
from impl.errors import (
    AffineError,
    AlreadyAffineError,
    MergeError,
    PendingPrefillError,
    RingError,
    RingShapeError,
)
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows, rotating_source_position
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.position import BatchedRotatingState
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from tests.impl.failing import assert_nothing_changes_on_failure
from tests.impl.rows import BITS, feed, four, held, one_by_one, snapshot, solo
from tests.impl.token_table import DTYPES, GROUP, columns_of, table


@pytest.mark.parametrize("bits", [None, BITS])
def test_wrapped_short_empty_and_oversized_rows(bits: int | None) -> None:
    sources = four(bits)
    assert sources[0].ring_index == 2
    before = [snapshot(row) for row in sources]
    rows = align_rotating_rows(sources)
    assert [held(row) for row in rows] == [[3, 4, 5, 6], [-1, -1, 101, 102], [-1] * 4, [206, 207, 208, 209]]
    assert [row.position for row in rows] == [
        BatchedRotatingState(4, (6,), (0,), 4, 4),
        BatchedRotatingState(4, (2,), (2,), 4, 4),
        BatchedRotatingState(4, (0,), (4,), 4, 4),
        BatchedRotatingState(4, (9,), (0,), 4, 4),
    ]
    assert [row.offset for row in rows] == [6, 2, 0, 9]
    assert [row.signature() for row in rows] == [source.signature() for source in sources]
    assert [snapshot(row) for row in sources] == before


@pytest.mark.parametrize("max_size", [1, 2, 4, 5])
@pytest.mark.parametrize("bits", [None, BITS])
def test_a_source_position_is_read_from_offset_cursor_and_buffer(max_size: int, bits: int | None) -> None:
    for steps in range(3 * max_size):
        for blocks in ([list(range(steps))] if steps else []), [[token] for token in range(steps)]:
            ring = solo(max_size, *blocks, bits=bits)
            position = rotating_source_position(ring)
            assert position.offsets == (steps,)
            assert position.total_offset == steps
            ranges = position.physical_ranges(0, position.active_length)
            assert ranges == ring.position.physical_ranges(0, ring.position.active_length)
            assert position.stored(0) == ring.position.stored(0)
    assert rotating_source_position(one_by_one(4, range(1, 7))) == BatchedRotatingState(
        4, (6,), (0,), 2, 6, rotated=True
    )
    assert rotating_source_position(solo(4, range(9))) == BatchedRotatingState(4, (9,), (0,), 9, 9)
    assert rotating_source_position(solo(4)) == BatchedRotatingState(4, (0,), (0,))


@pytest.mark.parametrize("bits", [None, BITS])
def test_a_row_that_is_one_short_is_as_wide_as_what_it_holds(bits: int | None) -> None:
    batch: Any = (SpeculativeRotatingKVCache if bits is None else BatchedRotatingQuantCache).merge(
        [solo(2, [1, 2], bits=bits)]
    )
    feed(batch, [3])
    batch.trim(1)
    short = batch.extract_row(0)
    assert (short.offset, held(short)) == (2, [2])
    rows = align_rotating_rows([short, solo(2, [101], bits=bits)])
    assert [row.position for row in rows] == [
        BatchedRotatingState(2, (2,), (0,), 1, 1),
        BatchedRotatingState(2, (1,), (0,), 1, 1),
    ]
    [alone] = align_rotating_rows([short])
    assert alone.position.active_length == 1
    assert held(feed(alone, [4])) == [2, 4]
    assert not alone.is_trimmable()


def test_a_window_of_one_keeps_the_offset_of_a_row_without_columns() -> None:
    batch = SpeculativeRotatingKVCache.merge([solo(1, [1])])
    feed(batch, [2])
    batch.trim(1)
    rows = align_rotating_rows([batch.extract_row(0), solo(1)])
    assert [row.position.offsets for row in rows] == [(1,), (0,)]
    assert [row.state() for row in rows] == [[], []]
    assert [row.extract().offset for row in rows] == [1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_row_gets_zeros_of_its_own_kind(dtype: mx.Dtype) -> None:
    plain, affine = solo(4, [1, 2], dtype=dtype), solo(4, [1, 2], bits=8, dtype=dtype)
    for model in (plain, affine):
        rows = align_rotating_rows([solo(4), model, RotatingQuantizedKVCache(4, GROUP, 2)])
        keys, values = rows[0].inner.temporal_view() or (None, None)
        assert isinstance(keys, mx.array)
        assert isinstance(values, mx.array)
        assert (keys.shape, values.shape, keys.dtype) == ((1, 2, 2, 64), (1, 2, 2, 32), dtype)
        assert not keys.any()
        packed, _ = rows[2].inner.temporal_view() or (None, None)
        assert isinstance(packed, AffinePlanes)
        assert (packed.shape, packed.dtype, packed.bits) == ((1, 2, 2, 64), dtype, 2)
        assert [row.position.left_pad for row in rows] == [(2,), (0,), (2,)]
        for row in rows:
            feed(row, [5], dtype=dtype)
        assert [held(row, dtype)[-1] for row in rows] == [5, 5, 5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_codes_move_bit_for_bit(dtype: mx.Dtype) -> None:
    sources = [solo(64, range(64), bits=8, dtype=dtype), solo(64, range(100, 130), bits=8, dtype=dtype)]
    rows = align_rotating_rows(sources)
    for source, row in zip(sources, rows, strict=True):
        view = row.inner.temporal_view()
        assert view is not None
        assert columns_of(view[0])[0][-source.offset :] == columns_of(source.temporal_view()[0])[0]
        assert [columns_of(x) for x in row.extract().state()] == [columns_of(x) for x in source.state()]
    planes = sources[0].keys
    again = quantize(dequantize(planes), GROUP, 8)
    assert not mx.array_equal(again.packed, planes.packed), "tokens that survive coding twice prove nothing"


@pytest.mark.parametrize("bits", [None, BITS])
def test_extract_gives_the_row_back(bits: int | None) -> None:
    for source, row in zip(four(bits), align_rotating_rows(four(bits)), strict=True):
        row.minimum_reusable_offset = 3
        alone = row.extract()
        assert type(alone) is type(source)
        assert alone.offset == source.offset
        assert alone.minimum_reusable_offset == 3
        assert held(alone) == held(source)[-4:]
        limited = row.extract(2)
        assert (held(limited), limited.offset) == (held(source)[-2:], source.offset)
        with pytest.raises(RingShapeError, match="limit=0"):
            row.extract(0)


def test_extract_takes_a_block_larger_than_the_window_along() -> None:
    rows = align_rotating_rows([solo(4, [1, 2, 3, 4]), solo(4, [101])])
    for row in rows:
        feed(row, [5, 6, 7] if row.offset == 4 else [102, 103, 104])
    assert [held(row.extract()) for row in rows] == [[2, 3, 4, 5, 6, 7], [101, 102, 103, 104]]
    assert [held(row.extract(4)) for row in rows] == [[4, 5, 6, 7], [101, 102, 103, 104]]


def test_a_conversion_touches_no_column_and_carries_the_floor() -> None:
    states: dict[str, Any] = {
        "aligned": lambda row: row.finalize_prefill(),
        "wrapped": lambda row: [feed(row, [token]) for token in (7, 8)],
        "oversized": lambda row: feed(row, [7, 8, 9]),
        "pending": lambda row: (row.prepare_prefill(2, right_padding=2), feed(row, [7, 8, -1])),
    }
    for name, prepare in states.items():
        for source in four():
            [row, *_] = align_rotating_rows([source, solo(4, [50, 51, 52, 53])])
            row.minimum_reusable_offset = 2
            prepare(row)
            before, tokens = snapshot(row), held(row)
            packed = row.to_quantized(GROUP, BITS)
            assert packed.position == row.position, name
            assert held(packed) == tokens, name
            assert packed.minimum_reusable_offset == 2
            assert snapshot(row) == before
            assert (row.affine_conversion, row.quantized_attention) == (row, None)
            assert (packed.affine_conversion, packed.quantized_attention) == (None, packed.inner)
            with pytest.raises(AlreadyAffineError):
                packed.to_quantized(GROUP, BITS)
    [empty] = align_rotating_rows([solo(4)])
    assert empty.to_quantized(GROUP, BITS).state() == []
    with pytest.raises(AffineError, match="head_dim=32"):
        align_rotating_rows(four())[0].to_quantized(64, BITS)


def test_offset_is_where_the_row_stands_and_not_how_many_columns_came() -> None:
    rows = align_rotating_rows(four())
    assert {row.position.total_offset for row in rows} == {4}
    for row, length in zip(rows, (1, 2, 3, 0), strict=True):
        row.prepare_prefill(length, right_padding=3 - length, force=True)
        feed(row, [*[50] * length, *[-1] * (3 - length)])
    assert [row.offset for row in rows] == [7, 4, 3, 9]


def test_bytes_are_counted_per_column() -> None:
    rows = align_rotating_rows([solo(4, range(4)), solo(4)])
    assert [row.bytes_per_token() for row in rows] == [2 * (64 + 32) * 4] * 2
    assert [row.nbytes for row in rows] == [2 * (64 + 32) * 4 * 4] * 2
    assert align_rotating_rows([solo(4)])[0].bytes_per_token() == 0


def test_a_copy_goes_its_own_way() -> None:
    row = align_rotating_rows([one_by_one(4, range(1, 7))])[0]
    twin = row.copy()
    before = snapshot(row)
    feed(twin, [8])
    twin.minimum_reusable_offset = 9
    assert snapshot(row) == before
    assert held(twin) == [4, 5, 6, 8]


def other_heads() -> Any:
    ring = RotatingKVCache(4)
    ring.update_and_fetch(mx.zeros((1, 1, 2, 64)), mx.zeros((1, 1, 2, 32)))
    return ring


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (
            lambda: SpeculativeRotatingKVCache(4, [0]),
            MergeError,
            r"\['SpeculativeRotatingKVCache'\]; extract solo rings",
        ),
        (lambda: align_rotating_rows([solo(4, [1])])[0], MergeError, "AlignedRotatingCache"),
        (lambda: solo(5, [1]), MergeError, r"max_size \[4, 5\]"),
        (lambda: solo(4, [1], dtype=mx.float16), MergeError, "convert them first"),
        (other_heads, MergeError, "kv_heads"),
        (lambda: RotatingQuantizedKVCache(4, 128, 4), AffineError, "head_dim=64"),
    ],
)
def test_rows_that_cannot_share_columns_are_refused_untouched(other: Any, error: type[Exception], message: str) -> None:
    sources = [*four(), solo(4, [1, 2], bits=BITS)]
    before = [snapshot(row) for row in sources]
    with pytest.raises(error, match=message):
        align_rotating_rows([*sources, other()])
    assert [snapshot(row) for row in sources] == before
    assert align_rotating_rows([]) == []


def test_an_aligned_row_is_one_row_with_a_floor_of_zero_or_more() -> None:
    with pytest.raises(RingShapeError, match="a batch of 2"):
        AlignedRotatingCache(BatchedRotatingCache(4, [0, 0]))
    with pytest.raises(RingShapeError, match="minimum_reusable_offset=-1"):
        AlignedRotatingCache(BatchedRotatingCache(4, [0]), -1)
    row = align_rotating_rows([solo(4, [1])])[0]
    with pytest.raises(RingShapeError, match="0 or more"):
        row.minimum_reusable_offset = -2
    with pytest.raises(RingError):
        align_rotating_rows([solo(4)])[0].capture_donor_attention()
    row.prepare_prefill(1, right_padding=1)
    with pytest.raises(PendingPrefillError):
        row.trim(1)
    with pytest.raises(PendingPrefillError):
        row.rollback(1, 0, preserve_columns=True)


def mixed() -> list[Any]:
    return [*four(), *four(BITS)]


def replace_by(rows: list[Any], change: Any) -> None:
    rows[:] = [change(row) for row in rows]


FAILURES: dict[str, tuple[Any, Any]] = {
    "align": (mixed, lambda rows: rows.__setitem__(slice(None), align_rotating_rows(rows))),
    "convert": (
        lambda: align_rotating_rows(four()),
        lambda rows: rows.__setitem__(slice(None), [row.to_quantized(GROUP, BITS) for row in rows]),
    ),
    "token": (lambda: align_rotating_rows(mixed())[:1], lambda rows: feed(rows[0], [50])),
    "affine token": (lambda: align_rotating_rows(mixed())[4:5], lambda rows: feed(rows[0], [50])),
    "roll": (
        lambda: [feed(align_rotating_rows(mixed())[4], [50, 51])],
        lambda rows: rows[0].rollback(6, 1, preserve_columns=True),
    ),
    "extract": (
        lambda: align_rotating_rows(mixed())[:1],
        lambda rows: rows.__setitem__(slice(None), [rows[0].extract(3)]),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_running_out_of_memory_anywhere_changes_nothing(name: str) -> None:
    setup, operation = FAILURES[name]
    calls = assert_nothing_changes_on_failure(setup, operation, lambda rows: [snapshot(row) for row in rows])
    # MLX allocates at evaluation, so what replaces the contents of a ring is evaluated first.
    assert ("settle" in calls) == ("token" not in name)


def test_arrays_handed_out_never_change() -> None:
    row = align_rotating_rows([one_by_one(4, range(1, 7))])[0]
    out: list[tuple[mx.array, list[list[bytes]]]] = []
    for ids in ([7], [8], [9, 10, 11], [12]):
        keys, _ = row.update_and_fetch(*table(mx.float32, None).block([ids]))
        assert isinstance(keys, mx.array)
        out += [(array, columns_of(array)) for array in (keys, *row.state())]
        row.rollback(row.offset - len(ids), 0, preserve_columns=True)
        row = row.to_quantized(GROUP, BITS).copy() if ids == [12] else row
    assert all(columns_of(array) == before for array, before in out)
    assert np.isfinite(np.array(out[-1][0])).all()
