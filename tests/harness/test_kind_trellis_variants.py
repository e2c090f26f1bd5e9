"""Variants of a product: cases name them, subjects offer them, and each is held to the rounding that it promises."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline import trellis as baseline
from harness.case.load import load_file
from harness.errors import CaseFileError
from harness.kinds.base import Notes, StopInstance
from harness.kinds.trellis import KIND
from harness.subjects.protocol import Subject, Trellis, TrellisOffer, Unsupported
from harness.subjects.registry import load_subject

if TYPE_CHECKING:
    from harness.case.model import CaseModel
    from harness.subjects.protocol import TrellisSpec

CASES = Path(__file__).parents[2] / "cases" / "trellis"
HEAD = "assay: 1\nkind: trellis\ntitle: t\nwhy: w\n"


class Kernels(Subject, Trellis):
    """Three variants in NumPy's float32, with one mistake or none."""

    def __init__(self, mistake: str = "", variant: str = "", reason: str | None = None) -> None:
        self._mistake, self._variant, self._reason = mistake, variant, reason

    def trellis(self) -> Trellis:
        return self

    def variants(self, spec: TrellisSpec, *, batch: int, splits: int) -> dict[str, TrellisOffer]:
        del spec, batch, splits
        folded = TrellisOffer(self._reason, "direct" if self._mistake == "promises too much" else "offset")
        return {"balanced": TrellisOffer(), "tiled": TrellisOffer(), "folded": folded}

    def variant(self, name: str) -> Trellis:
        return Kernels(self._mistake, name)

    def partials(self, spec: TrellisSpec, codes: Any, scales: Any, x: Any, *, splits: int) -> Any:
        blocks = spec.columns // spec.block
        words = baseline.split_layout(codes, spec.rows, blocks, interleave=spec.interleave)
        weights = baseline.decode(words, scales, spec.bits, spec.state_bits, spec.codebook)
        sums = np.zeros((len(x), splits, spec.columns), np.float32)
        vectors = x.astype(np.float32)
        for split, rows in enumerate(baseline.split_rows(spec.rows, splits)):
            for row in rows:
                sums[:, split] += vectors[:, row, None] * weights[row]
            if not rows and self._mistake == "empty split":
                sums[:, split] = np.nan
        if self._variant == "tiled" and self._mistake == "last bit":
            sums = np.where(sums == 0, sums, np.nextafter(sums, np.float32(np.inf)))
        if self._variant == "folded":
            # Off by more than a kernel with direct rounding can be, and less than one that sums bytes.
            for split, rows in enumerate(baseline.split_rows(spec.rows, splits)):
                part = slice(rows.start, rows.stop)
                factors = np.abs(vectors[:, part]) @ np.abs(scales[part]) * baseline.INVERSE_SIGMA
                sums[:, split] += (2 * 1020 * 2.0**-24 * factors)[:, None]
        if self._variant == "folded" and self._mistake == "one column":
            sums[..., 7] += 0.1
        if self._mistake == "splits in the wrong order":
            sums = sums[:, ::-1]
        if self._mistake == "float64":
            return sums.astype(np.float64)
        return sums

    def gemv(self, spec: TrellisSpec, codes: Any, scales: Any, x: Any, *, splits: int) -> Any:
        sums = self.partials(spec, codes, scales, x, splits=splits)
        return sums[:, 1:].sum(axis=1) if self._mistake == "first split not added" else sums.sum(axis=1)


def case_of(given: str, rest: str = "check: [gemv, partials]\n") -> CaseModel:
    return KIND.model.model_validate(
        {
            "assay": 1,
            "kind": "trellis",
            "title": "t",
            "why": "w",
            "given": {
                "bits": 3,
                "state_bits": 12,
                "rows": 9,
                "columns": 256,
                "splits": 4,
                "batch": 2,
                "variant": given,
            },
            **{key: value for key, value in (("check", ["gemv", "partials"]),) if "check" in rest},
            **({"same_bits_as": "balanced"} if "same" in rest else {}),
        }
    )


def findings(mistake: str, variant: str = "all", rest: str = "check") -> list[str]:
    notes = Notes()
    with suppress(StopInstance):
        KIND.run(case_of(variant, rest), Kernels(mistake), notes)
    assert notes.comparisons
    return [f"{finding.check}: {finding.where}" for finding in notes.findings]


def test_right_kernels_pass() -> None:
    assert not findings("")
    assert not findings("", "tiled", "check, same")


@pytest.mark.parametrize(
    ("mistake", "check", "where"),
    [
        ("empty split", "partials", "split 3 (no rows), vector 0"),
        ("splits in the wrong order", "partials", "split 0 (rows 0 to 2), vector"),
        ("first split not added", "gemv", "variant 'balanced'"),
        ("one column", "partials", "column 7 of it), variant 'folded'"),
        ("promises too much", "gemv", "variant 'folded'"),
        ("float64", "shape", "what"),
    ],
)
def test_a_mistake_is_found_and_says_whose_it_is(mistake: str, check: str, where: str) -> None:
    found = findings(mistake)
    assert any(text.startswith(f"{check}: ") and where in text for text in found), found


