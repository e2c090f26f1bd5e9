"""Affine layouts: packing moves nothing, rounds, membership, bytes, refusals, failures."""

from __future__ import annotations

from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.errors import (
    AffineError,
    HistoryLostError,
    ImplError,
    MergeError,
    PendingPrefillError,
    RingError,
    RingShapeError,
    RoundError,
    RowIndexError,
)
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows
from impl.rings.contents import RingContents
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.solo import RotatingQuantizedKVCache
from tests.impl.failing import assert_nothing_changes_on_failure
from tests.impl.rows import BITS, columns, feed, four, held, one_by_one, solo
from tests.impl.rows import snapshot as row_snapshot
from tests.impl.token_table import DTYPES, GROUP, columns_of, table

Layout = RotatingAffineLayout
KINDS = (RotatingAffineLayout, SpeculativeRotatingAffineLayout)


def aligned(*sources: Any) -> list[AlignedRotatingCache]:
    """Rows that were aligned while plain and became affine afterwards."""
    rows = align_rotating_rows(sources)
    return [row if row.affine_conversion is None else row.to_quantized(GROUP, BITS) for row in rows]


def packed(*sources: Any, kind: type[Layout] = RotatingAffineLayout, max_size: int = 4) -> Layout:
    layout = kind(max_size, GROUP, BITS)
    layout.adopt_aligned_rows(aligned(*sources))
    return layout


def stored(layout: Layout) -> list[list[int]]:
    ring = layout.quantized_attention
    return [] if ring is None else columns(ring)


def snapshot(layout: Layout) -> tuple[object, ...]:
    rope = layout.rope_offset_arr
    return (
        layout.position,
        layout.minimum_reusable_offsets,
        layout.round_offsets,
        None if rope is None else rope.tolist(),
        [columns_of(array) for array in layout.state()],
    )


def told(layout: Layout) -> tuple[object, ...]:
    rope = layout.rope_offset_arr
    assert rope is None or rope.dtype == mx.int32
    offsets = None if rope is None else rope.tolist()
    return layout.row_offsets, layout.left_pad, layout.offset, layout.batch_size, offsets


def arrays(mask: object) -> mx.array:
    assert isinstance(mask, mx.array)
    return mask


@pytest.mark.parametrize(
    "history",
    [
        [],
        [[[50]] * 4],
        [[[50]] * 4] * 3,
        [[[50, 51, 52]] * 4],
        [[[50]] * 4, [[51, 52, 53]] * 4, [[54]] * 4],
    ],
)
@pytest.mark.parametrize("pending", [False, True])
def test_packing_moves_no_column_and_changes_no_mask(history: list[list[list[int]]], pending: bool) -> None:
    rows = aligned(*four())
    for blocks in history:
        for row, ids in zip(rows, blocks, strict=True):
            feed(row, ids)
    for row, length in zip(rows, (3, 1, 0, 2), strict=True):
        if pending:
            row.prepare_prefill(length, right_padding=3 - length, force=True)
            feed(row, [60, 61][:length] + [-1] * max(0, 2 - length))
    before = [row_snapshot(row) for row in rows]
    layout = RotatingAffineLayout(4, GROUP, BITS)
    layout.adopt_aligned_rows(rows)
    assert layout.position.has_pending_padding == pending
    assert stored(layout) == [held(row) for row in rows]
    for tokens, window in product((1, 2, 5), (None, 1, 3)):
        mask = arrays(layout.make_mask(tokens, window))
        for index, row in enumerate(rows):
            assert mx.array_equal(mask[index], arrays(row.make_mask(tokens, window, return_array=True))[0])
    ring = layout.quantized_attention
    assert ring is not None
    for plane in ("keys", "values"):
        assert columns_of(getattr(ring, plane)) == [columns_of(getattr(row.inner, plane))[0] for row in rows]
    assert [row_snapshot(row) for row in rows] == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_packing_keeps_codes_bit_for_bit(dtype: mx.Dtype) -> None:
    sources = [solo(64, range(first, first + 64), bits=8, dtype=dtype) for first in (0, 64)]
    layout = RotatingAffineLayout(64, GROUP, 8)
    layout.adopt_aligned_rows(align_rotating_rows(sources))
    ring = layout.quantized_attention
    assert ring is not None
    assert columns(ring, dtype) == [list(range(64)), list(range(64, 128))]


