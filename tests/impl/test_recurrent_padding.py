"""Lengths and left paddings of a prefill, chunk by chunk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.errors import RowIndexError
from impl.recurrent import PrefillPadding, RecurrentError, SsmPrefillPadding
from impl.recurrent.padding import NO_END


def mask_of(padding: SsmPrefillPadding, tokens: int) -> list[str]:
    rows: list[list[bool]] = padding.make_mask(tokens).tolist()  # type: ignore[assignment]
    return ["".join("1" if real else "0" for real in row) for row in rows]


def test_right_padding_in_two_chunks() -> None:
    padding = SsmPrefillPadding(PrefillPadding([5, 3]))
    assert mask_of(padding, 4) == ["1111", "1110"]
    assert padding.convolution_lengths(4) == [4, 3]
    assert padding.advance(4) == [4, 3]
    assert (padding.left, padding.lengths) == ((-4, -4), (1, -1))
    assert mask_of(padding, 1) == ["1", "0"]
    assert padding.convolution_lengths(1) == [1, 0]
    assert padding.advance(1) == [1, 0]


def test_left_padding() -> None:
    padding = SsmPrefillPadding(PrefillPadding([5, 5], [0, 2]))
    assert mask_of(padding, 3) == ["111", "001"]
    assert padding.convolution_lengths(3) == [3, 3]
    assert padding.advance(3) == [3, 1]
    assert (padding.left, padding.lengths) == ((-3, -1), (2, 2))


def test_nothing_is_shared_with_the_caller_or_a_copy() -> None:
    lengths, left = [3, 2], [0, 1]
    padding = SsmPrefillPadding(PrefillPadding(lengths, left))
    twin = padding.copy()
    mask = padding.make_mask(2)
    padding.advance(2)
    padding.filter([1])
    assert (lengths, left) == ([3, 2], [0, 1])
    assert (twin.lengths, twin.left) == ((3, 2), (0, 1))
    assert mask.tolist() == [[True, True], [False, True]]
    lengths[0] = left[0] = 7
    assert twin.lengths == (3, 2)


def test_rows_without_padding_have_no_end() -> None:
    padding = SsmPrefillPadding(PrefillPadding([1]))
    padding.extend(SsmPrefillPadding.none(1))
    for _ in range(3):
        assert mask_of(padding, 2)[1] == "11"
        assert padding.convolution_lengths(2)[1] == 2
        padding.advance(2)
    assert padding.lengths == (-5, NO_END - 6)


@pytest.mark.parametrize(
    "padding",
    [
        PrefillPadding([1, -1]),
        PrefillPadding([1, 2], [0]),
        PrefillPadding([1, 2], [0, -1]),
        PrefillPadding([1, 2], [2, 0]),
        PrefillPadding([1, 2], None, [0, 0]),
        PrefillPadding([1, 2], None, [1]),
    ],
)
def test_numbers_that_do_not_fit_are_refused(padding: PrefillPadding) -> None:
    with pytest.raises(RecurrentError):
        SsmPrefillPadding(padding)


@pytest.mark.parametrize("keep", [[2], [-1], [0, 0]])
def test_a_refused_filter_changes_nothing(keep: list[int]) -> None:
    padding = SsmPrefillPadding(PrefillPadding([3, 1], [1, 0]))
    with pytest.raises(RowIndexError):
        padding.filter(keep)
    assert (padding.left, padding.lengths) == ((1, 0), (3, 1))


def test_a_chunk_of_less_than_nothing_is_refused() -> None:
    padding = SsmPrefillPadding(PrefillPadding([3]))
    for call in (padding.make_mask, padding.convolution_lengths, padding.advance):
        with pytest.raises(RecurrentError):
            call(-1)
    assert padding.lengths == (3,)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_counts_are_the_tokens_of_the_mask_for_any_chunking(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 3))
    left = data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    padding = SsmPrefillPadding(PrefillPadding([a + b for a, b in zip(left, tokens, strict=True)], left))
    columns = ["0" * a + "1" * b + "0" * 12 for a, b in zip(left, tokens, strict=True)]
    order, done = list(range(rows)), 0
    while done < 9:
        chunk = data.draw(st.integers(1, 4))
        own = [columns[row][done : done + chunk] for row in order]
        assert mask_of(padding, chunk) == own
        ends = [max(0, min(chunk, left[row] + tokens[row] - done)) for row in order]
        assert padding.convolution_lengths(chunk) == ends
        assert padding.advance(chunk) == [text.count("1") for text in own]
        done += chunk
        if len(order) > 1 and data.draw(st.booleans()):
            kept = data.draw(st.permutations(range(len(order))))[: len(order) - 1]
            padding.filter(kept)
            order = [order[row] for row in kept]
