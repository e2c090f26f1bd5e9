"""Rows that become affine one by one: when they cross, what stays, what the group answers, refusals, failures."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import AffinePlanes
from impl.errors import (
    RingError,
)
from impl.rings.aligned import align_rotating_rows
from impl.rings.layout import SpeculativeRotatingAffineLayout
from impl.rings.transitioning import TransitioningKvRows
from tests.impl.dense_attention import SCALE, TOLERANCE, dense, normal, to_float64
from tests.impl.rows import BITS, affine_rows, feed, four, group, group_snapshot, held, one_by_one, solo
from tests.impl.token_table import DTYPES, GROUP, HEADS, KEY_DIM, table


def test_each_row_crosses_when_it_has_its_own_number_of_tokens() -> None:
    rows = group(solo(4, [1, 2]), solo(4, [11]), solo(4), crossings=[4, 3, 5])
    seen = []
    for step in range(6):
        seen.append((rows.row_offsets, affine_rows(rows), rows.minimum_reusable_offsets, rows.packed is not None))
        feed(rows, [20 + step], [40 + step], [60 + step])
    assert seen == [
        ((2, 1, 0), [False, False, False], (0, 0, 0), False),
        ((3, 2, 1), [False, False, False], (0, 0, 0), False),
        ((4, 3, 2), [True, True, False], (4, 3, 0), False),
        ((5, 4, 3), [True, True, False], (4, 3, 0), False),
        ((6, 5, 4), [True, True, False], (4, 3, 0), False),
        ((7, 6, 5), [True, True, True], (4, 3, 5), True),
    ]
    assert rows.minimum_reusable_offset == 5
    assert [held(rows.extract_row(row)) for row in range(3)] == [
        [22, 23, 24, 25],
        [42, 43, 44, 45],
        [62, 63, 64, 65],
    ]


def test_rejected_tokens_do_not_make_a_row_cross() -> None:
    rows = group(solo(4, [1, 2, 3]), solo(4, [11]), crossings=[4, 9])
    rows.spec_round_begin()
    feed(rows, [4, 5], [12, 13])
    assert rows.row_offsets == (5, 3)
    assert rows.committed_offsets == (3, 1)
    assert affine_rows(rows) == [False, False]
    rows.spec_round_rollback([0, 2])
    assert affine_rows(rows) == [False, False]
    rows.spec_round_begin()
    feed(rows, [4, 5], [14, 15])
    rows.spec_round_rollback([1, 0])
    assert affine_rows(rows) == [True, False]
    assert rows.minimum_reusable_offsets == (4, 0)


def test_committed_tokens_do() -> None:
    rows = group(solo(4, [1, 2, 3]), solo(4, [11]), crossings=[4, 3])
    rows.spec_round_begin()
    feed(rows, [4, 5], [12, 13])
    feed(rows, [6], [14])
    assert affine_rows(rows) == [False, False]
    rows.spec_round_commit()
    assert rows.packed is not None
    assert rows.minimum_reusable_offsets == (6, 4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_make_a_row_cross(side: str) -> None:
    rows = TransitioningKvRows(8, GROUP, BITS, crossing_tokens=4)
    if side == "right":
        rows.prepare_prefill([2, 6], right_padding=[4, 0])
        feed(rows, [1, 2, -1, -1, -1, -1], [11, 12, 13, 14, 15, 16])
    else:
        rows.prepare_prefill([6, 6], left_padding=[4, 0])
        feed(rows, [-1, -1, -1, -1, 1, 2], [11, 12, 13, 14, 15, 16])
    assert rows.row_offsets == (6 if side == "right" else 2, 6)
    assert rows.committed_offsets == (2, 6)
    assert affine_rows(rows) == [False, True]
    rows.finalize_prefill()
    assert affine_rows(rows) == [False, True]
    assert [held(rows.extract_row(row)) for row in (0, 1)] == [[1, 2], [11, 12, 13, 14, 15, 16]]


def test_rows_without_tokens_may_be_due_at_once() -> None:
    rows = TransitioningKvRows(4, GROUP, BITS, crossing_tokens=0)
    rows.prepare_prefill([1, 2], right_padding=[1, 0])
    assert rows.packed is not None
    feed(rows, [1, -1], [11, 12])
    rows.finalize_prefill()
    assert [held(rows.extract_row(row)) for row in (0, 1)] == [[1], [11, 12]]


def test_the_last_plain_row_may_leave() -> None:
    rows = group(solo(4, [1, 2, 3, 4]), solo(4, [11]), solo(4, [21, 22, 23, 24, 25]), crossings=[4, 7, 5])
    assert affine_rows(rows) == [True, False, True]
    rows.filter_rows([2, 0])
    assert rows.packed is not None
    assert rows.row_crossing_tokens == (5, 4)
    assert (rows.row_offsets, rows.minimum_reusable_offsets) == ((5, 4), (5, 4))
    rows.filter_rows([])
    assert (rows.row_offsets, rows.state()) == ((), [])
    rows.prepare_prefill([1])
    assert affine_rows(rows) == [False]


def test_it_may_leave_an_open_round_too() -> None:
    rows = group(solo(4, [1, 2, 3, 4]), solo(4, [11]))
    rows.spec_round_begin()
    feed(rows, [5, 6], [12, 13])
    rows.filter_rows([0])
    assert len(rows.rows) == 1, "nothing is stored in another way while a round is open"
    rows.spec_round_rollback([1])
    assert rows.packed is not None
    assert held(rows.extract_row(0)) == [2, 3, 4, 5]


def test_membership_changes_align_anew() -> None:
    rows = group(*four(), crossings=[6, 99, 99, 99])
    assert affine_rows(rows) == [True, False, False, False]
    other = group(solo(4, [301], bits=BITS), one_by_one(4, [401, 402, 403, 404]))
    before = group_snapshot(rows), group_snapshot(other)
    both = rows.make_empty_batch()
    layout = SpeculativeRotatingAffineLayout(4, GROUP, BITS)
    layout.merge_rows([solo(4, [501, 502], bits=BITS)])
    both.merge_rows([rows, other, layout, align_rotating_rows([solo(4, [601])])[0], solo(4)])
    assert both.row_offsets == (6, 2, 0, 9, 1, 4, 2, 1, 0)
    assert both.row_crossing_tokens == (6, 99, 99, 99, 4, 4, 4, 4, 4)
    assert affine_rows(both) == [True, False, False, False, True, True, True, False, False]
    assert both.minimum_reusable_offsets == (6, 0, 0, 0, 0, 4, 0, 0, 0)
    assert (group_snapshot(rows), group_snapshot(other)) == before
    assert [held(row)[-2:] for row in both.rows[:2]] == [[5, 6], [101, 102]]
    both.merge_rows([both], crossing_tokens=[1] * 9)
    assert affine_rows(both) == [True, True, False, True, True, True, True, True, False]


@pytest.mark.parametrize("default", [0, 4])
def test_a_copy_goes_its_own_way(default: int) -> None:
    rows = group(*four(), default=default)
    before = group_snapshot(rows)
    twin = rows.copy()
    twin.spec_round_begin()
    feed(twin, [50], [51], [52], [53])
    twin.spec_round_rollback([0, 1, 1, 0])
    twin.filter_rows([1])
    assert group_snapshot(rows) == before
    feed(rows, [50], [51], [52], [53])
    assert twin.row_offsets == (3,)


def test_bytes_are_the_mean_of_the_rows() -> None:
    rows = group(solo(4, [1, 2, 3, 4]), solo(4, [11]))
    plain, packed = 2 * (64 + 32) * 4, 2 * (64 + 32) // 2 + 2 * 3 * 8
    assert rows.nbytes == 4 * (plain + packed)
    assert rows.bytes_per_token() == (plain + packed) / 2
    assert rows.projected_bytes(3) == 3 * (plain + packed) / 2
    assert rows.projected_bytes(99) == 4 * (plain + packed) / 2
    assert group().bytes_per_token() == 0
    assert rows.signature() == "kv:rotating-transitioning:4:32:4"
    assert (rows.max_tokens, rows.is_trimmable()) == (4, False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_row_attends_in_its_own_precision(dtype: mx.Dtype) -> None:
    sources = [solo(4, [1, 2, 3], dtype=dtype), solo(4, [11], dtype=dtype), solo(4)]
    rows = TransitioningKvRows(4, GROUP, 8, crossing_tokens=5)
    rows.merge_rows(sources)
    lists = [[1, 2, 3], [11], []]
    sinks, tolerance = mx.array([0.5, -1.0, 0.0, 2.0]), TOLERANCE[dtype]
    kinds: list[list[bool]] = []
    for count in (1, 2, 1, 3, 1, 1):
        ids = [[100 * row + 20 + len(tokens) + i for i in range(count)] for row, tokens in enumerate(lists)]
        queries = normal((3, 2 * HEADS, count, KEY_DIM), count, dtype)
        mask = rows.make_mask(count, 3)
        kinds.append(affine_rows(rows))
        view = rows.update_and_fetch(*table(dtype, None).block(ids))
        got = view.attend(queries, SCALE, mask, sinks)
        for row, tokens in enumerate(lists):
            tokens.extend(ids[row])
            for query in range(count):
                end = len(tokens) - count + query + 1
                keys, values = table(dtype, None).block([tokens[max(0, end - 3) : end]])
                if kinds[-1][row]:
                    keys, values = (
                        mx.dequantize(*mx.quantize(x, group_size=GROUP, bits=8), group_size=GROUP, bits=8)
                        for x in (keys, values)
                    )
                alone = dense(queries[row : row + 1, :, query : query + 1], keys, values, None, sinks)
                found = to_float64(got[row : row + 1, :, query : query + 1])
                np.testing.assert_allclose(found, alone, rtol=tolerance, atol=tolerance)
    assert kinds == [[False] * 3] * 2 + [[True, False, False], [True, True, False]] + [[True] * 3] * 2
    assert rows.packed is not None


def test_donors_of_mixed_rows_are_joined() -> None:
    rows = group(one_by_one(4, range(1, 7)), solo(4, [11, 12]), solo(4))
    donor = rows.capture_donor_attention()
    assert (donor.width, donor.offsets, donor.starts, donor.ends) == (4, (6, 2, 0), (0, 2, 4), (4, 4, 4))
    assert [isinstance(keys, AffinePlanes) for keys, _ in donor.view.parts] == [True, False, False]
    rows.prepare_prefill([1, 4, 2], right_padding=[3, 0, 2])
    feed(rows, [7, -1], [13, 14], [21, 22])
    feed(rows, [-1, -1], [15, 16], [-1, -1])
    pending = rows.capture_donor_attention()
    assert len({keys.shape[2] for keys, _ in pending.view.parts}) == 1
    assert [end - start for start, end in zip(pending.starts, pending.ends, strict=True)] == [3, 4, 2]
    assert pending.offsets == (7, 6, 2)
    with pytest.raises(RingError, match="merge rows first"):
        group().capture_donor_attention()
    with pytest.raises(RingError, match="prefill it first"):
        group(solo(4)).capture_donor_attention()


def test_only_the_newest_window_is_extracted() -> None:
    rows = group(solo(4, [1, 2, 3, 4]), solo(4, [11]), crossings=[4, 9])
    feed(rows, [5, 6, 7], [12, 13, 14])
    assert [held(rows.extract_row(row)) for row in (0, 1)] == [[4, 5, 6, 7], [11, 12, 13, 14]]
    assert [held(rows.extract_row(row, 9)) for row in (0, 1)] == [[4, 5, 6, 7], [11, 12, 13, 14]]
    assert [held(rows.extract_row(row, 2)) for row in (0, 1)] == [[6, 7], [13, 14]]


def test_what_was_handed_out_is_not_converted() -> None:
    rows = group(solo(4, [1, 2, 3]))
    view = rows.update_and_fetch(*table(mx.float32, None).block([[4]]))
    assert rows.packed is not None
    [(keys, values)] = view.parts
    assert table(mx.float32, None).read(keys, values) == [[1, 2, 3, 4]]


def test_a_decoded_token_is_written_in_place() -> None:
    rows = group(solo(2048), solo(2048), max_size=2048, default=9999)
    block = normal((2, HEADS, 2048, KEY_DIM), 1)
    rows.update_and_fetch(block, block + 1)
    del block
    step = normal((2, HEADS, 1, KEY_DIM), 2)
    mx.eval([list(part) for part in rows.update_and_fetch(step, step).parts])
    mx.reset_peak_memory()
    start = mx.get_active_memory()
    for _ in range(3):
        mx.eval([list(part) for part in rows.update_and_fetch(step, step).parts])
    assert mx.get_peak_memory() - start < rows.nbytes // 8