def test_rows_with_other_spare_columns_are_packed() -> None:
    rows = aligned(solo(600, [1, 2]), solo(600, [11]))
    for row in rows:
        feed(row, [50])
    keys, values = rows[1].inner.temporal_view() or (None, None)
    rows[1].inner.restore_state(keys, values, rows[1].position)  # type: ignore[arg-type]
    layout = RotatingAffineLayout(600, GROUP, BITS)
    layout.adopt_aligned_rows(rows)
    assert stored(layout) == [[1, 2, 50], [-1, 11, 50]]
    layout.update_and_fetch(*table(mx.float32, None).block([[51], [52]]))
    assert stored(layout) == [[1, 2, 50, 51], [-1, 11, 50, 52]]


def test_an_empty_layout() -> None:
    layout = RotatingAffineLayout(4, GROUP, BITS)
    assert told(layout) == ((), (), 0, None, None)
    assert layout.quantized_attention is None
    assert (layout.minimum_reusable_offset, layout.bytes_per_token(), layout.projected_bytes(9)) == (0, 0, 0)
    assert (layout.max_size, layout.max_tokens, layout.signature()) == (4, 4, "kv:rotating-affine:4:32:4")
    layout.merge_rows([])
    layout.adopt_aligned_rows([])
    assert told(layout) == ((), (), 0, None, None)
    layout.prepare_prefill([1, 2], right_padding=[1, 0])
    assert told(layout) == ((0, 0), (0, 0), 0, 2, [0, 0])
    assert layout.minimum_reusable_offsets == (0, 0)
    layout.update_and_fetch(*table(mx.float32, None).block([[1, -1], [11, 12]]))
    layout.finalize_prefill()
    assert stored(layout) == [[-1, 1], [11, 12]]


def test_rows_that_hold_nothing_are_packed_as_they_are() -> None:
    layout = packed(solo(4), solo(4))
    assert (layout.row_offsets, layout.batch_size, layout.state()) == ((0, 0), 2, [])
    layout.update_and_fetch(*table(mx.float32, None).block([[1], [11]]))
    assert stored(layout) == [[1], [11]]


def test_bytes_of_a_token() -> None:
    layout = RotatingAffineLayout(4, 32, 4)
    row = RotatingQuantizedKVCache(4, 32, 4)
    x = mx.random.normal((1, 1, 6, 64)).astype(mx.float16)
    row.update_and_fetch(x, x)
    layout.merge_rows([row, row])
    layout.update_and_fetch(mx.concatenate([x[:, :, :3]] * 2), mx.concatenate([x[:, :, :3]] * 2))
    assert layout.position.active_length == 6
    assert layout.nbytes == 960
    assert layout.bytes_per_token() == 80
    assert (layout.projected_bytes(3), layout.projected_bytes(1000)) == (240, 320)


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_of_a_layout(kind: type[Layout]) -> None:
    layout = packed(one_by_one(4, [1, 2, 3, 4, 5]), solo(4, [101, 102]), kind=kind)
    layout.spec_round_begin()
    feed(layout, [6, 7, 8], [103, 104, 105])
    assert told(layout) == ((8, 5), (0, 1), 7, 2, [8, 5])
    rope = layout.rope_offset_arr
    layout.spec_round_rollback([1, 3])
    # Only the offsets tell that a row was rolled back: the total is the same.
    assert told(layout) == ((6, 5), (2, 1), 7, 2, [6, 5])
    assert rope is not None
    assert rope.tolist() == [8, 5]
    assert stored(layout)[0][2:] == [3, 4, 5, 6]
    layout.spec_round_begin()
    feed(layout, [9], [106])
    layout.spec_round_commit()
    assert layout.round_offsets is None
    assert [held(layout.extract_row(row))[-4:] for row in (0, 1)] == [[4, 5, 6, 9], [103, 104, 105, 106]]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_leave_an_open_round(kind: type[Layout]) -> None:
    layout = packed(solo(4, [1, 2, 3]), solo(4, [101]), kind=kind)
    layout.spec_round_begin()
    feed(layout, [4, 5], [102, 103])
    layout.filter_rows([1])
    assert layout.round_offsets == (1,)
    layout.spec_round_rollback([1])
    assert layout.row_offsets == (2,)
    assert held(layout.extract_row(0)) == [101, 102]


