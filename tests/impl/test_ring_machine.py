"""Random programs on rings against plain lists of tokens: every visible token and every stored bit is compared."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from impl.affine import AffinePlanes
from impl.errors import HistoryLostError, RingShapeError
from impl.rings.batched import BatchedRotatingQuantCache
from impl.rings.donor import donor_planes, donor_span
from impl.rings.masks import build_batched_rotating_mask
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring
from tests.impl.token_table import DTYPES, GROUP, PAD, TOKENS, Planes, Table, columns_of, table

if TYPE_CHECKING:
    from collections.abc import Sequence

Batch = SpeculativeRotatingKVCache | BatchedRotatingQuantCache
Solo = RotatingKVCache | RotatingQuantizedKVCache


@dataclass
class Row:
    """Tokens of one request; ``short``: its newest update kept none of its own tokens, one column may be missing."""

    tokens: list[int] = field(default_factory=list)
    short: bool = False


class RingMachine(RuleBasedStateMachine):
    """A batch of rings, and for every row the list of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0
        self.rows: list[Row] = []
        self.coming: list[list[int]] = []
        self.handed_out: list[tuple[Planes, list[list[bytes]]]] = []

    @initialize(
        max_size=st.sampled_from([1, 2, 3, 4, 5, 8]),
        dtype=st.sampled_from(DTYPES),
        bits=st.sampled_from([None, None, 2, 4, 8]),
        blocks=st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=2, max_size=3),
    )
    def start(self, max_size: int, dtype: mx.Dtype, bits: int | None, blocks: list[list[int]]) -> None:
        self.max_size, self.dtype, self.bits = max_size, dtype, bits
        self.ring, self.rows = self.new_batch(blocks)

    def fresh(self, count: int) -> list[int]:
        self.used += count
        return [token % TOKENS for token in range(self.used - count, self.used)]

    @property
    def table(self) -> Table:
        return table(self.dtype, self.bits)

    def solo(self, blocks: list[int]) -> tuple[Solo, Row]:
        plain = RotatingKVCache(self.max_size)
        ring = plain if self.bits is None else RotatingQuantizedKVCache(self.max_size, GROUP, self.bits)
        row = Row()
        for length in blocks:
            self.feed(ring, [row], [self.fresh(length)])
        return ring, row

    def merged(self, solos: Sequence[Solo]) -> Batch:
        if self.bits is None:
            return SpeculativeRotatingKVCache.merge([solo for solo in solos if isinstance(solo, RotatingKVCache)])
        return BatchedRotatingQuantCache.merge([solo for solo in solos if isinstance(solo, RotatingQuantizedKVCache)])

    def new_batch(self, blocks: list[list[int]]) -> tuple[Batch, list[Row]]:
        made = [self.solo(lengths) for lengths in blocks]
        return self.merged([ring for ring, _ in made]), [row for _, row in made]

    def empty_batch(self) -> Batch:
        if self.bits is None:
            return SpeculativeRotatingKVCache(self.max_size)
        return BatchedRotatingQuantCache(self.max_size, GROUP, self.bits)

    def feed(
        self,
        ring: Batch | Solo,
        rows: list[Row],
        ids: list[list[int]],
        window: int | None = None,
        kept: int | None = None,
    ) -> None:
        """Update, and compare what every real query sees with the end of its list (of the newest ``kept`` tokens)."""
        tokens = len(ids[0])
        mask = np.array(build_batched_rotating_mask(ring.position, tokens, window))
        short_mask = ring.make_mask(tokens, window)
        fetched = ring.update_and_fetch(*self.table.block(ids))
        found = self.table.read(*fetched)
        assert mask.shape == (len(rows), 1, tokens, len(found[0]))
        if isinstance(short_mask, mx.array):
            assert np.array_equal(np.array(short_mask), mask)
        else:
            lower = np.tril(np.ones(mask.shape[2:], dtype=bool), len(found[0]) - tokens)
            assert np.array_equal(mask, np.broadcast_to(lower, mask.shape))
            assert (short_mask is None) == (tokens == 1)
        width = min(window or self.max_size, self.max_size)
        for row, new, columns, shown in zip(rows, ids, found, mask[:, 0], strict=True):
            for token, sees in zip(new, shown, strict=True):
                if token != PAD:
                    row.tokens.append(token)
                    visible = [column for column, seen in zip(columns, sees, strict=True) if seen]
                    assert sorted(visible) == sorted(row.tokens[kept or 0 :][-width:])
            row.short = all(token == PAD for token in new)
        self.handed_out.append((fetched[0], columns_of(fetched[0])))

    def column_ids(self, count: int) -> list[list[int]]:
        return [self.fresh(count) for _ in self.rows]

    idle = precondition(lambda self: not self.coming)
    windows = st.none() | st.integers(1, 9)

    @idle
    @rule(steps=st.integers(1, 6), window=windows)
    def decode(self, steps: int, window: int | None) -> None:
        for _ in range(steps):
            self.feed(self.ring, self.rows, self.column_ids(1), window)

    @idle
    @rule(tokens=st.integers(2, 11), window=windows)
    def block(self, tokens: int, window: int | None) -> None:
        self.feed(self.ring, self.rows, self.column_ids(tokens), window)

    @idle
    @rule(lengths=st.lists(st.integers(0, 12), min_size=3, max_size=3), force=st.booleans(), left=st.booleans())
    def open_prefill(self, lengths: list[int], force: bool, left: bool) -> None:
        if left:
            lengths = lengths[: len(self.rows)] or [1]
            self.ring, self.rows = self.empty_batch(), [Row() for _ in lengths]
        lengths = (lengths * len(self.rows))[: len(self.rows)]
        width = max(*lengths, 1)
        pads = [width - length for length in lengths]
        real = [self.fresh(length) for length in lengths]
        if left:
            self.ring.prepare_prefill([width] * len(pads), left_padding=pads, force=force)
            self.coming = [[PAD] * pad + tokens for pad, tokens in zip(pads, real, strict=True)]
        else:
            self.ring.prepare_prefill(lengths, right_padding=pads, force=force)
            self.coming = [tokens + [PAD] * pad for pad, tokens in zip(pads, real, strict=True)]

    @idle
    @rule(
        lengths=st.lists(st.integers(0, 12), min_size=3, max_size=3),
        chunks=st.lists(st.integers(1, 6), min_size=2, max_size=6),
        leave_after=st.integers(0, 3),
        alone=st.integers(0, 2),
    )
    def padded_prefill(self, lengths: list[int], chunks: list[int], leave_after: int, alone: int) -> None:
        self.open_prefill(lengths, force=False, left=False)
        for index, tokens in enumerate(chunks):
            if self.coming:
                self.chunk(tokens)
                self.every_token_is_where_the_position_says()
                self.a_donor_lends_the_newest_window()
                self.continue_alone(alone, None, [1, tokens])
                if index == leave_after:
                    self.keep_some([2, 1, 0], 1)

    @precondition(lambda self: self.coming)
    @rule(tokens=st.integers(1, 6))
    def chunk(self, tokens: int) -> None:
        self.feed(self.ring, self.rows, [row[:tokens] for row in self.coming])
        self.coming = [row[tokens:] for row in self.coming]
        if not self.coming[0]:
            self.close_prefill()

    @precondition(lambda self: self.coming and all(row[0] != PAD for row in self.coming))
    @rule()
    def end_prefill_early(self) -> None:
        self.close_prefill()

    def close_prefill(self) -> None:
        self.ring.finalize_prefill()
        self.ring.finalize_prefill()
        self.coming = []

    @idle
    @rule(
        steps=st.lists(st.integers(1, 10), min_size=1, max_size=1)
        | st.lists(st.integers(1, 2), min_size=2, max_size=4),
        keeps=st.lists(st.integers(0, 10), min_size=3, max_size=3),
        preserve=st.booleans(),
        order=st.permutations(range(3)),
        leave=st.integers(0, 2),
    )
    def speculate(self, steps: list[int], keeps: list[int], preserve: bool, order: list[int], leave: int) -> None:
        before, starts = self.ring.row_offsets, [len(row.tokens) for row in self.rows]
        if isinstance(self.ring, SpeculativeRotatingKVCache):
            self.ring.spec_round_begin()
        for length in steps:
            self.feed(self.ring, self.rows, self.column_ids(length))
        if leave:
            chosen = self.keep_some(order, leave)
            before, starts = tuple(before[row] for row in chosen), [starts[row] for row in chosen]
        written = sum(steps)
        keep = [min(keeps[row % 3], written) for row in range(len(self.rows))]
        stored = [self.ring.position.stored(row) for row in range(len(self.rows))]
        gone = any(
            kept < written and max(0, held - written + kept) < min(start + kept, self.max_size - 1)
            for kept, held, start in zip(keep, stored, starts, strict=True)
        )
        assert not (gone and len(steps) == 1), "one block is always reversible"
        snapshot = self.ring.position
        try:
            self.roll_back(before, keep, preserve=preserve)
        except HistoryLostError:
            assert gone
            assert self.ring.position == snapshot
            if isinstance(self.ring, SpeculativeRotatingKVCache):
                self.ring.spec_round_commit()
            return
        assert not gone
        if preserve:
            scalars = ("max_size", "ring_index", "total_offset", "rotated")
            assert all(getattr(self.ring.position, name) == getattr(snapshot, name) for name in scalars)
        for row, start, kept in zip(self.rows, starts, keep, strict=True):
            del row.tokens[start + kept :]
            row.short = kept <= written - steps[-1]

    def roll_back(self, before: Sequence[int], keep: list[int], *, preserve: bool) -> None:
        if isinstance(self.ring, BatchedRotatingQuantCache):
            self.ring = rollback_rotating_ring(self.ring, before, keep, preserve_columns=preserve)
        elif preserve:
            rolled = rollback_rotating_ring(self.ring, before, keep, preserve_columns=True)
            self.ring.spec_round_commit()
            self.ring.restore_state(rolled.keys, rolled.values, rolled.position)
        else:
            self.ring.spec_round_rollback(keep)

    @idle
    @rule(tokens=st.integers(0, 9))
    def trim(self, tokens: int) -> None:
        snapshot, room = self.ring.position, self.ring.position.max_trim()
        if self.ring.is_trimmable():
            assert room == min(len(row.tokens) for row in self.rows)
        try:
            assert self.ring.trim(tokens) == tokens <= room
        except HistoryLostError:
            assert tokens > room
            assert self.ring.position == snapshot
            return
        for row in self.rows if tokens else ():
            del row.tokens[len(row.tokens) - tokens :]
            row.short = True

    @rule(order=st.permutations(range(3)), leave=st.integers(1, 2))
    def filter(self, order: list[int], leave: int) -> None:
        self.keep_some(order, leave)

    def keep_some(self, order: list[int], leave: int) -> list[int]:
        chosen = [row for row in order if row < len(self.rows)][: max(1, len(self.rows) - leave)]
        self.ring.filter_rows(chosen)
        self.rows = [self.rows[row] for row in chosen]
        self.coming = [self.coming[row] for row in chosen] if self.coming else []
        return chosen

    @idle
    @rule(blocks=st.lists(st.integers(1, 9), max_size=3), whole=st.booleans(), order=st.permutations(range(4)))
    def join(self, blocks: list[int], whole: bool, order: list[int]) -> None:
        limit = None if whole else self.max_size
        solos: list[Solo] = [self.ring.extract_row(row, limit) for row in range(len(self.rows))]
        newcomer, row = self.solo(blocks)
        order = [index for index in order if index <= len(self.rows)][:3]
        self.ring = self.merged([[*solos, newcomer][index] for index in order])
        self.rows = [[*self.rows, row][index] for index in order]

    @idle
    @rule(blocks=st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=2), steps=st.integers(0, 3))
    def extend(self, blocks: list[list[int]], steps: int) -> None:
        assume(len(self.rows) < 3)
        other, rows = self.new_batch(blocks)
        for _ in range(steps):
            self.feed(other, rows, [self.fresh(1) for _ in rows])
        if isinstance(self.ring, BatchedRotatingQuantCache):
            assert isinstance(other, BatchedRotatingQuantCache)
            self.ring.extend(other)
        else:
            assert not isinstance(other, BatchedRotatingQuantCache)
            self.ring.extend(other)
        self.rows = self.rows + rows

    @rule(bits=st.sampled_from([4, 8]))
    def quantize(self, bits: int) -> None:
        if isinstance(self.ring, SpeculativeRotatingKVCache):
            self.ring, self.bits = self.ring.to_quantized(GROUP, bits), bits

    @rule()
    def save_and_load(self) -> None:
        keys, values, position = self.ring.keys, self.ring.values, self.ring.position
        self.ring = self.empty_batch()
        if isinstance(self.ring, SpeculativeRotatingKVCache):
            assert not isinstance(keys, AffinePlanes)
            assert not isinstance(values, AffinePlanes)
            self.ring.restore_state(keys, values, position)
        else:
            assert not isinstance(keys, mx.array)
            assert not isinstance(values, mx.array)
            self.ring.restore_state(keys, values, position)

    @rule(row=st.integers(0, 2), limit=st.none() | st.integers(0, 9), blocks=st.lists(st.integers(1, 5), max_size=3))
    def continue_alone(self, row: int, limit: int | None, blocks: list[int]) -> None:
        row %= len(self.rows)
        try:
            solo = self.ring.extract_row(row, limit)
        except RingShapeError:
            assert limit == 0
            return
        tokens = self.rows[row].tokens
        held = min(self.ring.position.stored(row), limit or 99)
        if isinstance(self.ring, SpeculativeRotatingKVCache):
            held = min(held, self.max_size)
        assert (solo.offset, solo.position.stored(0)) == (len(tokens), held)
        assert solo.position.total_offset == solo.offset
        lossy = held < min(len(tokens), self.max_size - 1)
        alone = Row(list(tokens))
        for length in blocks:
            self.feed(solo, [alone], [self.fresh(length)], kept=len(tokens) - held if lossy else 0)
            position, width = solo.position, 0 if solo.keys is None else solo.keys.shape[2]
            cursor_inside = position.ring_index < min(solo.offset, width)
            assert cursor_inside == (position.rotated and position.ring_index < self.max_size)
            assert position.ring_index in (width, solo.offset) or position.rotated

    @invariant()
    def every_token_is_where_the_position_says(self) -> None:
        if not self.rows:
            return
        position, view = self.ring.position, self.ring.temporal_view()
        found = [[] for _ in self.rows] if view is None else self.table.read(*view)
        assert len(found[0]) == position.active_length
        for index, (row, columns) in enumerate(zip(self.rows, found, strict=True)):
            held, valid = position.stored(index), len(row.tokens)
            assert max(0, position.valid_offset(index)) == valid
            assert min(valid, self.max_size - 1) <= held <= valid
            assert row.short or held >= min(valid, self.max_size)
            end = position.end(index)
            assert columns[end - held : end] == (row.tokens[-held:] if held else [])

    @invariant()
    def the_buffer_fits_the_counters(self) -> None:
        if not self.rows:
            return
        position, keys = self.ring.position, self.ring.keys
        width = 0 if keys is None else keys.shape[2]
        assert position.active_length >= min(position.total_offset, self.max_size - 1)
        assert width == self.max_size if position.rotated else width >= position.ring_index
        assert (keys is None) == (position.active_length == 0)
        assert all(pad >= 0 for pad in position.left_pad)
        rope = self.ring.rope_offset_arr
        assert rope is not None
        assert rope.tolist() == list(position.offsets)
        assert all(bool(mx.isfinite(x).all()) for x in self.ring.state() if x.dtype != mx.uint32)
        if self.ring.is_trimmable():
            assert position.total_offset < self.max_size

    @invariant()
    def a_donor_lends_the_newest_window(self) -> None:
        if not self.rows or self.ring.keys is None:
            return
        span = donor_span(self.ring.position)
        if isinstance(self.ring, SpeculativeRotatingKVCache):
            lent = self.ring.capture_donor_rows()
            found = self.table.read(lent.keys, lent.values)
        else:
            found = self.table.read(*donor_planes(self.ring.storage, self.ring.contents, span))
        for index, row in enumerate(self.rows):
            held = min(self.ring.position.stored(index), self.max_size)
            assert found[index][span.starts[index] : span.ends[index]] == (row.tokens[-held:] if held else [])
            assert span.offsets[index] == self.ring.position.valid_offset(index)

    def teardown(self) -> None:
        for planes, before in self.handed_out:
            assert columns_of(planes) == before, "an array handed out earlier has changed"


# The long run is `ASSAY_MACHINE_PROGRAMS=10000 ASSAY_MACHINE_SEED=1 pytest tests/impl/test_ring_machine.py`, and the
# same beside it with another seed.
SEED = os.environ.get("ASSAY_MACHINE_SEED")
if SEED is not None:
    RingMachine = seed(int(SEED))(RingMachine)  # type: ignore[misc]  # the same class, marked
TestRings = RingMachine.TestCase
TestRings.settings = settings(
    max_examples=int(os.environ.get("ASSAY_MACHINE_PROGRAMS", "60")),
    stateful_step_count=14,
    derandomize=SEED is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
