"""What groups refuse, and that an operation which fails anywhere leaves them as they were."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from impl.errors import (
    AffineError,
    HistoryLostError,
    ImplError,
    MergeError,
    PendingPrefillError,
    RingShapeError,
    RoundError,
    RowIndexError,
)
from impl.rings.solo import RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transitioning import TransitioningKvRows
from tests.impl.failing import assert_nothing_changes_on_failure
from tests.impl.rows import affine_rows, feed, four, group, group_snapshot, snapshot, solo
from tests.impl.token_table import HEADS


def in_round(crossings: list[int] | None = None) -> TransitioningKvRows:
    rows = group(*four(), crossings=crossings)
    rows.spec_round_begin()
    return feed(rows, [50, 51], [52, 53], [54, 55], [56, 57])  # type: ignore[no-any-return]


def pending() -> TransitioningKvRows:
    rows = group(*four())
    rows.prepare_prefill([1, 2, 0, 3], right_padding=[2, 1, 3, 0])
    return feed(rows, [50, -1], [51, 52], [-1, -1], [53, 54])  # type: ignore[no-any-return]


def idle() -> TransitioningKvRows:
    return group(*four())


def all_packed() -> TransitioningKvRows:
    return group(*four(), default=0)


def merging(*sources: Any, crossings: Any = None) -> Any:
    return lambda rows: rows.merge_rows([source() for source in sources], crossings)


def odd_heads() -> Any:
    row = solo(4)
    row.update_and_fetch(mx.zeros((1, 2, 3, 48)), mx.zeros((1, 2, 3, 48)))
    return row


x = mx.zeros((4, HEADS, 1, 48))
REFUSALS: dict[str, tuple[Any, Any, type[ImplError], str]] = {
    "merge other bits": (idle, merging(lambda: solo(4, [1], bits=8)), MergeError, "use one group size and bits"),
    "merge another size": (idle, merging(lambda: solo(5, [1])), MergeError, "a group of max_size 4"),
    "merge two sizes": (idle, merging(lambda: solo(5, [1]), idle), MergeError, r"max_size \[4, 5\]"),
    "merge a batch": (idle, merging(lambda: SpeculativeRotatingKVCache(4, [0])), MergeError, "extract solo rings"),
    "merge odd heads": (idle, merging(odd_heads), AffineError, "head_dim=48"),
    "merge in a round": (in_round, merging(), RoundError, "cannot merge rows"),
    "merge from a round": (idle, merging(in_round), RoundError, "cannot extract a row"),
    "crossings for other rows": (idle, merging(idle, crossings=[1]), RingShapeError, "for 4 rows; give one per row"),
    "negative crossings": (idle, merging(lambda: solo(4), crossings=[-1]), RingShapeError, "0 or more"),
    "other rows": (idle, lambda rows: feed(rows, [1]), RingShapeError, "for 4 rows"),
    "other values": (idle, lambda rows: rows.update_and_fetch(x, x[:3]), RingShapeError, "for 4 rows"),
    "odd heads": (
        lambda: group(solo(4), solo(4), solo(4), solo(4)),
        lambda rows: rows.update_and_fetch(x, x),
        AffineError,
        "head_dim=48",
    ),
    "whole numbers": (
        lambda: group(solo(4), solo(4), solo(4), solo(4)),
        lambda rows: rows.update_and_fetch(*[mx.zeros((4, HEADS, 1, 64), dtype=mx.int32)] * 2),
        AffineError,
        "cannot quantize",
    ),
    "other type": (
        idle,
        lambda rows: feed(rows, [1], [2], [3], [4], dtype=mx.float16),
        RingShapeError,
        "nothing is cast silently",
    ),
    "no rows": (group, lambda rows: feed(rows, [1]), RingShapeError, "for 0 rows"),
    "extract in a round": (in_round, lambda rows: rows.extract_row(0), RoundError, "cannot extract a row"),
    "prepare in a round": (in_round, lambda rows: rows.prepare_prefill([1] * 4), RoundError, "cannot prepare"),
    "trim in a round": (in_round, lambda rows: rows.trim(1), RoundError, "cannot trim"),
    "begin in a round": (in_round, lambda rows: rows.spec_round_begin(), RoundError, "cannot begin another"),
    "begin in a prefill": (pending, lambda rows: rows.spec_round_begin(), PendingPrefillError, "finalize_prefill"),
    "prepare twice": (pending, lambda rows: rows.prepare_prefill([1] * 4), PendingPrefillError, "open already"),
    "prepare two widths": (idle, lambda rows: rows.prepare_prefill([1, 2, 1, 1]), RingShapeError, r"widths \[1, 2\]"),
    "prepare other rows": (idle, lambda rows: rows.prepare_prefill([1, 1]), RingShapeError, "2 lengths"),
    "commit nothing": (idle, lambda rows: rows.spec_round_commit(), RoundError, "call spec_round_begin"),
    "roll nothing back": (idle, lambda rows: rows.spec_round_rollback(0), RoundError, "call spec_round_begin"),
    "keep too many": (in_round, lambda rows: rows.spec_round_rollback([0, 0, 0, 3]), RingShapeError, "keep 3 of 2"),
    "keep for other rows": (in_round, lambda rows: rows.spec_round_rollback([0]), RingShapeError, "per row, 4"),
    "trim the shortest row": (
        lambda: group(solo(4, [1, 2]), solo(4, [3])),
        lambda rows: rows.trim(3),
        HistoryLostError,
        "at most 1 can go",
    ),
    "trim too much": (idle, lambda rows: rows.trim(1), HistoryLostError, "at most 0"),
    "row outside": (idle, lambda rows: rows.extract_row(4), RowIndexError, "a batch of 4"),
    "limit 0": (idle, lambda rows: rows.extract_row(0, 0), RingShapeError, "at least 1 token"),
    "filter outside": (in_round, lambda rows: rows.filter_rows([0, 4]), RowIndexError, "a batch of 4"),
    "filter twice": (idle, lambda rows: rows.filter_rows([1, 1]), RowIndexError, "once at most"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_changes_nothing(name: str) -> None:
    setup, operation, error, message = REFUSALS[name]
    rows = setup()
    before = group_snapshot(rows)
    with pytest.raises(error, match=message):
        operation(rows)
    assert group_snapshot(rows) == before


def test_numbers_are_checked_at_once() -> None:
    with pytest.raises(RingShapeError, match=r"crossing_tokens \[-1\]"):
        TransitioningKvRows(4, crossing_tokens=-1)
    with pytest.raises(AffineError, match="bits=7"):
        TransitioningKvRows(4, 32, 7, crossing_tokens=1)
    with pytest.raises(RingShapeError, match="max_size=0"):
        TransitioningKvRows(0, crossing_tokens=1)


def one_token(rows: TransitioningKvRows) -> Any:
    return feed(rows, [50], [51], [52], [53])


FAILURES: dict[str, tuple[Any, Any]] = {
    "token, mixed": (lambda: group(*four(), default=6), one_token),
    "token, packed": (all_packed, one_token),
    "a row crosses": (lambda: group(*four(), default=3), one_token),
    "the last row crosses": (lambda: group(*four(), crossings=[1, 1, 1, 1]), one_token),
    "chunk": (pending, one_token),
    "finalize": (pending, lambda rows: rows.finalize_prefill()),
    "merge": (idle, lambda rows: rows.merge_rows([rows, solo(4, [7])])),
    "filter, and the rest is packed": (idle, lambda rows: rows.filter_rows([3, 0])),
    "roll back, and a row crosses": (in_round, lambda rows: rows.spec_round_rollback([0, 2, 0, 1])),
    "roll all back": (in_round, lambda rows: rows.spec_round_rollback(0)),
    "commit, and a row crosses": (in_round, lambda rows: rows.spec_round_commit()),
    "commit, and all are packed": (
        lambda: in_round(crossings=[7, 3, 1, 9]),
        lambda rows: rows.spec_round_commit(),
    ),
    "trim": (lambda: group(solo(4, [1, 2]), solo(4, [3]), crossings=[1, 9]), lambda rows: rows.trim(1)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_running_out_of_memory_anywhere_changes_nothing(name: str) -> None:
    calls = assert_nothing_changes_on_failure(*FAILURES[name], group_snapshot)
    # MLX allocates at evaluation, so what replaces the contents of a ring is evaluated first.
    assert ("settle" in calls) == ("token" not in name and name != "chunk")


def test_extracting_changes_nothing() -> None:
    rows = idle()
    before = group_snapshot(rows)
    solos = [rows.extract_row(row) for row in range(4)]
    assert [isinstance(row, RotatingQuantizedKVCache) for row in solos] == affine_rows(rows)
    assert [snapshot(row)[:2] for row in solos] == [(row.position, row.minimum_reusable_offset) for row in solos]
    assert group_snapshot(rows) == before