def test_floors_follow_their_rows() -> None:
    rows = aligned(*four())
    for row, floor in zip(rows, (6, 0, 0, 9), strict=True):
        row.minimum_reusable_offset = floor
    layout = RotatingAffineLayout(4, GROUP, BITS)
    layout.adopt_aligned_rows(rows)
    assert (layout.minimum_reusable_offsets, layout.minimum_reusable_offset) == ((6, 0, 0, 9), 9)
    assert layout.extract_row(3).minimum_reusable_offset == 9
    layout.filter_rows([1, 0])
    assert (layout.minimum_reusable_offsets, layout.minimum_reusable_offset) == ((0, 6), 6)
    again = layout.make_empty_batch()
    again.merge_rows([layout, rows[3], solo(4, [1], bits=BITS)])
    assert again.minimum_reusable_offsets == (0, 6, 9, 0)
    layout.filter_rows([])
    assert (layout.minimum_reusable_offsets, layout.batch_size) == ((), None)


def test_merging_takes_rows_from_everywhere_and_leaves_them() -> None:
    layout = packed(one_by_one(4, range(1, 7)), solo(4, [101]))
    row = aligned(solo(4, [201, 202]))[0]
    ring = one_by_one(4, range(301, 306), bits=BITS)
    before = snapshot(layout), row_snapshot(row), row_snapshot(ring)
    merged = SpeculativeRotatingAffineLayout(4, GROUP, BITS)
    merged.merge_rows([layout, row, ring, solo(4, bits=BITS)])
    assert stored(merged) == [[3, 4, 5, 6], [-1, -1, -1, 101], [-1, -1, 201, 202], [302, 303, 304, 305], [-1] * 4]
    assert told(merged) == ((6, 1, 2, 5, 0), (0, 3, 2, 0, 4), 4, 5, [6, 1, 2, 5, 0])
    assert (snapshot(layout), row_snapshot(row), row_snapshot(ring)) == before
    merged.merge_rows([merged, solo(4, [7], bits=BITS)])
    assert told(merged) == ((6, 1, 2, 5, 0, 1), (0, 3, 2, 0, 4, 3), 4, 6, [6, 1, 2, 5, 0, 1])
    assert type(merged.make_empty_batch()) is SpeculativeRotatingAffineLayout


def test_what_is_extracted() -> None:
    whole, newest = (packed(solo(4, [1, 2, 3, 4]), solo(4, [101]), kind=kind) for kind in KINDS)
    for layout in (whole, newest):
        feed(layout, [5, 6], [102, 103])
    assert [held(whole.extract_row(row)) for row in (0, 1)] == [[2, 3, 4, 5, 6], [101, 102, 103]]
    assert [held(newest.extract_row(row)) for row in (0, 1)] == [[3, 4, 5, 6], [101, 102, 103]]
    for layout in (whole, newest):
        assert held(layout.extract_row(0, 2)) == [5, 6]
        assert layout.extract_row(0, 2).offset == 6
    assert held(newest.extract_row(0, 9)) == [3, 4, 5, 6]


@pytest.mark.parametrize("max_size", [1, 2, 4])
def test_shortcuts_say_what_the_array_says(max_size: int) -> None:
    for history, pads in product((0, 1, 2, 3, 5), ([0, 0], [0, 1])):
        layout = SpeculativeRotatingAffineLayout(max_size, GROUP, BITS)
        layout.prepare_prefill([1, 1], left_padding=pads)
        feed(layout, [1], [-1 if pads[1] else 11])
        for step in range(history):
            feed(layout, [20 + step], [40 + step])
        for tokens, window in product((1, 2, 4), (None, 1, 3)):
            short, array = layout.make_mask(tokens, window), arrays(layout.make_mask(tokens, window, return_array=True))
            if isinstance(short, mx.array):
                assert mx.array_equal(short, array)
                continue
            lower = np.tril(np.ones(array.shape[2:], dtype=bool), array.shape[3] - tokens)
            assert (short is None) == (tokens == 1)
            assert np.array_equal(np.array(array), np.broadcast_to(lower, array.shape))
        if not any(pads):
            assert layout.make_mask(1) is None
            if layout.offset + 2 <= max_size:
                assert layout.make_mask(2) == "causal"
                assert isinstance(layout.make_mask(2, 1), mx.array)
        assert isinstance(RotatingAffineLayout.make_mask(layout, 1), mx.array)


