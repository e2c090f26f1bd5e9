"""The driver of ring cases: what it asks of a batch step by step, what it calls wrong, and what it says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import yaml

from harness.baseline.ring import Histories, Row
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring.complaints import complaints
from harness.kinds.ring.run import run
from harness.kinds.ring.schema import RingCase
from harness.outcome import Finding
from harness.subjects.protocol import Answer, PlainArrays, Refused, Ring, Unsupported
from tests.fakes import batch_mistakes as wrong
from tests.fakes.batches import NaiveBatch, NaiveBatches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CHECKS = ["visible", "stored", "positions"]


def case(steps: str, *, check: Sequence[str] = CHECKS, window: int | str = 4, **given: Any) -> RingCase:
    text = {"assay": 1, "kind": "ring", "title": "t", "why": "w", "check": list(check), "steps": yaml.safe_load(steps)}
    made = RingCase.model_validate(text | {"given": {"window": window, "kv_heads": 1, "head_dim": 64, **given}})
    assert list(complaints(made)) == []
    return made


def played(ring: type[NaiveBatch], steps: str, **given: Any) -> Notes:
    class Fake(NaiveBatches):
        ring_class: ClassVar[type[NaiveBatch]] = ring

    notes = Notes()
    try:
        run(case(steps, **given), Fake(), notes)
    except StopInstance:
        assert notes.findings
    return notes


def finding(ring: type[NaiveBatch], steps: str, **given: Any) -> Finding:
    notes = played(ring, steps, **given)
    assert notes.findings, "the mistake was not noticed"
    return notes.findings[0]


EVERY_STEP = """
- merge: {rows: [[append: 2], [], [{decode: 5}, {trim: 1}]]}
- prefill: {lengths: [1, 3, 0], chunks: [2, 1]}
- begin: round
- append: 3
- filter: {rows: [2, 0, 1]}
- rollback: {keep: [0, 2, 1]}
- extend: {rows: [[append: 6]]}
- decode: 2
- copy: deep
- prepare: {lengths: [2, 1, 1, 3], left: [0, 1, 0, 0]}
- chunk: 1
- filter: {rows: [3, 1]}
- chunk: 2
- finalize
- save-load
- begin: round
- decode: 1
- commit
- trim: 1
- quantize: {bits: 4, group: 32}
- extract: {row: 1, limit: 3}
- append: 2
- merge: {rows: [[{append: 1}, {quantize: {bits: 4, group: 32}}]]}
- decode: 3
"""


def test_a_right_batch_passes_every_step() -> None:
    notes = played(NaiveBatch, EVERY_STEP, check=[*CHECKS, "attention", "untouched"])
    assert notes.findings == []
    assert notes.comparisons > 100


def test_every_row_has_ids_of_its_own_and_keeps_them() -> None:
    class Swapped(NaiveBatch):
        def filter(self, rows: Sequence[int]) -> None:
            super().filter(rows[::-1])

    steps = "[merge: {rows: [[append: 1], [append: 2], [append: 3]]}, filter: {rows: [2, 1]}, append: 1]"
    found = finding(Swapped, steps, check=["visible"])
    assert found.where == "step 3 (append 1): row 0, query of token 204"
    assert (found.expected, found.actual) == ("sees {201..204}", "sees {101, 102, 204}")


def test_ids_that_were_taken_back_are_not_written_again() -> None:
    class Lazy(NaiveBatch):
        def rollback(self, keep: Sequence[int]) -> None:
            """Keep everything."""

    steps = "[append: 2, begin: round, append: 2, rollback: {keep: 1}, append: 1]"
    found = finding(Lazy, steps, check=["visible"], rows=2)
    assert (found.expected, found.actual) == ("sees {1..3, 5}", "sees {2..5}")


def test_rows_built_for_an_extend_are_numbered_behind_the_others() -> None:
    steps = "[append: 1, extend: {rows: [[append: 1]]}, append: 1]"
    found = finding(wrong.ExtendInFront, steps, check=["visible"], rows=2)
    assert (found.expected, found.actual) == ("sees {1, 2}", "sees {2, 201}")


def test_a_later_merge_takes_the_cache_at_hand_along() -> None:
    steps = "[append: 3, merge: {rows: [[append: 1], []]}, decode: 2]"
    assert played(NaiveBatch, steps).findings == []
    found = finding(wrong.MergeReverses, steps, check=["visible"])
    assert (found.expected, found.actual) == ("sees {1..4}", "sees {4}")


def test_a_later_merge_wants_one_row() -> None:
    text = "[merge: {rows: [[append: 1], []]}, merge: {rows: [[]]}, append: 1]"
    made = {"assay": 1, "kind": "ring", "title": "t", "why": "w", "check": ["visible"], "steps": yaml.safe_load(text)}
    found = list(complaints(RingCase.model_validate(made | {"given": {"window": 4}})))
    assert [(place, "the one at hand has more rows" in words) for place, words in found] == [
        (("steps", 1, "merge"), True)
    ]


COPIED = "[append: 3, copy: deep, decode: 2]"


def test_a_copy_that_shares_state_shows_in_the_original() -> None:
    found = finding(wrong.SharedCopy, COPIED, rows=2)
    place = "one token given to the cache that was copied, after its copy went on"
    assert found.where == f"{place}: row 0, query of token 4"
    assert (found.expected, found.actual) == ("sees {1..4}", "sees {3..5}")
    assert found.note == "missing {1, 2}; too many {5}; seen twice {4}"


def test_a_copy_that_shares_positions_only_is_noticed_too() -> None:
    class OneOffset(NaiveBatch):
        told: ClassVar[list[int]] = []

        def append(self, keys: Any, values: Any, queries: Any) -> Answer:
            answer = super().append(keys, values, queries)
            OneOffset.told[:] = [max(count, row.length) for count, row in zip(self.known(), self.rows, strict=True)]
            return answer

        def known(self) -> list[int]:
            return OneOffset.told or [0] * len(self.rows)

        def offsets(self) -> list[int]:
            return list(self.known())

    found = finding(OneOffset, COPIED, check=["positions"], rows=2)
    assert (found.expected, found.actual) == ("offsets [4, 4]", "offsets [5, 5]")
    assert found.where.startswith("one token given to the cache that was copied")


def test_a_filter_that_forgets_the_open_round() -> None:
    steps = """
    - merge: {rows: [[append: 1], [append: 3]]}
    - begin: round
    - append: 2
    - filter: {rows: [1]}
    - rollback: {keep: 1}
    """
    assert finding(wrong.FilterForgetsRound, steps).expected == "offsets [4]"


def test_stale_rope_offsets() -> None:
    found = finding(wrong.StaleRope, "[begin: round, append: 2, rollback: {keep: [0, 1]}]", rows=2)
    assert found == Finding(
        "positions", "step 3 (rollback {keep: [0, 1]})", "rope offsets [0, 1]", "rope offsets [2, 2]"
    )


REFUSED = "[append: 3, begin: round, append: 2, {rollback: {keep: [0, 1]}, expect: refused}, commit, append: 1]"


def test_an_expected_refusal_that_changed_a_row_shows_at_once() -> None:
    found = finding(wrong.RefusedRollbackCuts, REFUSED, rows=2)
    assert found.where == "step 4 (rollback {keep: [0, 1]})"
    assert (found.expected, found.actual) == ("offsets [5, 5]", "offsets [3, 5]")


def test_an_unexpected_refusal_is_unsupported_if_nothing_changed() -> None:
    class No(NaiveBatch):
        def rollback(self, keep: Sequence[int]) -> None:
            raise Refused(f"not {list(keep)}")

    steps = REFUSED.replace(", expect: refused", "").replace(", commit", "")
    with pytest.raises(Unsupported, match=r"step 4 .*: refuses: not \[0, 1\]"):
        played(No, steps, rows=2)
    found = finding(wrong.RefusedRollbackCuts, steps, rows=2)
    assert found.where == "one token after step 4 (rollback {keep: [0, 1]}) was refused: row 0, query of token 6"


def test_doing_what_a_ring_would_refuse_closes_the_round_and_the_case_goes_on() -> None:
    assert played(NaiveBatch, REFUSED, rows=2).findings == []
    twice = REFUSED.replace("commit", "rollback: {keep: 2}")
    assert played(NaiveBatch, twice, rows=2).findings == []


def test_evidence_says_that_a_refusal_was_due() -> None:
    class Half(NaiveBatch):
        def rollback(self, keep: Sequence[int]) -> None:
            super().rollback([keep[0]] * len(self.rows))

    found = finding(Half, REFUSED, rows=2)
    assert "step 4 (rollback {keep: [0, 1]}) was done although the cache no longer held what the rest needs" in (
        found.note
    )


def test_evidence_has_the_remarks_of_the_subject() -> None:
    class Talks(wrong.TrimFirstRow):
        def remarks(self) -> list[str]:
            return ["is_trimmable() said no", "is_trimmable() said no"]

    assert finding(Talks, "[append: 2, trim: 1]", rows=2).note == "is_trimmable() said no"


def test_a_trim_that_gives_less_where_a_refusal_was_due_is_taken_at_its_word() -> None:
    class Less(NaiveBatch):
        def trim(self, tokens: int) -> int:
            return super().trim(tokens - 1)

    steps = "[append: 4, {trim: 2, expect: refused}, append: 1]"
    assert played(Less, steps, rows=2).findings == []
    found = finding(Less, steps.replace(", expect: refused", ""), rows=2)
    assert (found.check, found.expected, found.actual) == ("trim", "returns 2", "returns 1")


def test_a_trim_deeper_than_a_row_empties_it() -> None:
    histories = Histories(4, rows=[Row([1, 2, 3]), Row([101])])
    histories.trim(2)
    assert [row.tokens for row in histories.rows] == [[1], []]


def test_padding_queries_may_see_anything_but_must_be_finite() -> None:
    steps = "[prefill: {lengths: [1, 3]}, append: 1]"
    assert played(NaiveBatch, steps, check=["visible", "attention"], rows=2).findings == []
    found = finding(wrong.PaddingGivesNan, steps, check=["visible", "attention"], rows=2)
    assert found.where == "step 1 (prefill {lengths: [1, 3]}), columns 0..2: row 0, padding query 1"
    assert found.expected == "finite values"


def test_positions_are_not_asked_while_padding_may_count() -> None:
    class CountsPadding(NaiveBatch):
        extra = 0

        def append(self, keys: Any, values: Any, queries: Any) -> Answer:
            self.extra = 1 if self.real else 0
            return super().append(keys, values, queries)

        def finalize(self) -> None:
            super().finalize()
            self.extra = 0

        def offsets(self) -> list[int]:
            return [row.length + self.extra for row in self.rows]

    steps = "[prepare: {lengths: [1, 3]}, chunk: 2, chunk: 1, finalize, append: 1]"
    assert played(CountsPadding, steps, rows=2).findings == []


@pytest.mark.parametrize("ring", [wrong.PaddingIsTokens, wrong.LeftPaddingIsTokens])
def test_padding_that_counts_after_finalize(ring: type[NaiveBatch]) -> None:
    found = finding(ring, "[prefill: {lengths: [1, 3], left: [2, 0]}]", check=["positions"], rows=2)
    assert (found.expected, found.actual) == ("offsets [1, 3]", "offsets [3, 3]")


def test_a_filter_in_an_open_prefill_takes_the_columns_to_come_along() -> None:
    steps = "[prepare: {lengths: [1, 3]}, chunk: 1, filter: {rows: [1]}, chunk: 2, finalize, append: 1]"
    assert played(NaiveBatch, steps, rows=2).findings == []
    found = finding(wrong.FilterForgetsPrefill, steps, rows=2)
    assert (found.expected, found.actual) == ("sees {101, 102}", "sees {101..103}")


def test_a_pad_that_is_visible_is_counted() -> None:
    found = finding(wrong.PaddingSeen, "[merge: {rows: [[append: 3], []]}, append: 1]", check=["visible"])
    assert found.where == "step 2 (append 1): row 1, query of token 101"
    assert (found.expected, found.actual) == ("sees {101}", "sees {101} and 1 column that hold no token")


def test_the_mask_of_another_row_is_noticed_by_attention_alone() -> None:
    steps = "[merge: {rows: [[append: 1], [append: 4]]}, append: 1]"
    assert played(wrong.MaskOfFirstRow, steps, check=["visible"]).findings == []
    assert finding(wrong.MaskOfFirstRow, steps, check=["visible", "attention"]).check == "attention"


def test_one_of_three_planes_moved_is_noticed_by_stored_alone() -> None:
    class ScalesStay(NaiveBatch):
        def filter(self, rows: Sequence[int]) -> None:
            scales = [row.planes["keys"][1] for row in self.rows]
            super().filter(rows)
            for row, stay in zip(self.rows, scales, strict=False):
                packed, _, biases = row.planes["keys"]
                row.planes["keys"] = (packed, stay, biases)

    steps = "[append: 2, filter: {rows: [1]}, append: 1]"
    found = finding(ScalesStay, steps, rows=2, storage="affine8x32", check=["stored"])
    assert "keys.scales" in found.where


def test_arrays_of_rows_are_compared_by_position_in_the_batch() -> None:
    class Rolled(NaiveBatch):
        def arrays(self, planes: tuple[Any, ...]) -> Any:
            return PlainArrays(np.roll(planes[0], 1, axis=0))

    found = finding(Rolled, "[append: 1]", rows=3, check=["visible"])
    assert (found.expected, found.actual) == ("sees {1}", "sees {201}")


def test_arrays_handed_out_are_looked_at_after_every_operation() -> None:
    class WritesOnFilter(NaiveBatch):
        def filter(self, rows: Sequence[int]) -> None:
            super().filter(rows)
            given: NDArray[Any] = self.book[0][1]
            given[...] = 0

    found = finding(WritesOnFilter, "[append: 2, filter: {rows: [0]}, append: 1]", rows=2, check=["untouched"])
    assert found.where == "step 2 (filter {rows: [0]}): given keys, element [0, 0, 0, 0]"


def test_check_steps_alone_decide_where_a_case_is_looked_at() -> None:
    steps = "[append: 2, trim: 1, append: 1, check, append: 1]"
    found = finding(wrong.TrimFirstRow, steps, rows=2)
    assert found.where.startswith("step 3")


def test_steps_that_a_subject_lacks_are_unsupported_by_name() -> None:
    class NoRows(NaiveBatch):
        def merge(self, others: Sequence[Ring]) -> Ring:
            raise Unsupported(f"merge of {len(others)}")

    with pytest.raises(Unsupported, match=r"step 1 \(merge .*: merge of 2"):
        played(NoRows, "[merge: {rows: [[append: 1], []]}, append: 1]")


def test_a_refused_merge_is_unsupported_with_its_reason() -> None:
    class OneRow(NaiveBatch):
        def merge(self, others: Sequence[Ring]) -> Ring:
            raise Refused(f"{len(others)} rows")

    with pytest.raises(Unsupported, match="refuses: 2 rows"):
        played(OneRow, "[merge: {rows: [[append: 1], []]}, append: 1]")
