"""Encoders, converters and formats with one mistake each: the case made for a mistake catches it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline import trellis as baseline
from harness.case.load import load_file
from harness.kinds.base import Notes, StopInstance
from harness.kinds.trellis import KIND, encoding
from harness.kinds.trellis.schema import TrellisCase
from harness.subjects.call import SubjectError
from harness.subjects.protocol import Refused, Subject, Trellis, Unsupported
from harness.subjects.reference.trellis import ReferenceTrellis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol import TrellisSpec

CASES = Path(__file__).parents[2] / "cases" / "trellis"
MISTAKES = {
    "another path": "encode-near-the-optimum",
    "one symbol changed": "encode-in-every-layout",
    "scale taken as positive": "encode-in-every-layout",
    "plain layout always": "encode-in-every-layout",
    "a wider codebook": "encode-quality-of-small-states",
    "a bit less": "encode-quality-of-small-states",
    "codes as int64": "encode-near-the-optimum",
    "lowest bit of a byte first": "convert-to-qtip",
    "not turned": "convert-to-qtip",
    "turned on the way back alone": "convert-to-qtip",
    "words in order": "convert-to-exl3",
    "bytes swapped": "convert-to-exl3",
    "layout forgotten on the way back": "convert-to-exl3",
    "columns cut off": "refuses-columns-that-fill-no-block",
    "a pair made up": "refuses-odd-pairs",
    "any number of bits": "refuses-bits-that-can-not-be",
}
# A case that needs many blocks needs no mistake of its own: what it adds is another state, or another gain.
LIKE_ANOTHER = {"encode-quality", "encode-quality-at-the-best-gain"}


class Fake(ReferenceTrellis):
    """The reference with a mistake built in."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.mistake = mistake

    def encode(self, spec: TrellisSpec, matrix: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[Any]:
        if self.mistake == "a wider codebook":
            matrix = matrix * np.float32(1.15)
        if self.mistake == "another path":
            # Right to the end of each block, where a wrong guess of the seam would have led.
            matrix = matrix.copy()
            matrix[:, :: spec.block] = 0
        if self.mistake == "a bit less":
            matrix = np.clip(matrix, -1.5 * np.abs(scales[:, None]), 1.5 * np.abs(scales[:, None]))
        if self.mistake == "scale taken as positive":
            scales = np.abs(scales)
        codes = super().encode(spec, matrix, scales)
        if self.mistake == "one symbol changed":
            codes[-1] ^= 1 << 31
        if self.mistake == "plain layout always" and spec.interleave:
            words = baseline.split_layout(codes, spec.rows, spec.columns // spec.block, interleave=True)
            codes = words.reshape(-1)
            if spec.columns == 2 * spec.block:
                codes = codes.reshape(spec.rows, 2, -1).transpose(1, 0, 2).reshape(-1)
        return codes.astype(np.int64) if self.mistake == "codes as int64" else codes

    def to_qtip(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
        stream = super().to_qtip(spec, codes)
        if self.mistake == "lowest bit of a byte first":
            return np.packbits(np.unpackbits(stream, axis=-1), axis=-1, bitorder="little")
        if self.mistake == "not turned":
            string = np.roll(np.unpackbits(stream, axis=-1), spec.bits - spec.state_bits, axis=-1)
            return np.packbits(string, axis=-1)
        return stream

    def from_qtip(self, spec: TrellisSpec, stream: NDArray[np.uint8]) -> NDArray[np.uint32]:
        if self.mistake == "turned on the way back alone":
            stream = np.packbits(np.roll(np.unpackbits(stream, axis=-1), 1, axis=-1), axis=-1)
        return super().from_qtip(spec, stream)

    def to_exl3(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        words = super().to_exl3(spec, codes)
        if self.mistake == "bytes swapped":
            return words.byteswap()
        return words[..., ::-1].copy() if self.mistake == "words in order" else words

    def from_exl3(self, spec: TrellisSpec, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        if self.mistake == "layout forgotten on the way back":
            return np.roll(words[..., ::-1], 1, axis=0).reshape(-1)
        return super().from_exl3(spec, words)

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        allowed = {
            "columns cut off": spec.columns % spec.block != 0,
            "a pair made up": spec.interleave and spec.columns // spec.block % 2 == 1,
            "any number of bits": spec.state_bits > 16,
        }
        if allowed.get(self.mistake):
            return np.zeros((spec.rows, spec.columns), np.uint32)
        return super().states(spec, codes)


class Holder(Subject):
    """A subject that has `trellis`."""

    def __init__(self, trellis: Trellis) -> None:
        self.held = trellis

    def trellis(self) -> Trellis:
        return self.held


def caught(case: str, trellis: Trellis) -> bool:
    """Whether an instance of a shipped case finds something."""
    for instance in load_file(CASES / f"{case}.yaml"):
        notes = Notes()
        with suppress(StopInstance):
            KIND.run(instance.case, Holder(trellis), notes)
        assert notes.comparisons, instance.id
        if notes.findings:
            return True
    return False


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_case_made_for_a_mistake_catches_it(mistake: str) -> None:
    assert caught(MISTAKES[mistake], Fake(mistake))


def test_every_case_is_made_for_a_mistake() -> None:
    beyond = {path.stem for path in CASES.glob("*.yaml") if path.stem.startswith(("convert", "encode", "refuses"))}
    assert beyond == {*MISTAKES.values(), *LIKE_ANOTHER}


def case(given: dict[str, Any], **keys: Any) -> TrellisCase:
    content = {"assay": 1, "kind": "trellis", "title": "A title", "why": "A reason", **keys}
    return TrellisCase.model_validate(
        {**content, "given": {"bits": 3, "state_bits": 8, "rows": 2, "columns": 512, **given}}
    )


def findings(checked: TrellisCase, trellis: Trellis) -> list[tuple[str, str, str]]:
    notes = Notes()
    with suppress(StopInstance):
        KIND.run(checked, Holder(trellis), notes)
    return [(finding.where, finding.expected, finding.actual) for finding in notes.findings]


def test_a_gate_says_by_how_much_it_is_missed() -> None:
    gates = [{"mean": 0.02, "within": 0.01}, {"at_most": 0.02}, {"bits": 4, "mean": 1}]
    found = findings(case({"rows": 8}, check=["encode"], gates=gates), Fake())
    assert [expected for _, expected, _ in found] == ["0.02 within 1.0%", "0.02 at most"]
    assert all(actual.startswith("0.02") for _, _, actual in found)


def test_an_error_below_the_limit_is_a_fault_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "error_limit", lambda bits: bits / 3)
    ((where, expected, _),) = findings(case({}, check=["encode"]), Fake())
    assert (where, expected) == ("mean squared error", "1 at least (4 ** -bits)")


def test_what_is_to_be_encoded_can_not_be_written_to() -> None:
    class Writing(Fake):
        def encode(self, spec: TrellisSpec, matrix: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
            matrix[...] = 0
            return super().encode(spec, matrix, scales)

    for weights in ("normal", "decoded"):
        with pytest.raises(SubjectError, match="read-only"):
            KIND.run(case({"weights": weights}, check=["encode"]), Holder(Writing()), Notes())


def test_a_weight_that_does_not_come_back_is_shown_with_its_place() -> None:
    found = findings(
        case({"weights": "decoded", "scales": "signed"}, check=["encode"]), Fake("scale taken as positive")
    )
    assert found[0][0].startswith("row 0, column ")


def test_refusing_a_format_that_can_be_is_an_error_and_gaps_come_through() -> None:
    class Refusing(Fake):
        def encode(self, *_: Any) -> NDArray[Any]:
            raise Refused("no")

    with pytest.raises(SubjectError, match="encode raised Refused"):
        KIND.run(case({}, check=["optimum"]), Holder(Refusing()), Notes())
    with pytest.raises(Unsupported, match="trellis encoding"):
        KIND.run(case({}, check=["encode"]), Holder(Trellis()), Notes())
    with pytest.raises(Unsupported, match="conversion to QTIP"):
        KIND.run(case({}, check=["qtip"]), Holder(Trellis()), Notes())


def test_an_answer_where_a_refusal_is_due_is_named() -> None:
    found = findings(case({"columns": 300}, check=["refused"]), Fake("columns cut off"))
    assert found == [("states", "a refusal, since there is no such format", "uint32 [2, 300]")]


def test_formats_that_can_not_be_are_described() -> None:
    lines = "\n".join(KIND.describe(case({"columns": 300}, check=["refused"])))
    assert "300 columns" in lines
    assert "checked: refused" in lines
    encoded = "\n".join(KIND.describe(case({"gain_percent": 110}, check=["encode"])))
    assert "encoded: normal weights, gain 1.1" in encoded
