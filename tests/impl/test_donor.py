"""Rings lent to query-only layers: which tokens a row lends, and attention over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl import affine
from impl.affine import AffinePlanes
from impl.errors import AttentionError, MergeError, RingError, RingShapeError
from impl.rings.aligned import align_rotating_rows
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.donor import DonorAttention, capture_donor_rows, capture_rotating_donor_attention, join_donors
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring
from tests.impl.dense_attention import SCALE, TOLERANCE, dense, normal, to_float64
from tests.impl.rows import BITS, feed, solo
from tests.impl.token_table import DTYPES, GROUP, HEADS, KEY_DIM, columns_of, table

if TYPE_CHECKING:
    from collections.abc import Sequence


def batch(max_size: int, *rows: Sequence[int], bits: int | None = None, dtype: mx.Dtype = mx.float32) -> Any:
    solos = [solo(max_size, ids, bits=bits, dtype=dtype) if ids else solo(max_size, bits=bits) for ids in rows]
    kind: Any = SpeculativeRotatingKVCache if bits is None else BatchedRotatingQuantCache
    return kind.merge(solos)


def lent(donor: DonorAttention, window: int | None = None) -> list[list[int]]:
    """Tokens that a layer of this window sees, per row."""
    columns: list[list[int]] = []
    for keys, values in donor.view.parts:
        bits = keys.bits if isinstance(keys, AffinePlanes) else None
        columns += table(donor.dtype, bits).read(keys, values)
    starts = donor.window_starts(window)
    return [row[start:end] for row, start, end in zip(columns, starts, donor.ends, strict=True)]


def ranges(donor: DonorAttention) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return donor.width, donor.offsets, donor.starts, donor.ends


@pytest.mark.parametrize("bits", [None, BITS])
def test_an_open_prefill_lends_its_whole_rectangle(bits: int | None) -> None:
    ring = batch(4, [], [], bits=bits)
    ring.prepare_prefill([2, 6], right_padding=[4, 0])
    feed(ring, [1, 2, -1, -1, -1, -1], [11, 12, 13, 14, 15, 16])
    donor = capture_rotating_donor_attention(ring)
    assert ranges(donor) == (6, (2, 6), (0, 2), (2, 6))
    assert lent(donor) == [[1, 2], [13, 14, 15, 16]]
    ring.finalize_prefill()
    after = capture_rotating_donor_attention(ring)
    assert ranges(after) == (4, (2, 6), (2, 0), (4, 4))
    assert lent(after) == lent(donor) == [[1, 2], [13, 14, 15, 16]]


def test_a_row_that_ended_before_a_chunk_is_one_short() -> None:
    ring = batch(4, [], [])
    ring.prepare_prefill([5, 7], right_padding=[2, 0])
    feed(ring, [1, 2, 3, 4, 5], [11, 12, 13, 14, 15])
    feed(ring, [-1, -1], [16, 17])
    donor = capture_rotating_donor_attention(ring)
    assert ranges(donor) == (5, (5, 7), (0, 1), (3, 5))
    assert lent(donor) == [[3, 4, 5], [14, 15, 16, 17]]


@pytest.mark.parametrize(("lengths", "expected"), [([1, 3], [[1], [12, 13]]), ([0, 3], [[], [12, 13]])])
def test_smallest_open_prefills(lengths: list[int], expected: list[list[int]]) -> None:
    ring = batch(2, [], [])
    ring.prepare_prefill(lengths, right_padding=[3 - length for length in lengths])
    feed(ring, [*[1] * lengths[0], *[-1] * (3 - lengths[0])], [11, 12, 13])
    assert lent(capture_rotating_donor_attention(ring)) == expected
    assert capture_rotating_donor_attention(ring).width == 3


def test_a_row_whose_left_padding_is_still_to_come_lends_nothing() -> None:
    ring = BatchedRotatingCache(4)
    ring.prepare_prefill([5, 5], left_padding=[4, 0])
    feed(ring, [-1, -1], [11, 12])
    donor = capture_rotating_donor_attention(ring)
    assert ranges(donor) == (2, (-2, 2), (2, 0), (2, 2))
    assert lent(donor) == [[], [11, 12]]


@pytest.mark.parametrize("bits", [None, BITS])
def test_wrapped_oversized_and_short_rings_lend_the_newest_tokens_in_order(bits: int | None) -> None:
    wrapped = solo(4, [1, 2, 3], [4], [5], [6], bits=bits)
    assert lent(capture_rotating_donor_attention(wrapped)) == [[3, 4, 5, 6]]
    assert ranges(capture_rotating_donor_attention(wrapped)) == (4, (6,), (0,), (4,))
    oversized = solo(4, list(range(1, 10)), bits=bits)
    assert lent(capture_rotating_donor_attention(oversized)) == [[6, 7, 8, 9]]
    assert capture_rotating_donor_attention(oversized).width == 4
    rows = batch(4, [1, 2, 3, 4], [11], [], bits=bits)
    assert ranges(capture_rotating_donor_attention(rows)) == (4, (4, 1, 0), (0, 3, 4), (4, 4, 4))
    assert lent(capture_rotating_donor_attention(rows)) == [[1, 2, 3, 4], [11], []]
    short = rollback_rotating_ring(feed(rows, [5, 6], [12, 13], [21, 22]), [4, 1, 0], 0)
    assert lent(capture_rotating_donor_attention(short)) == [[2, 3, 4], [11], []]


def test_a_window_sees_the_newest_tokens_and_whole_rows_need_no_mask() -> None:
    donor = capture_rotating_donor_attention(batch(4, [1, 2, 3, 4], [11, 12]))
    assert [lent(donor, window) for window in (1, 2, 3, 4, 9, None)] == [
        [[4], [12]],
        [[3, 4], [11, 12]],
        [[2, 3, 4], [11, 12]],
        *[[[1, 2, 3, 4], [11, 12]]] * 3,
    ]
    mask = donor.mask(3)
    assert mask is not None
    assert mask.tolist() == [[[[False, True, True, True]]], [[[False, False, True, True]]]]
    whole = capture_rotating_donor_attention(batch(4, [1, 2, 3, 4], [11, 12, 13, 14]))
    assert whole.mask() is None
    assert whole.mask(4) is None
    assert whole.mask(3) is not None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage", ["plain", "affine", "mixed"])
@pytest.mark.parametrize("window", [None, 3, 1])
def test_attention_is_dense_attention_over_the_newest_tokens(storage: str, window: int | None, dtype: mx.Dtype) -> None:
    ids: list[list[int]] = [[1, 2, 3, 4, 5, 6], [11, 12], [21, 22, 23, 24]]
    precisions: dict[str, list[int | None]] = {"plain": [None] * 3, "affine": [8] * 3, "mixed": [None, 8, None]}
    bits = precisions[storage]
    rows = [solo(4, row, bits=kind, dtype=dtype) for row, kind in zip(ids, bits, strict=True)]
    donor = join_donors([row.capture_donor_attention() for row in align_rotating_rows(rows)])
    assert donor.dtype == dtype
    queries = normal((3, 2 * HEADS, 5, KEY_DIM), 7, dtype)
    sinks = mx.array([0.5, -1.0, 2.0, 0.0])
    tolerance = TOLERANCE[dtype]
    for kind in (donor, donor.decoded()):
        for logits in (None, sinks):
            got = kind.attend(queries, SCALE, window, sinks=logits)
            for row, tokens in enumerate(ids):
                seen = [tokens[-min(window or 4, 4, len(tokens)) :]]
                keys, values = (decoded(plane, bits[row]) for plane in table(dtype, None).block(seen))
                expected = dense(queries[row : row + 1], keys, values, None, logits)
                np.testing.assert_allclose(to_float64(got[row : row + 1]), expected, rtol=tolerance, atol=tolerance)


def decoded(plane: mx.array, bits: int | None) -> mx.array:
    return plane if bits is None else affine.dequantize(affine.quantize(plane, GROUP, bits))


def test_a_mask_of_the_caller_hides_more_and_never_shows_more() -> None:
    donor = capture_rotating_donor_attention(batch(4, [1, 2, 3, 4], [11, 12]))
    queries = normal((2, HEADS, 1, KEY_DIM), 3)
    everything = mx.ones((1, 1, 1, 4), dtype=mx.bool_)
    assert mx.array_equal(donor.attend(queries, SCALE, mask=everything), donor.attend(queries, SCALE))
    newest = mx.array([[[[False, False, False, True]]]])
    assert mx.array_equal(donor.attend(queries, SCALE, mask=newest), donor.attend(queries, SCALE, 1))
    whole = capture_rotating_donor_attention(batch(4, [1, 2, 3, 4]))
    assert mx.array_equal(whole.attend(queries[:1], SCALE, mask=newest), whole.attend(queries[:1], SCALE, 1))


def test_affine_rows_are_lent_as_they_are_and_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = feed(batch(4, [1, 2, 3, 4], [11, 12], bits=BITS), [5], [13])
    donor = capture_rotating_donor_attention(ring)
    [(keys, _)] = donor.view.parts
    assert isinstance(keys, AffinePlanes)
    assert (keys.group_size, keys.bits) == (GROUP, BITS)
    queries = normal((2, HEADS, 1, KEY_DIM), 3)
    expected = donor.decoded().attend(queries, SCALE)
    monkeypatch.setattr(mx, "dequantize", None)
    got = donor.attend(queries, SCALE)
    np.testing.assert_allclose(to_float64(got), to_float64(expected), rtol=1e-4, atol=1e-4)


CHANGES: dict[str, Any] = {
    "token": lambda ring: feed(ring, [5], [13]),
    "tokens": lambda ring: [feed(ring, [5 + i], [13 + i]) for i in range(5)],
    "block": lambda ring: feed(ring, [5, 6, 7], [13, 14, 15]),
    "trim": lambda ring: ring.trim(1),
    "filter": lambda ring: (ring.filter_rows([1]), feed(ring, [13])),
    "prefill": lambda ring: (ring.prepare_prefill([1, 2], right_padding=[1, 0]), feed(ring, [5, -1], [13, 14])),
}


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("bits", [None, BITS])
@pytest.mark.parametrize("change", CHANGES)
def test_no_later_change_of_the_ring_reaches_a_donor(change: str, bits: int | None, evaluated: bool) -> None:
    ring, twin = (feed(feed(batch(8, [1, 2, 3], [11], bits=bits), [4], [12]), [8], [9]) for _ in range(2))
    donor = capture_rotating_donor_attention(ring)
    planes = [plane for part in donor.view.parts for plane in part]
    if evaluated:
        mx.eval([list(plane.parts) if isinstance(plane, AffinePlanes) else plane for plane in planes])
    CHANGES[change](ring)
    mx.eval(ring.state())
    reference = capture_rotating_donor_attention(twin)
    assert [columns_of(plane) for plane in planes] == [columns_of(p) for part in reference.view.parts for p in part]
    assert ranges(donor) == ranges(reference)


def test_writing_into_lent_planes_does_not_reach_the_ring() -> None:
    ring = batch(4, [1, 2, 3, 4], [11, 12])
    before = data(ring)
    for part in capture_rotating_donor_attention(ring).view.parts:
        for plane in part:
            assert isinstance(plane, mx.array)
            plane[...] = plane * 0
    assert data(ring) == before


def data(ring: Any) -> list[list[list[bytes]]]:
    return [columns_of(array) for array in ring.state()]


def test_the_speculative_ring_lends_uncommitted_tokens_too() -> None:
    ring = batch(4, [1, 2, 3, 4], [11])
    ring.spec_round_begin()
    feed(ring, [5, 6], [12, 13])
    rows, same = ring.capture_donor_rows(), capture_donor_rows(ring)
    assert (rows.offsets, rows.starts, rows.ends) == (same.offsets, same.starts, same.ends) == ((6, 3), (0, 1), (4, 4))
    assert table(mx.float32, None).read(rows.keys, rows.values) == [[3, 4, 5, 6], [-1, 11, 12, 13]]
    ring.spec_round_rollback([0, 1])
    assert lent(capture_rotating_donor_attention(ring)) == [[2, 3, 4], [11, 12]]


def test_what_cannot_be_lent_joined_or_asked() -> None:
    for empty in (RotatingKVCache(4), RotatingQuantizedKVCache(4), BatchedRotatingCache(4, [0, 0]), batch(4, [], [])):
        with pytest.raises(RingError, match="prefill it first"):
            capture_rotating_donor_attention(empty)
    donor = capture_rotating_donor_attention(batch(4, [1, 2, 3]))
    with pytest.raises(RingShapeError, match="window=0"):
        donor.mask(0)
    with pytest.raises(AttentionError, match="2 query rows"):
        donor.attend(mx.zeros((2, HEADS, 1, KEY_DIM)), SCALE)
    with pytest.raises(MergeError, match="nothing to join"):
        join_donors([])
    others = [
        capture_rotating_donor_attention(batch(4, [1, 2])),
        capture_rotating_donor_attention(batch(4, [1, 2, 3], dtype=mx.float16)),
    ]
    for other in others:
        with pytest.raises(MergeError, match="capture aligned rows together"):
            join_donors([donor, other])


@pytest.mark.parametrize("pending", [False, True])
def test_siblings_lent_one_by_one_are_the_batch_lent_at_once(pending: bool) -> None:
    ids: list[list[int]] = [[1, 2, 3, 4, 5], [11], []]
    rows = align_rotating_rows([solo(4, row) if row else solo(4) for row in ids])
    together = batch(4, *ids)
    lengths, more = (
        ([1, 4, 2], [[6, -1, -1, -1], [12, 13, 14, 15], [21, 22, -1, -1]])
        if pending
        else ([2] * 3, [[6, 7], [12, 13], [21, 22]])
    )
    together.prepare_prefill(lengths, right_padding=[len(more[0]) - length for length in lengths])
    feed(together, *more)
    for row, length, new in zip(rows, lengths, more, strict=True):
        row.prepare_prefill(length, right_padding=len(new) - length, force=pending)
        feed(row, new)
    joined = join_donors([row.capture_donor_attention() for row in rows])
    at_once = capture_rotating_donor_attention(together)
    assert ranges(joined) == ranges(at_once)
    assert lent(joined) == lent(at_once)
    queries = normal((3, HEADS, 2, KEY_DIM), 5)
    assert mx.allclose(joined.attend(queries, SCALE, 3), at_once.attend(queries, SCALE, 3), rtol=1e-4, atol=1e-5)