def test_is_trimmable_and_trim() -> None:
    layout = packed(solo(4, [1, 2, 3]), solo(4, [101]))
    assert layout.is_trimmable()
    assert layout.trim(1) == 1
    assert stored(layout) == [[1, 2], [-1, -1]]
    with pytest.raises(HistoryLostError):
        layout.trim(1)
    short = packed(one_by_one(4, [1, 2, 3, 4]))
    feed(short, [5])
    short.trim(1)
    assert not short.is_trimmable()


def test_lending_a_layout() -> None:
    layout = packed(one_by_one(4, range(1, 7)), solo(4, [101]))
    donor = layout.capture_donor_attention()
    assert (donor.width, donor.offsets, donor.starts, donor.ends) == (4, (6, 1), (0, 3), (4, 4))
    with pytest.raises(RingError, match="prefill it first"):
        RotatingAffineLayout(4, GROUP, BITS).capture_donor_attention()


def test_a_copy_goes_its_own_way() -> None:
    layout = packed(solo(4, [1, 2]), solo(4, [101]))
    before = snapshot(layout)
    twin = layout.copy()
    twin.spec_round_begin()
    feed(twin, [3], [102])
    twin.filter_rows([1])
    assert snapshot(layout) == before


def two(affine: bool = True) -> list[AlignedRotatingCache]:
    sources = [solo(4, [1, 2, 3, 4]), solo(4, [101])]
    return aligned(*sources) if affine else align_rotating_rows(sources)


def uneven() -> list[AlignedRotatingCache]:
    rows = two()
    feed(rows[0], [5])
    return rows


def half_held() -> list[AlignedRotatingCache]:
    rows = two()
    ring = rows[1].inner
    return [rows[0], AlignedRotatingCache(ring.with_contents(RingContents(ring.position)))]


def in_round() -> Layout:
    layout = packed(*four())
    layout.spec_round_begin()
    return feed(layout, [50], [51], [52], [53])  # type: ignore[no-any-return]


def pending() -> Layout:
    layout = packed(*four())
    layout.prepare_prefill([1, 2, 0, 1], right_padding=[1, 0, 2, 1])
    return feed(layout, [50, -1], [51, 52], [-1, -1], [53, -1])  # type: ignore[no-any-return]


def idle() -> Layout:
    return packed(*four())


def adopting(rows: Any) -> Any:
    return lambda layout: layout.adopt_aligned_rows(rows())


def merging(*sources: Any) -> Any:
    return lambda layout: layout.merge_rows([source() for source in sources])