def test_one_bit_is_a_difference_where_bits_are_promised() -> None:
    found = findings("last bit", "tiled", "check, same")
    assert [text.partition(":")[0] for text in found] == ["same_bits_as"]


def test_what_does_not_apply_is_unsupported_with_the_subjects_reason() -> None:
    subject = Kernels(reason="it has no table of so many words")
    with pytest.raises(Unsupported, match="variant 'folded' does not apply: it has no table of so many words"):
        KIND.run(case_of("folded"), subject, Notes())
    with pytest.raises(Unsupported, match="no variant 'mine'; it has balanced, tiled, folded"):
        KIND.run(case_of("mine"), subject, Notes())
    # `all` goes on without it.
    KIND.run(case_of("all"), subject, Notes())


def test_a_subject_without_variants_is_unsupported() -> None:
    class Plain(Subject, Trellis):
        def trellis(self) -> Trellis:
            return self

    with pytest.raises(Unsupported, match="variants"):
        KIND.run(case_of("balanced"), Plain(), Notes())


@pytest.mark.parametrize(
    ("given", "rest", "message"),
    [
        ("variant: balansed", "check: [gemv]", "'balansed' is no variant; did you mean 'balanced'?"),
        ("variant: tiled", "check: [gemv]\nsame_bits_as: balaced", "'balaced' is no variant; did you mean 'balanced'?"),
        ("variant: tiled", "check: [gemv]\nsame_bits_as: tiled", "write another one than 'tiled'"),
        ("variant: all", "check: [gemv]\nsame_bits_as: tiled", "name both"),
        ("variant: all", "check: [gemv]\ntime: [gemv]", "times one variant at a time"),
        ("variant: tiled", "check: [decode]", "does nothing without a product"),
        ("batch: 2", "check: [partials]", "are shown by a variant alone"),
        ("batch: 2", "check: [gemv]\nsame_bits_as: tiled", "speaks of a variant"),
    ],
)
def test_a_case_that_can_not_be_says_what_to_write(tmp_path: Path, given: str, rest: str, message: str) -> None:
    path = tmp_path / "cases" / "trellis" / "x.yaml"
    path.parent.mkdir(parents=True)
    numbers = "bits: 3, state_bits: 12, rows: 9, columns: 256"
    path.write_text(f"{HEAD}given: {{{numbers}, {given}}}\n{rest}\n")
    with pytest.raises(CaseFileError) as caught:
        load_file(path)
    assert message in str(caught.value)


def test_a_name_that_only_another_subject_has_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "cases" / "trellis" / "x.yaml"
    path.parent.mkdir(parents=True)
    numbers = "bits: 3, state_bits: 12, rows: 9, columns: 256"
    path.write_text(f"{HEAD}given: {{{numbers}, variant: my-own}}\ncheck: [gemv]\n")
    assert load_file(path)


def test_shipped_cases_name_every_known_variant() -> None:
    from harness.kinds.trellis.variants import KNOWN_VARIANTS

    named = {
        instance.case.given.variant  # type: ignore[attr-defined]
        for path in CASES.glob("*variant*.yaml")
        for instance in load_file(path)
    }
    assert named >= {*KNOWN_VARIANTS, "all"}


def test_a_variant_is_timed_as_a_subject_of_its_own() -> None:
    subject = load_subject("reference@folded-offset")
    assert subject.chosen_variant == "folded-offset"
    assert load_subject("reference").chosen_variant is None
    case = case_of("tiled")
    timed = KIND.timed(case, subject, "gemv", 0)
    notes = Notes()
    for number in range(timed.turns + 1):
        timed.check(number, np.array(timed.call(number)), notes)
    assert notes.comparisons
    assert not notes.findings
    # The bound is that of sums of bytes: a direct product's is narrower, and 2 % off is wrong for both.
    timed.check(0, np.array(timed.call(0)) * np.float32(1.02), notes)
    assert [finding.check for finding in notes.findings] == ["gemv"]


def test_a_variant_that_does_not_apply_can_not_be_timed() -> None:
    with pytest.raises(Unsupported, match="batch=2; it multiplies 16 vectors"):
        KIND.timed(case_of("tiled"), load_subject("reference@matrix"), "gemv", 0)


def test_decoding_is_timed_without_variants() -> None:
    timed = KIND.timed(case_of("tiled"), load_subject("reference"), "decode", 0)
    notes = Notes()
    timed.check(0, np.array(timed.call(0)), notes)
    assert notes.comparisons
    assert not notes.findings
