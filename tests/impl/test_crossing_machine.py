"""Random programs on groups whose rows become affine one by one, against plain lists of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from impl.affine import AffinePlanes
from impl.errors import HistoryLostError
from impl.rings.positions import combined_position
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.transitioning import TransitioningKvRows
from tests.impl.token_table import DTYPES, GROUP, PAD, TOKENS, Planes, columns_of, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.rings.aligned import Solo


@dataclass
class Row:
    """Tokens of one request, how they must be stored, and since when.

    ``short``: its newest update kept none of its own tokens, one column may be missing.
    """

    crossing: int
    tokens: list[int] = field(default_factory=list)
    affine: bool = False
    floor: int = 0
    short: bool = False

    def decide(self) -> None:
        """Cross, if it is time, at a moment when every token is committed."""
        if not self.affine and len(self.tokens) >= self.crossing:
            self.affine, self.floor = True, max(self.floor, len(self.tokens))


class GroupMachine(RuleBasedStateMachine):
    """A group, and for every row the list of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.used = 0
        self.rows: list[Row] = []
        self.coming: list[list[int]] = []
        self.handed_out: list[tuple[Planes, list[list[bytes]]]] = []

    @initialize(
        max_size=st.sampled_from([1, 2, 3, 4, 5, 8]),
        dtype=st.sampled_from(DTYPES),
        bits=st.sampled_from([2, 4, 8]),
        blocks=st.lists(st.lists(st.integers(1, 6), max_size=3), min_size=2, max_size=3),
        crossings=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    )
    def start(self, max_size: int, dtype: mx.Dtype, bits: int, blocks: list[list[int]], crossings: list[int]) -> None:
        self.max_size, self.dtype, self.bits = max_size, dtype, bits
        self.group = TransitioningKvRows(max_size, GROUP, bits, crossing_tokens=7)
        self.merge([self.solo(lengths) for lengths in blocks], crossings[: len(blocks)])

    def fresh(self, count: int) -> list[int]:
        self.used += count
        return [token % TOKENS for token in range(self.used - count, self.used)]

    def solo(self, blocks: list[int], *, affine: bool = False) -> tuple[Solo, Row]:
        ring: Solo = (
            RotatingQuantizedKVCache(self.max_size, GROUP, self.bits) if affine else RotatingKVCache(self.max_size)
        )
        row = Row(crossing=7, affine=affine)
        for length in blocks:
            tokens = self.fresh(length)
            ring.update_and_fetch(*table(self.dtype, None).block([tokens]))
            row.tokens += tokens
        return ring, row

    def merge(self, made: Sequence[tuple[Solo, Row]], crossings: Sequence[int]) -> None:
        self.group.merge_rows([ring for ring, _ in made], crossings)
        self.rows = [row for _, row in made]
        for row, crossing in zip(self.rows, crossings, strict=True):
            row.crossing = crossing
            row.decide()

    def read(self, parts: Sequence[tuple[Planes, Planes]]) -> list[list[int]]:
        """Token ids ``[rows][columns]``; a token counts only if it is stored as its row must store it by now."""
        rows: list[list[int]] = []
        for keys, values in parts:
            bits = self.bits if isinstance(keys, AffinePlanes) else None
            rows += table(self.dtype, bits).read(keys, values)
        return rows

    def feed(self, ids: list[list[int]], window: int | None = None, *, in_round: bool = False) -> None:
        """Update, and compare what every real query sees with the end of its list."""
        tokens = len(ids[0])
        shown = self.group.make_mask(tokens, window, return_array=True)
        assert isinstance(shown, mx.array)
        for index, ring in enumerate(self.group.rows):
            own = ring.make_mask(tokens, window, return_array=True)
            assert isinstance(own, mx.array)
            assert mx.array_equal(own[0], shown[index])
        mask, short_mask = np.array(shown), self.group.make_mask(tokens, window)
        if not isinstance(short_mask, mx.array):
            assert (short_mask is None) == (tokens == 1)
            lower = np.tril(np.ones(mask.shape[2:], dtype=bool), mask.shape[3] - tokens)
            assert np.array_equal(mask, np.broadcast_to(lower, mask.shape))
        view = self.group.update_and_fetch(*table(self.dtype, None).block(ids))
        assert mask.shape == (view.rows, 1, tokens, view.width)
        affine = [isinstance(keys, AffinePlanes) for keys, _ in view.parts for _ in range(keys.shape[0])]
        assert affine == [row.affine for row in self.rows]
        width = min(window or self.max_size, self.max_size)
        for row, new, columns, sees_all in zip(self.rows, ids, self.read(view.parts), mask[:, 0], strict=True):
            for token, sees in zip(new, sees_all, strict=True):
                if token != PAD:
                    row.tokens.append(token)
                    visible = [column for column, seen in zip(columns, sees, strict=True) if seen]
                    assert sorted(visible) == sorted(row.tokens[-width:])
            row.short = all(token == PAD for token in new)
            if not in_round:
                row.decide()
        self.handed_out += [(part[0], columns_of(part[0])) for part in view.parts]

    def column_ids(self, count: int) -> list[list[int]]:
        return [self.fresh(count) for _ in self.rows]

    idle = precondition(lambda self: not self.coming)
    windows = st.none() | st.integers(1, 9)

    @idle
    @rule(steps=st.integers(1, 6), window=windows)
    def decode(self, steps: int, window: int | None) -> None:
        for _ in range(steps):
            self.feed(self.column_ids(1), window)

    @idle
    @rule(tokens=st.integers(2, 9), window=windows)
    def block(self, tokens: int, window: int | None) -> None:
        self.feed(self.column_ids(tokens), window)

    @idle
    @rule(
        lengths=st.lists(st.integers(0, 9), min_size=3, max_size=3),
        chunks=st.lists(st.integers(1, 5), min_size=2, max_size=5),
        leave_after=st.integers(0, 5),
        force=st.booleans(),
    )
    def padded_prefill(self, lengths: list[int], chunks: list[int], leave_after: int, force: bool) -> None:
        lengths = lengths[: len(self.rows)]
        width = max(*lengths, 1)
        pads = [width - length for length in lengths]
        self.group.prepare_prefill(lengths, right_padding=pads, force=force)
        self.coming = [self.fresh(length) + [PAD] * pad for length, pad in zip(lengths, pads, strict=True)]
        self.chunks(chunks, leave_after)

    @idle
    @rule(
        lengths=st.lists(st.integers(0, 9), min_size=2, max_size=3),
        chunks=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    )
    def left_padded_prefill(self, lengths: list[int], chunks: list[int]) -> None:
        self.group = self.group.make_empty_batch()
        width = max(*lengths, 1)
        pads = [width - length for length in lengths]
        self.group.prepare_prefill([width] * len(pads), left_padding=pads)
        self.rows = [Row(crossing=7) for _ in lengths]
        self.coming = [[PAD] * pad + self.fresh(length) for length, pad in zip(lengths, pads, strict=True)]
        self.chunks(chunks, leave_after=9)

    def chunks(self, chunks: list[int], leave_after: int) -> None:
        for index, tokens in enumerate(chunks):
            if self.coming and self.coming[0]:
                self.feed([row[:tokens] for row in self.coming])
                self.coming = [row[tokens:] for row in self.coming]
                self.check()
                if index == leave_after:
                    self.keep_some([2, 0, 1], 1)
                    self.check()
        # A prefill may stay open here, and be closed by a later rule.
        if self.coming and not self.coming[0]:
            self.close_prefill()

    @precondition(lambda self: self.coming and all(not row or row[0] != PAD for row in self.coming))
    @rule()
    def close_prefill(self) -> None:
        self.group.finalize_prefill()
        self.group.finalize_prefill()
        self.coming = []

    @precondition(lambda self: self.coming)
    @rule(tokens=st.integers(1, 9))
    def next_chunk(self, tokens: int) -> None:
        self.chunks([tokens], leave_after=9)

    @idle
    @rule(
        steps=st.lists(st.integers(1, 8), min_size=1, max_size=1) | st.lists(st.integers(1, 2), min_size=2, max_size=3),
        keeps=st.lists(st.integers(0, 8), min_size=3, max_size=3),
        commit=st.integers(0, 3),
        leave=st.integers(0, 3),
    )
    def speculate(self, steps: list[int], keeps: list[int], commit: int, leave: int) -> None:
        starts = [len(row.tokens) for row in self.rows]
        before, committed = [row.affine for row in self.rows], self.group.committed_offsets
        self.group.spec_round_begin()
        for length in steps:
            self.feed(self.column_ids(length), in_round=True)
            assert self.group.committed_offsets == committed
            self.the_group_is_what_its_rows_are(in_round=True)
        if leave == 1:
            chosen = self.keep_some([2, 0, 1], 1)
            starts = [starts[row] for row in chosen]
            before = [before[row] for row in chosen]
        written = sum(steps)
        keep = [min(kept, written) for kept in keeps[: len(self.rows)]]
        position = self.group.position
        try:
            if commit == 1:
                keep = [written] * len(self.rows)
                self.group.spec_round_commit()
            else:
                self.group.spec_round_rollback(keep)
        except HistoryLostError:
            assert len(steps) > 1, "one block is always reversible"
            assert self.group.position == position
            assert before == [row.affine for row in self.rows]
            keep = [written] * len(self.rows)
            self.group.spec_round_commit()
        for row, start, kept in zip(self.rows, starts, keep, strict=True):
            del row.tokens[start + kept :]
            row.short = kept <= written - steps[-1]
            row.decide()

    @idle
    @rule(tokens=st.integers(0, 6))
    def trim(self, tokens: int) -> None:
        room = self.group.position.max_trim()
        try:
            assert self.group.trim(tokens) == tokens <= room
        except HistoryLostError:
            assert tokens > room
            return
        for row in self.rows if tokens else ():
            del row.tokens[len(row.tokens) - tokens :]
            row.short = True

    @rule(order=st.permutations(range(3)), leave=st.integers(0, 2))
    def filter(self, order: list[int], leave: int) -> None:
        self.keep_some(order, leave)

    def keep_some(self, order: list[int], leave: int) -> list[int]:
        chosen = [row for row in order if row < len(self.rows)][: max(1, len(self.rows) - leave)]
        self.group.filter_rows(chosen)
        self.rows = [self.rows[row] for row in chosen]
        self.coming = [self.coming[row] for row in chosen] if self.coming else []
        return chosen

    @idle
    @rule(
        blocks=st.lists(st.integers(1, 9), max_size=3),
        affine=st.booleans(),
        crossing=st.integers(0, 30),
        order=st.permutations(range(4)),
    )
    def join(self, blocks: list[int], affine: bool, crossing: int, order: list[int]) -> None:
        rows = [(self.group.extract_row(index), row) for index, row in enumerate(self.rows)]
        made = [*rows, self.solo(blocks, affine=affine)]
        order = [index for index in order if index < len(made)][:3]
        crossings = [*(row.crossing for row in self.rows), crossing]
        self.merge([made[index] for index in order], [crossings[index] for index in order])

    @idle
    @rule()
    def join_the_whole_group(self) -> None:
        other = self.group.make_empty_batch()
        other.merge_rows([self.group])
        assert other.row_crossing_tokens == self.group.row_crossing_tokens
        self.group = other

    @idle
    @rule(row=st.integers(0, 2), blocks=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def continue_alone(self, row: int, blocks: list[int]) -> None:
        assume(row < len(self.rows))
        model = self.rows[row]
        solo = self.group.extract_row(row)
        assert isinstance(solo, RotatingQuantizedKVCache) == model.affine
        assert (solo.offset, solo.minimum_reusable_offset) == (len(model.tokens), model.floor)
        tokens = list(model.tokens)
        for length in blocks:
            mask = np.array(solo.make_mask(length, return_array=True))
            new = self.fresh(length)
            [columns] = self.read([solo.update_and_fetch(*table(self.dtype, None).block([new]))])
            for token, sees in zip(new, mask[0, 0], strict=True):
                tokens.append(token)
                visible = [column for column, seen in zip(columns, sees, strict=True) if seen]
                assert sorted(visible) == sorted(tokens[-self.max_size :])

    @invariant()
    def the_group_is_what_its_rows_are(self, *, in_round: bool = False) -> None:
        if not self.rows:
            return
        packed = all(row.affine for row in self.rows) and not in_round
        if not in_round:
            assert (self.group.packed is not None) == packed
        if self.group.packed is None:
            assert [row.affine_conversion is None for row in self.group.rows] == [row.affine for row in self.rows]
            assert combined_position(self.max_size, self.group.rows) == self.group.position
        assert self.group.minimum_reusable_offsets == tuple(row.floor for row in self.rows)
        assert self.group.row_crossing_tokens == tuple(row.crossing for row in self.rows)
        assert [max(0, offset) for offset in self.valid_offsets()] == [len(row.tokens) for row in self.rows]
        rope = self.group.rope_offset_arr
        assert rope is not None
        assert rope.tolist() == list(self.group.row_offsets)
        assert all(bool(mx.isfinite(x).all()) for x in self.group.state() if x.dtype != mx.uint32)

    def check(self) -> None:
        self.the_group_is_what_its_rows_are()
        self.every_token_is_lent_and_held_where_the_position_says()

    def valid_offsets(self) -> list[int]:
        return [self.group.position.valid_offset(row) for row in range(len(self.rows))]

    @invariant()
    def every_token_is_lent_and_held_where_the_position_says(self) -> None:
        if not self.rows or not self.group.position.active_length:
            return
        lent, position = self.group.capture_donor_attention(), self.group.position
        found = self.read(lent.view.parts)
        assert lent.offsets == tuple(self.valid_offsets())
        for index, row in enumerate(self.rows):
            held, valid = position.stored(index), len(row.tokens)
            assert min(valid, self.max_size - 1) <= held <= valid
            assert row.short or held >= min(valid, self.max_size)
            for window in (None, *range(1, self.max_size + 1)):
                newest = min(window or self.max_size, self.max_size, held)
                columns = found[index][lent.window_starts(window)[index] : lent.ends[index]]
                assert columns == (row.tokens[-newest:] if newest else [])

    def teardown(self) -> None:
        for planes, before in self.handed_out:
            assert columns_of(planes) == before, "an array handed out earlier has changed"


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(
    max_examples=60, stateful_step_count=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
