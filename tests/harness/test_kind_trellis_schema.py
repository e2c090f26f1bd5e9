"""Kind `trellis`: what its files may say, and how they are told what they may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.case.load import load_file
from harness.errors import CaseFileError
from harness.kinds.trellis import KIND

if TYPE_CHECKING:
    from pathlib import Path

GIVEN = {"bits": 3, "state_bits": 12, "rows": 2, "columns": 512}
ONE_BLOCK = {"rows": 1, "columns": 256, "symbols": "golden", "scales": "ones"}


def complaints(given: dict[str, Any] | None = None, **keys: Any) -> dict[tuple[str | int, ...], str]:
    content = {"assay": 1, "kind": "trellis", "title": "A title", "why": "A reason", "check": ["decode"], **keys}
    return dict(KIND.complaints(KIND.model.model_validate({**content, "given": {**GIVEN, **(given or {})}})))


@pytest.mark.parametrize(
    ("given", "keys", "place", "words"),
    [
        ({"bits": 9, "state_bits": 12}, {}, ("given", "bits"), "1 to 8"),
        ({"state_bits": 17}, {}, ("given", "state_bits"), "write 3 to 16, not 17"),
        ({"state_bits": 2}, {}, ("given", "state_bits"), "at least the newest symbol"),
        ({"block": 20, "columns": 40}, {}, ("given", "block"), "write a multiple of 32"),
        ({"columns": 600}, {}, ("given", "columns"), "not a multiple of block (256); write 512 or 768"),
        ({"columns": 100}, {}, ("given", "columns"), "write 256"),
        ({"columns": 768, "interleave": True}, {}, ("given", "columns"), "write 1024, or `interleave: false`"),
        ({"splits": 2}, {}, ("given", "splits"), "does nothing without a product"),
        ({"gain_percent": 90}, {}, ("given", "gain_percent"), "write `check: [encode]`"),
        ({"weights": "normal"}, {}, ("given", "weights"), "does nothing without an encoder"),
        ({"bits": 5, "state_bits": 9}, {"check": ["encode"]}, ("given", "state_bits"), "needs states of two symbols"),
        ({"weights": "decoded", "gain_percent": 99}, {"check": ["encode"]}, ("given", "weights"), "come back exactly"),
        ({}, {"check": ["optimum"]}, ("check", 0), "states of up to 8 bits, not 12"),
        ({"state_bits": 8, "rows": 9}, {"check": ["optimum"]}, ("check", 0), "up to 16 blocks"),
        ({}, {"check": ["exl3"]}, ("check", 0), "write `state_bits: 16`"),
        ({}, {"gates": [{"mean": 1}]}, ("gates",), "write `check: [encode]`"),
        ({}, {"check": ["encode"], "gates": [{"bits": 2}]}, ("gates",), "has no entry for bits 3, state_bits 12"),
        ({}, {"check": ["refused"]}, ("check",), "this format can be, so nothing may refuse it"),
        ({"columns": 100}, {"check": ["refused", "decode"]}, ("check",), "write `check: [refused]`"),
        ({}, {"check": ["decode", "decode"]}, ("check", 1), "stands here twice"),
        ({"bits": 8, "state_bits": 8}, {"check": ["tail"]}, ("check", 0), "`where: state_bits > bits`"),
        ({}, {"expect": [{"words": [1]}]}, ("expect",), "write `rows: 1` and `columns: 256`"),
        (ONE_BLOCK, {"expect": [{"bits": 4}]}, ("expect",), "has no entry for bits 3, state_bits 12, codebook 1mad"),
        (ONE_BLOCK, {"expect": [{"states": {256: 0}}]}, ("expect", 0), "column 256 does not exist"),
        (ONE_BLOCK, {"expect": [{"words": [0] * 25}]}, ("expect", 0, "words"), "a block has 24 words, not 25"),
        ({**ONE_BLOCK, "codebook": "mcg"}, {"expect": [{"levels_sum": 1}]}, ("expect", 0), "write `values`"),
        ({**ONE_BLOCK, "scales": "random"}, {"expect": [{"levels_sum": 1}]}, ("given", "scales"), "`scales: ones`"),
    ],
)
def test_what_can_not_be_is_named(
    given: dict[str, Any], keys: dict[str, Any], place: tuple[str | int, ...], words: str
) -> None:
    assert words in complaints(given, **keys)[place]


def test_nothing_is_wrong_with_a_plain_case() -> None:
    assert complaints() == {}


def test_a_format_that_can_not_be_may_be_refused() -> None:
    assert complaints({"columns": 100}, check=["refused"]) == {}
    assert complaints({"columns": 768, "interleave": True}, check=["refused"]) == {}


def test_a_file_names_line_column_and_the_nearest_word(tmp_path: Path) -> None:
    content = {"assay": 1, "kind": "trellis", "title": "A title", "why": "A reason"}
    path = tmp_path / "wrong.yaml"
    given = {**GIVEN, "codebook": "3inSt", "split": 2, "columns": "2 * bits"}
    path.write_text(yaml.safe_dump({**content, "given": given, "check": ["decoded"]}, sort_keys=False))
    with pytest.raises(CaseFileError) as caught:
        load_file(path)
    text = str(caught.value)
    assert "wrong.yaml:10:13: given.codebook" in text
    assert "given.codebook: '3inSt' is not valid here; did you mean '3inst'?" in text
    assert "given.split: unknown key; did you mean 'splits'?" in text
    assert "check[0]: 'decoded' is not valid here; did you mean 'decode'?" in text
