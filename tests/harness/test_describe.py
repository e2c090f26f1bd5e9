"""`assay show` tells what happens without a subject, for every shipped case."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.case.load import load_file
from harness.kinds import get_kind

CASES = Path(__file__).parents[2] / "cases"


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_case_can_be_told(path: Path) -> None:
    for instance in load_file(path)[::20]:
        lines = list(get_kind(instance.kind).describe(instance.case))
        assert len(lines) >= 3, lines


def test_a_trim_is_told_token_by_token() -> None:
    instances = load_file(CASES / "ring" / "trim-after-long-block.yaml")
    case = next(i.case for i in instances if i.id.endswith("[window=4,held=1,block=9,trim=2]"))
    assert list(get_kind("ring").describe(case)) == [
        "cache: window 4, 1 row, 2 key heads, head_dim 64, float32, plain",
        "step 1 (append 1)",
        "  query of token 1 sees {1}",
        "step 2 (append 9)",
        "  query of token 2 sees {1, 2}",
        "  query of token 3 sees {1..3}",
        "  query of token 4 sees {1..4}",
        "  ... 5 more queries ...",
        "  query of token 10 sees {7..10}",
        "step 3 (trim 2)",
        "step 4 (append 1)",
        "  query of token 11 sees {6..8, 11}",
        "checked: visible, stored, attention, positions",
    ]
