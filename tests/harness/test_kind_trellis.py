"""Kind `trellis`: the evidence of its findings, what is timed and described, and the shipped cases on the reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_file
from harness.kinds.base import Notes, StopInstance
from harness.kinds.trellis import KIND
from harness.kinds.trellis.inputs import make_inputs
from harness.kinds.trellis.schema import TrellisCase, TrellisGiven
from harness.subjects.call import SubjectError
from harness.subjects.protocol import Subject, Trellis, Unsupported
from harness.subjects.reference.trellis import ReferenceTrellis
from tests.fakes.cheats import called_twice

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.outcome import Finding
    from harness.subjects.protocol import TrellisSpec

CASES = Path(__file__).parents[2] / "cases" / "trellis"
GIVEN = {"bits": 3, "state_bits": 12, "rows": 2, "columns": 512}
ONE_BLOCK = {"rows": 1, "columns": 256, "symbols": "golden", "scales": "ones"}


class Changed(ReferenceTrellis):
    """The reference with its answers changed on the way out."""

    def __init__(self, change: Callable[[NDArray[Any]], Any] = lambda array: array) -> None:
        super().__init__()
        self.change = change

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        return self.change(super().states(spec, codes))  # type: ignore[no-any-return]

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.change(super().decode(spec, codes, scales))  # type: ignore[no-any-return]

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        return self.change(super().gemv(spec, codes, scales, x, splits=splits))  # type: ignore[no-any-return]


class Holder(Subject):
    """A subject that has `trellis`."""

    def __init__(self, trellis: Trellis) -> None:
        self.held = trellis

    def trellis(self) -> Trellis:
        return self.held


def case(given: dict[str, Any] | None = None, **keys: Any) -> TrellisCase:
    content = {"assay": 1, "kind": "trellis", "title": "A title", "why": "A reason", "check": ["decode"], **keys}
    return TrellisCase.model_validate({**content, "given": {**GIVEN, **(given or {})}})


def findings(checked: TrellisCase, trellis: Trellis) -> list[Finding]:
    notes = Notes()
    try:
        KIND.run(checked, Holder(trellis), notes)
    except StopInstance:
        assert notes.findings
    return notes.findings


def set_at(index: tuple[int, ...], value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array[index] = value
        return array

    return change


# Encoding thousands of blocks, and products by every variant, are left to the run of the cases themselves.
QUICK = [path for path in sorted(CASES.glob("*.yaml")) if not re.search("^encode-quality|variant", path.stem)]


@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.stem)
def test_the_reference_passes_the_shipped_cases(path: Path) -> None:
    for instance in load_file(path):
        assert isinstance(instance.case, TrellisCase)
        assert findings(instance.case, ReferenceTrellis()) == [], instance.id


def test_a_wrong_weight_is_shown_with_its_bits() -> None:
    found = findings(case({"symbols": "golden", "scales": "ones"}), Changed(set_at((1, 257), 7)))
    assert [finding.check for finding in found] == ["decode"]
    assert found[0].where == "row 1, column 257 (block 1, column 1 of it)"
    assert found[0].expected == "0.020297626 (state 1550 (011000001110), level 3, scale 1)"
    assert found[0].actual == "7"
    assert found[0].note == "1 of 1024 elements differ, all where the window wraps around the end of the block"


def test_a_wrong_weight_elsewhere_is_no_question_of_the_wrap() -> None:
    (found,) = findings(case({"codebook": "mcg"}), Changed(set_at((0, 300), np.nan)))
    assert (found.where, found.actual) == ("row 0, column 300 (block 1, column 44 of it)", "nan")
    assert found.note == "1 of 1024 elements differ"
    assert findings(case(check=["tail"]), Changed(set_at((0, 300), np.nan))) == []


def test_a_lost_wrap_is_shown_by_the_tail_alone() -> None:
    (found,) = findings(case(check=["tail"]), Changed(set_at((1, 258), 9)))
    assert (found.check, found.where) == ("tail", "row 1, column 258 (block 1, column 2 of it)")
    assert "run past the block's last bit" in found.note


def test_a_wrong_state_is_shown_in_binary() -> None:
    (found,) = findings(case({"symbols": "golden"}, check=["states"]), Changed(set_at((0, 0), 5)))
    assert (found.expected, found.actual) == ("3265 (110011000001)", "5 (000000000101)")


def test_a_wrong_product_names_vector_and_column() -> None:
    given = {"batch": 3, "splits": 5}
    (found,) = findings(case(given, check=["gemv"]), Changed(set_at((2, 256), 1e9)))
    assert found.where == "vector 2, column 256 (block 1, column 0 of it)"
    assert "bound" in found.note
    assert found.note.endswith("2 rows in 5 splits, 3 of them without rows")


def test_a_one_hot_product_is_compared_to_the_last_bit() -> None:
    def nudge(array: NDArray[Any]) -> NDArray[Any]:
        nudged: NDArray[Any] = np.nextafter(array, np.float32(np.inf))
        return nudged

    given = {"batch": 2, "x": "one-hot"}
    (found,) = findings(case(given, check=["gemv"]), Changed(nudge))
    assert found.where == "vector 0 (1 at row 0, 0 elsewhere), column 0 (block 0, column 0 of it)"
    assert "(state " in found.expected
    assert findings(case({"batch": 2}, check=["gemv"]), Changed(nudge)) == []


def test_the_sign_of_a_zero_sum_is_free_in_a_product_and_fixed_in_a_weight() -> None:
    # Level 0 under a negative scale.
    given = {"scales": "signed", "batch": 2, "x": "one-hot", "seed": 1, "columns": 8192}
    zeros = make_inputs(case(given, check=["gemv"]).given)
    assert findings(case(given, check=["gemv"]), Changed(lambda array: array + np.float32(0))) == []
    assert findings(case({**given, "batch": 1, "x": "normal"}), Changed(lambda array: array + np.float32(0)))
    assert zeros.scales[0] < 0


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (lambda array: array[:1], "float32 [1, 512]"),
        (lambda array: array.astype(np.float16), "float16 [2, 512]"),
        (lambda array: array.tolist(), "list"),
        (lambda _array: None, "NoneType"),
    ],
)
def test_a_wrong_shape_or_type_is_a_finding(change: Callable[[NDArray[Any]], Any], actual: str) -> None:
    (found,) = findings(case(check=["decode", "tail"]), Changed(change))
    assert found.check == "shape"
    assert (found.where, found.expected, found.actual) == (
        "what decode returned",
        "a NumPy array float32 [2, 512]",
        actual,
    )


def test_accidents_and_gaps_of_a_subject_come_through() -> None:
    def explode(_array: NDArray[Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(SubjectError, match="decode raised ZeroDivisionError"):
        KIND.run(case(), Holder(Changed(explode)), Notes())
    with pytest.raises(Unsupported, match="decode: trellis decoding"):
        KIND.run(case(), Holder(Trellis()), Notes())
    with pytest.raises(Unsupported, match="kind trellis"):
        KIND.run(case(), Subject(), Notes())


def test_expected_values_hold_the_baseline_first() -> None:
    (found,) = findings(case(ONE_BLOCK, expect=[{"levels": {0: 56}}]), ReferenceTrellis())
    assert (found.check, found.where) == ("expect", "the baseline, level of column 0")
    assert (found.expected, found.actual) == ("56", "55")
    assert "harness itself disagrees" in found.note


def test_expected_values_hold_the_subject() -> None:
    pins = [{"levels_sum": 4064, "values": {1: 0.020297626}, "words": [0x57873398], "states": {0: 3265}}]
    found = findings(case(ONE_BLOCK, expect=pins), Changed(set_at((0, 1), 1)))
    assert [finding.check for finding in found] == ["decode", "expect"]
    assert found[1].where == "the subject, sum of all levels"
    (_, found_state) = findings(case(ONE_BLOCK, expect=pins, check=["states"]), Changed(set_at((0, 0), 1)))
    assert found_state.where == "the subject, state of column 0"


def test_inputs_are_stable_separate_and_can_not_be_written_to() -> None:
    given = TrellisGiven.model_validate({**GIVEN, "batch": 2})
    inputs = make_inputs(given)
    assert inputs.codes.shape == (2 * 2 * 24,)
    assert inputs.x.shape == (2, 2)
    assert inputs.x.dtype == np.float32
    other = make_inputs(given.model_copy(update={"batch": 5, "dtype": "bfloat16", "scales": "ones"}))
    np.testing.assert_array_equal(inputs.codes, other.codes)
    with pytest.raises(ValueError, match="read-only"):
        inputs.codes[0] = 1


def test_operations_are_prepared_for_the_clock() -> None:
    timed = case({"splits": 2}, time=["decode", "gemv"])
    for operation in timed.time:
        called_twice(KIND.timed(timed, Holder(ReferenceTrellis()), operation, 0))
    with pytest.raises(Unsupported, match="timing of decode"):
        KIND.timed(timed, Holder(Trellis()), "decode", 0)


def test_a_case_is_described() -> None:
    lines = "\n".join(KIND.describe(case({"symbols": "golden", "splits": 3, "interleave": True}, check=["gemv"])))
    assert "codes: 96 words, 384 bytes, laid out [1][2][2][24]" in lines
    assert "state of column t of a block: 12 bits from bit (255 - t) * 3 on" in lines
    assert "columns 0 to 2 of each block" in lines
    assert "first states: 3265 1550 115 " in lines
    assert "first levels: 55 3 200 " in lines
    assert "rows of each split: 0-0, 1-1, none" in lines
