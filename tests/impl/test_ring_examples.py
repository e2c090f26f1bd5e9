"""Worked examples of rings: buffers, masks and counters written out, tokens as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from impl.affine import AffinePlanes, dequantize
from impl.attention import attend
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.donor import donor_span
from impl.rings.masks import build_batched_rotating_mask, make_ring_mask
from impl.rings.position import UNBOUNDED, BatchedRotatingState
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring, rotating_rollback_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.attention import Mask
    from impl.rings.ring import RotatingRing


def block(ids: Sequence[Sequence[int]], head_dim: int = 2) -> mx.array:
    return mx.broadcast_to(
        mx.array(np.array(ids, dtype=np.float32))[:, None, :, None], (len(ids), 1, len(ids[0]), head_dim)
    )


def feed(ring: RotatingRing[mx.array], *ids: Sequence[int]) -> list[list[int]]:
    """Update with the tokens of each row, and list the columns that come back."""
    keys, values = ring.update_and_fetch(block(ids), -block(ids, head_dim=3))
    assert bool(mx.array_equal(keys[..., 0], -values[..., 0]))
    return show(keys)


def show(keys: mx.array | None) -> list[list[int]]:
    return [] if keys is None else np.array(keys[:, 0, :, 0]).astype(int).tolist()


def bits(mask: Mask) -> list[list[str]]:
    """Write a mask as rows of strings such as ``0111``."""
    assert isinstance(mask, mx.array)
    return [["".join("01"[int(seen)] for seen in query) for query in row] for row in np.array(mask[:, 0])]


def solo(max_size: int, *blocks: Sequence[int]) -> RotatingKVCache:
    ring = RotatingKVCache(max_size)
    for ids in blocks:
        feed(ring, ids)
    return ring


def two_rows() -> BatchedRotatingCache:
    return BatchedRotatingCache.merge([solo(4, [1, 2, 3, 4]), solo(4, [101])])


def after_block() -> BatchedRotatingCache:
    ring = two_rows()
    feed(ring, [5], [102])
    feed(ring, [6, 7, 8], [103, 104, 105])
    return ring


def test_merge_decode_and_block() -> None:
    ring = two_rows()
    assert (ring.left_pad, ring.position.active_length, ring.row_offsets) == ((0, 3), 4, (4, 1))
    assert bits(ring.make_mask(1)) == [["1111"], ["1001"]]
    assert feed(ring, [5], [102]) == [[5, 2, 3, 4], [102, 0, 0, 101]]
    assert (ring.ring_index, ring.position.rotated, ring.left_pad) == (1, True, (0, 2))
    assert bits(ring.make_mask(3)) == [["111100", "011110", "001111"], ["011100", "011110", "001111"]]
    assert feed(ring, [6, 7, 8], [103, 104, 105]) == [[3, 4, 5, 6, 7, 8], [0, 101, 102, 103, 104, 105]]
    assert ring.position == BatchedRotatingState(4, (8, 5), (0, 1), 6, 8)
    assert (ring.offset, ring.batch_size) == (8, 2)


def test_rollback_with_unequal_keeps_moves_rows() -> None:
    ring = after_block()
    plan = rotating_rollback_plan(ring.position, [5, 2], [1, 3])
    assert (plan.trim, plan.shifts) == (None, (2, 0))
    rolled = rollback_rotating_ring(ring, [5, 2], [1, 3])
    assert show(rolled.keys) == [[7, 8, 3, 4, 5, 6], [0, 101, 102, 103, 104, 105]]
    assert rolled.position == BatchedRotatingState(4, (6, 5), (2, 1), 6, 8)
    assert rolled.make_mask(1) is None
    assert feed(rolled, [9], [106]) == [[9, 4, 5, 6], [106, 103, 104, 105]]
    assert ring.position == after_block().position


def test_rollback_with_equal_keeps_cuts() -> None:
    ring = after_block()
    assert rotating_rollback_plan(ring.position, [5, 2], 0).trim == 3
    cut = rollback_rotating_ring(ring, [5, 2], [0, 0])
    assert show(cut.keys) == [[3, 4, 5], [0, 101, 102]]
    assert cut.position == BatchedRotatingState(4, (5, 2), (0, 1), 3, 5)
    assert [cut.position.stored(row) for row in (0, 1)] == [3, 2]


def test_rollback_with_preserved_columns_moves_every_row() -> None:
    rolled = rollback_rotating_ring(after_block(), [5, 2], [0, 0], preserve_columns=True)
    assert show(rolled.keys)[0] == [6, 7, 8, 3, 4, 5]
    assert rolled.position == BatchedRotatingState(4, (5, 2), (3, 4), 6, 8)
    nothing = rollback_rotating_ring(after_block(), [5, 2], 3, preserve_columns=True)
    assert nothing.position == after_block().position


def test_a_prefill_padded_on_the_right() -> None:
    ring = BatchedRotatingCache(4)
    ring.prepare_prefill([2, 6], right_padding=[4, 0])
    feed(ring, [1, 2, 0, 0, 0, 0], [11, 12, 13, 14, 15, 16])
    span = donor_span(ring.position)
    assert (span.offsets, span.starts, span.ends, span.stop - span.start) == ((2, 6), (0, 2), (2, 6), 6)
    ring.finalize_prefill()
    span = donor_span(ring.position)
    assert (span.starts, span.ends, span.stop - span.start) == ((2, 0), (4, 4), 4)
    assert show(ring.keys) == [[0, 0, 0, 0, 1, 2], [11, 12, 13, 14, 15, 16]]
    assert (ring.row_offsets, ring.left_pad, ring.offset) == ((2, 6), (4, 0), 6)


def test_a_row_that_ended_early_is_one_short() -> None:
    ring = BatchedRotatingCache(4)
    ring.prepare_prefill([5, 7], right_padding=[2, 0])
    feed(ring, [1, 2, 3, 4, 5], [11, 12, 13, 14, 15])
    feed(ring, [0, 0], [16, 17])
    span = donor_span(ring.position)
    assert (span.starts[0], span.ends[0]) == (0, 3)
    ring.finalize_prefill()
    assert show(ring.extract_row(0).keys) == [[3, 4, 5]]
    assert ring.extract_row(0).offset == 5


def test_rows_may_leave_and_be_extracted_while_a_prefill_is_open() -> None:
    ring = BatchedRotatingCache(2)
    ring.prepare_prefill([1, 3], right_padding=[2, 0])
    feed(ring, [1, 0], [11, 12])
    early = ring.extract_row(0)
    assert (show(early.keys), early.offset) == ([[1]], 1)
    ring.filter_rows([1])
    assert ring.position.prefill_ends == (3,)
    assert feed(ring, [13]) == [[12, 13]]
    ring.finalize_prefill()
    assert ring.position == BatchedRotatingState(2, (3,), (0,), 2, 3)


def test_a_row_whose_padding_is_still_to_come_is_extracted_as_an_empty_ring() -> None:
    ring = BatchedRotatingCache(4, left_padding=[3, 0])
    feed(ring, [0, 0], [11, 12])
    row = ring.extract_row(0)
    assert (row.offset, row.keys) == (0, None)
    assert feed(row, [1]) == [[1]]


def test_a_row_that_lost_history_makes_the_batch_untrimmable() -> None:
    ring = BatchedRotatingCache.merge([solo(4, [1, 2, 3, 4, 5, 6])])
    rolled = rollback_rotating_ring(ring, [5], 0)
    assert (rolled.position.total_offset, rolled.is_trimmable()) == (3, False)
    assert rolled.position.max_trim() == 0


def test_padding_that_left_the_ring_does_not_count_after_a_trim() -> None:
    ring = BatchedRotatingCache(3, left_padding=[1])
    feed(ring, [0])
    for token in (1, 2, 3):
        feed(ring, [token])
    assert (ring.offset, ring.left_pad) == (4, (0,))
    ring.trim(2)
    assert (ring.offset, ring.row_offsets, ring.position.active_length) == (1, (1,), 1)
    assert ring.is_trimmable()


def test_one_token_chunks_of_an_open_prefill_are_appended() -> None:
    ring = BatchedRotatingCache(2)
    ring.prepare_prefill([1, 3], right_padding=[2, 0])
    feed(ring, [1, 0], [11, 12])
    assert feed(ring, [0], [13]) == [[1, 0], [12, 13]]
    ring.finalize_prefill()
    assert show(ring.extract_row(0).keys) == [[1]]
    assert show(ring.extract_row(1).keys) == [[12, 13]]


def test_a_prefill_padded_on_the_left() -> None:
    ring = BatchedRotatingCache(4)
    ring.prepare_prefill([3, 3], left_padding=[2, 0])
    assert ring.row_offsets == (-2, 0)
    assert bits(ring.make_mask(2)) == [["00", "00"], ["10", "11"]]
    feed(ring, [0, 0], [11, 12])
    assert feed(ring, [1], [13]) == [[0, 0, 1], [11, 12, 13]]
    assert (ring.row_offsets, ring.left_pad) == ((1, 3), (2, 0))


def test_trimming_announced_padding_keeps_it_announced() -> None:
    ring = BatchedRotatingCache(4, left_padding=[2, 0])
    ring.restore_state(None, None, ring.position)
    feed(ring, [0, 0, 1], [11, 12, 13])
    assert ring.trim(1) == 1
    assert (ring.row_offsets, ring.left_pad) == ((0, 2), (2, 0))
    assert ring.position.rolled([2, 0]).left_pad == (4, 0)


def test_single_steps_can_be_taken_back_as_long_as_the_history_is_held() -> None:
    for keep, tokens in ((2, [3, 4, 5, 6]), (1, [3, 4, 5])):
        ring = BatchedRotatingCache.merge([solo(4, [1, 2, 3, 4])])
        feed(ring, [5])
        feed(ring, [6])
        rolled = rollback_rotating_ring(ring, [4], keep)
        view = rolled.temporal_view()
        assert view is not None
        assert show(view[0]) == [tokens]


def test_solo_ring_wraps_in_place_and_reorders_for_a_block() -> None:
    ring = solo(4, [1, 2, 3])
    assert feed(ring, [4]) == [[1, 2, 3, 4]]
    assert ring.make_mask(1) is None
    assert feed(ring, [5]) == [[5, 2, 3, 4]]
    assert bits(ring.make_mask(1, 2)) == [["1100"]]
    assert feed(ring, [6]) == [[5, 6, 3, 4]]
    assert feed(ring, [7, 8]) == [[4, 5, 6, 7, 8]]
    assert feed(ring, [9]) == [[9, 6, 7, 8]]
    assert (ring.offset, ring.ring_index) == (9, 1)


def test_solo_trim_after_a_block_across_the_window_leaves_no_trace() -> None:
    ring = solo(8, [1, 2, 3, 4, 5, 6, 7], [8, 9, 10])
    assert not ring.is_trimmable()
    assert ring.trim(3) == 3
    assert ring.is_trimmable()
    mask = ring.make_mask(1)
    assert mask is None
    assert feed(ring, [11]) == [[1, 2, 3, 4, 5, 6, 7, 11]]


def test_a_ring_that_lost_history_grows_by_one_column() -> None:
    ring = solo(4, [1, 2, 3, 4, 5]).extract(2)
    assert feed(ring, [6]) == [[4, 5, 6]]
    assert ring.keys is not None
    assert ring.keys.shape[2] == ring.ring_index == 3
    fresh = solo(400, [1])
    feed(fresh, [2])
    assert fresh.keys is not None
    assert (fresh.keys.shape[2], fresh.ring_index) == (256, 2)


def test_a_window_of_one_sees_itself_only() -> None:
    ring = solo(1, [1, 2, 3])
    assert bits(ring.make_mask(2, return_array=True)) == [["10", "01"]]
    assert feed(ring, [4]) == [[4]]
    assert feed(ring, [5, 6]) == [[5, 6]]


def test_an_unbounded_ring_is_a_full_cache() -> None:
    ring = solo(UNBOUNDED, [1, 2, 3])
    assert ring.make_mask(2) == "causal"
    assert ring.make_mask(1) is None
    assert feed(ring, [4]) == [[1, 2, 3, 4]]
    assert ring.keys is not None
    assert ring.keys.shape[2] == 3 + 256
    assert feed(ring, [5, 6]) == [[1, 2, 3, 4, 5, 6]]
    assert bits(ring.make_mask(1, 2)) == [["0000011"]]
    batch = BatchedRotatingCache.merge([ring, solo(UNBOUNDED, [7])])
    assert feed(batch, [8], [9]) == [[1, 2, 3, 4, 5, 6, 8], [0, 0, 0, 0, 0, 7, 9]]
    assert ring.trim(6) == 6
    assert ring.keys is None


@pytest.mark.parametrize("max_size", [1, 2, 3, 5, 8])
def test_shortcuts_say_what_the_array_says(max_size: int) -> None:
    for length in range(max_size + 3):
        position = BatchedRotatingState(max_size, (length,), (0,), length, length)
        for tokens in (1, 2, 3, max_size + 2):
            for window in (None, 1, 2, max_size, max_size + 1):
                mask = np.array(build_batched_rotating_mask(position, tokens, window))[0, 0]
                short = make_ring_mask(position, tokens, window)
                if not isinstance(short, mx.array):
                    assert np.array_equal(mask, np.tril(np.ones_like(mask), mask.shape[1] - tokens))
                elif length + tokens <= min(max_size, window or max_size):
                    pytest.fail("no mask is needed while everything is visible")


def test_extend_aligns_both_batches_at_the_end() -> None:
    first, second = two_rows(), BatchedRotatingCache.merge([solo(4, [201, 202])])
    feed(first, [5], [102])
    first.extend(second)
    assert show(first.keys) == [[2, 3, 4, 5], [0, 0, 101, 102], [0, 0, 201, 202]]
    assert first.position == BatchedRotatingState(4, (5, 2, 2), (0, 2, 2), 4, 5)
    assert show(second.keys) == [[201, 202]]
    empty = BatchedRotatingCache(4, left_padding=[0])
    first.extend(empty)
    assert first.left_pad == (0, 2, 2, 4)
    empty.extend(second)
    assert show(empty.keys) == [[0, 0], [201, 202]]
    nothing = BatchedRotatingCache(4)
    nothing.extend(second)
    assert nothing.position == second.position
    nothing.extend(BatchedRotatingCache(4))
    assert nothing.position == second.position


def test_merge_of_unlike_rows() -> None:
    rows = [solo(4, [1, 2, 3], [4], [5], [6]), solo(4, [101, 102]), solo(4), solo(4, list(range(301, 310)))]
    ring = BatchedRotatingCache.merge(rows)
    assert show(ring.keys) == [[3, 4, 5, 6], [0, 0, 101, 102], [0, 0, 0, 0], [306, 307, 308, 309]]
    assert ring.position == BatchedRotatingState(4, (6, 2, 0, 9), (0, 2, 4, 0), 4, 4)
    assert rows[3].offset == 9
    assert BatchedRotatingCache.merge([solo(4), solo(4)]).position == BatchedRotatingState(4, (0, 0), (0, 0))


def test_filter_to_nothing_leaves_an_empty_batch() -> None:
    ring = after_block()
    ring.filter_rows([])
    assert ring.position == BatchedRotatingState(4)
    assert (ring.keys, ring.rope_offset_arr, ring.state(), ring.nbytes, ring.bytes_per_token()) == (
        None,
        None,
        [],
        0,
        0,
    )


def test_bytes() -> None:
    ring = BatchedRotatingQuantCache(4, group_size=32, bits=4, left_padding=[0, 0])
    keys = mx.zeros((2, 1, 6, 64), dtype=mx.float16)
    planes, _ = ring.update_and_fetch(keys, keys)
    assert isinstance(planes, AffinePlanes)
    assert (ring.nbytes, ring.bytes_per_token(), ring.projected_bytes(1000)) == (960, 80.0, 320.0)
    assert sum(array.nbytes for array in ring.state()) == 960
    assert ring.signature() == "kv:rotating-affine:4:32:4"
    assert two_rows().signature() == solo(4).signature() == "kv:rotating-plain:4"


def test_the_reuse_floor_travels_with_a_row() -> None:
    ring = RotatingKVCache(4)
    x = mx.random.normal((1, 1, 3, 64))
    ring.update_and_fetch(x, x)
    ring.minimum_reusable_offset = 2
    affine = ring.to_quantized(64, 4)
    assert isinstance(affine, RotatingQuantizedKVCache)
    assert affine.minimum_reusable_offset == affine.copy().minimum_reusable_offset == 2
    assert affine.extract(1).minimum_reusable_offset == 2


def test_state_can_be_restored_elsewhere() -> None:
    ring = solo(4, [1, 2, 3], [4], [5])
    other = RotatingKVCache(4)
    other.restore_state(ring.keys, ring.values, ring.offset, ring.ring_index)
    assert feed(other, [6, 7]) == feed(ring, [6, 7]) == [[3, 4, 5, 6, 7]]


def test_speculative_round() -> None:
    ring = SpeculativeRotatingKVCache(4)
    ring.merge_rows([solo(4, [1, 2, 3, 4]), solo(4, [101])])
    ring.spec_round_begin()
    feed(ring, [5, 6, 7], [102, 103, 104])
    assert list(ring.round_offsets or ()) == [4, 1]
    lent = ring.capture_donor_rows()
    assert (show(lent.keys), lent.starts, lent.ends) == ([[4, 5, 6, 7], [101, 102, 103, 104]], (0, 0), (4, 4))
    ring.filter_rows([1, 0])
    ring.spec_round_rollback([2, 0])
    assert (ring.round_offsets, ring.batch_size) == (None, 2)
    assert show(ring.extract_row(0).keys) == [[101, 102, 103]]
    assert show(ring.extract_row(1).keys) == [[2, 3, 4]]
    other = ring.make_empty_batch()
    other.merge_rows([ring])
    assert other.position == ring.position
    other.merge_rows([ring, solo(4, [201])])
    assert (other.row_offsets, show(other.keys)[2]) == ((3, 4, 1), [0, 0, 201])
    other.merge_rows([])
    assert other.position == BatchedRotatingState(4)
    ring.spec_round_begin()
    feed(ring, [104], [5])
    ring.spec_round_commit()
    assert ring.row_offsets == (4, 5)


@pytest.mark.parametrize("affine", [False, True])
def test_attention_over_a_wrapped_batch_equals_attention_over_each_row(affine: bool) -> None:
    rng = np.random.default_rng(3)
    solos = [RotatingQuantizedKVCache(4, 32, 8) if affine else RotatingKVCache(4) for _ in range(2)]
    for ring, tokens in zip(solos, (6, 2), strict=True):
        x = mx.array(rng.standard_normal((1, 2, tokens, 32)).astype(np.float32))
        ring.update_and_fetch(x, x + 1)
    batch: BatchedRotatingCache | BatchedRotatingQuantCache
    if affine:
        batch = BatchedRotatingQuantCache.merge([s for s in solos if isinstance(s, RotatingQuantizedKVCache)])
    else:
        batch = BatchedRotatingCache.merge([s for s in solos if isinstance(s, RotatingKVCache)])
    for tokens in (1, 1, 3, 1):
        x = mx.array(rng.standard_normal((2, 2, tokens, 32)).astype(np.float32))
        queries = mx.array(rng.standard_normal((2, 4, tokens, 32)).astype(np.float32))
        mask = batch.make_mask(tokens)
        keys, values = batch.update_and_fetch(x, x + 1)
        together = attend(queries, keys, values, 0.2, mask)
        for row, ring in enumerate(solos):
            here = slice(row, row + 1)
            mask = ring.make_mask(tokens)
            keys, values = ring.update_and_fetch(x[here], x[here] + 1)
            if isinstance(keys, AffinePlanes) and isinstance(values, AffinePlanes):
                alone = attend(queries[here], dequantize(keys), dequantize(values), 0.2, mask)
            else:
                alone = attend(queries[here], keys, values, 0.2, mask)
            np.testing.assert_allclose(np.array(together[here]), np.array(alone), rtol=1e-4, atol=1e-5)