REFUSALS: dict[str, tuple[Any, Any, type[ImplError], str]] = {
    "adopt a plain row": (idle, adopting(lambda: two(affine=False)), MergeError, "call to_quantized on each"),
    "adopt one plain row": (idle, adopting(lambda: [two()[0], two(affine=False)[1]]), MergeError, "call to_quantized"),
    "adopt other bits": (
        idle,
        adopting(lambda: align_rotating_rows([solo(4, [1], bits=8)])),
        MergeError,
        "kv:rotating-affine:4:32:8",
    ),
    "adopt another size": (idle, adopting(lambda: aligned(solo(5, [1]))), MergeError, "kv:rotating-affine:5"),
    "adopt uneven rows": (idle, adopting(uneven), MergeError, "let all of them take every step"),
    "adopt rows without planes": (idle, adopting(half_held), MergeError, "rows without any"),
    "adopt in a round": (in_round, adopting(two), RoundError, "cannot adopt rows"),
    "adopt other types": (
        idle,
        adopting(lambda: [two()[0], *aligned(solo(4, [1, 2, 3, 4], dtype=mx.float16))]),
        MergeError,
        "convert them first",
    ),
    "merge a plain row": (idle, merging(lambda: solo(4, [1])), MergeError, "call to_quantized on each"),
    "merge another size": (idle, merging(lambda: solo(5, [1], bits=BITS), idle), MergeError, r"max_size \[4, 5\]"),
    "merge something else": (idle, merging(lambda: packed(solo(4)).quantized_attention), MergeError, "extract solo"),
    "merge in a round": (in_round, merging(), RoundError, "cannot merge rows"),
    "merge from a round": (idle, merging(in_round), RoundError, "cannot extract a row"),
    "extract in a round": (in_round, lambda layout: layout.extract_row(0), RoundError, "cannot extract a row"),
    "prepare in a round": (in_round, lambda layout: layout.prepare_prefill([1] * 4), RoundError, "cannot prepare"),
    "begin in a round": (in_round, lambda layout: layout.spec_round_begin(), RoundError, "cannot begin another"),
    "trim in a round": (in_round, lambda layout: layout.trim(1), RoundError, "cannot trim"),
    "begin in a prefill": (pending, lambda layout: layout.spec_round_begin(), PendingPrefillError, "finalize_prefill"),
    "trim in a prefill": (pending, lambda layout: layout.trim(0), PendingPrefillError, "finalize_prefill"),
    "commit nothing": (idle, lambda layout: layout.spec_round_commit(), RoundError, "call spec_round_begin"),
    "roll nothing back": (idle, lambda layout: layout.spec_round_rollback(0), RoundError, "call spec_round_begin"),
    "keep too many": (in_round, lambda layout: layout.spec_round_rollback(2), RingShapeError, "keep 2 of 1"),
    "keep for other rows": (in_round, lambda layout: layout.spec_round_rollback([1, 1]), RingShapeError, "per row, 4"),
    "row outside": (idle, lambda layout: layout.extract_row(4), RowIndexError, "a batch of 4"),
    "limit 0": (idle, lambda layout: layout.extract_row(0, 0), RingShapeError, "at least 1 token"),
    "filter outside": (idle, lambda layout: layout.filter_rows([4]), RowIndexError, "a batch of 4"),
    "filter twice": (in_round, lambda layout: layout.filter_rows([1, 1]), RowIndexError, "once at most"),
    "rows": (idle, lambda layout: feed(layout, [1]), RingShapeError, "1 rows for a ring of 4"),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_changes_nothing(name: str, kind: type[Layout]) -> None:
    setup, operation, error, message = REFUSALS[name]
    layout = setup()
    layout.__class__ = kind
    before = snapshot(layout)
    with pytest.raises(error, match=message):
        operation(layout)
    assert snapshot(layout) == before


def test_formats_are_checked_at_once() -> None:
    with pytest.raises(AffineError, match="bits=7"):
        RotatingAffineLayout(4, 32, 7)
    with pytest.raises(RingShapeError, match="max_size=0"):
        RotatingAffineLayout(0, 32, 4)


FAILURES: dict[str, tuple[Any, Any]] = {
    "adopt": (lambda: RotatingAffineLayout(4, GROUP, BITS), lambda layout: layout.adopt_aligned_rows(two())),
    "merge": (idle, lambda layout: layout.merge_rows([layout, solo(4, [7], bits=BITS)])),
    "token": (idle, lambda layout: feed(layout, [50], [51], [52], [53])),
    "roll back": (
        lambda: feed(in_round(), [60], [61], [62], [63]),
        lambda layout: layout.spec_round_rollback([2, 1, 0, 2]),
    ),
    "filter in a round": (in_round, lambda layout: layout.filter_rows([2, 0])),
    "finalize": (pending, lambda layout: layout.finalize_prefill()),
    "trim": (lambda: packed(solo(4, [1, 2]), solo(4, [3])), lambda layout: layout.trim(1)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_running_out_of_memory_anywhere_changes_nothing(name: str) -> None:
    calls = assert_nothing_changes_on_failure(*FAILURES[name], snapshot)
    # MLX allocates at evaluation, so what replaces the contents of a ring is evaluated first.
    assert ("settle" in calls) == ("token" not in name)


def test_extraction_out_of_memory_changes_nothing() -> None:
    layout = idle()
    before = snapshot(layout)
    assert_nothing_changes_on_failure(lambda: layout, lambda same: same.extract_row(0), snapshot)
    assert snapshot(layout) == before
