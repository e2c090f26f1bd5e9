"""The guide of impl: what it draws is drawn again by the code, and the names it uses exist."""

from __future__ import annotations

import ast
import pkgutil
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import impl.errors
from impl.errors import PendingPrefillError
from impl.rings import BatchedRotatingCache, RotatingKVCache, SpeculativeRotatingKVCache
from impl.rings.position import BatchedRotatingState
from impl.rings.ring import GROWTH_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(impl.errors.__file__).parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WINDOW = 6


def block(*rows: range) -> tuple[mx.array, mx.array]:
    """Keys and values ``[rows, 1, tokens, 32]``, full of the number of their token."""
    ids = mx.array([list(row) for row in rows], dtype=mx.float32)
    keys = mx.broadcast_to(ids[:, None, :, None], (len(rows), 1, len(rows[0]), 32))
    return keys, keys


def start() -> SpeculativeRotatingKVCache:
    """Two requests in one batch, of 4 tokens and of 1, and one decode step."""
    solos = [RotatingKVCache(WINDOW), RotatingKVCache(WINDOW)]
    solos[0].update_and_fetch(*block(range(1, 5)))
    solos[1].update_and_fetch(*block(range(101, 102)))
    ring = SpeculativeRotatingKVCache.merge(solos)
    ring.update_and_fetch(*block(range(5, 6), range(102, 103)))
    return ring


def wrapped() -> SpeculativeRotatingKVCache:
    ring = start()
    for token in (6, 7):
        ring.update_and_fetch(*block(range(token, token + 1), range(token + 97, token + 98)))
    return ring


def verified() -> SpeculativeRotatingKVCache:
    ring = wrapped()
    ring.spec_round_begin()
    ring.update_and_fetch(*block(range(8, 11), range(105, 108)))
    return ring


def rolled_back(*keep: int) -> SpeculativeRotatingKVCache:
    ring = verified()
    ring.spec_round_rollback(keep)
    return ring


def drawn(ring: BatchedRotatingCache) -> str:
    """Draw the physical columns: a token by its number, padding as a dot, a spare column as a line."""
    position, keys = ring.position, ring.keys
    assert keys is not None
    numbers = np.array(keys[:, 0, :, 0]).astype(int)
    physical = [column for piece in position.physical_ranges(0, position.active_length) for column in range(*piece)]
    lines = []
    for row in range(position.batch_size):
        cells = ["_"] * keys.shape[2]
        for column, place in enumerate(physical):
            real = position.left_pad[row] <= column < position.end(row)
            cells[place] = str(numbers[row, place]) if real else "·"
        lines.append(f"row {row} |" + "".join(f"{cell:>4}" for cell in cells))
    shown = ("offsets", "left_pad", "ring_index", "total_offset", "rotated")
    return "\n".join([*lines, "  ".join(f"{name} {getattr(position, name)}" for name in shown)])


PICTURES: dict[str, Callable[[], BatchedRotatingCache]] = {
    "before the wrap": start,
    "after the wrap": wrapped,
    "after a block of 3": verified,
    "after a rollback with keep [1, 3]": lambda: rolled_back(1, 3),
    "after a rollback with keep [1, 1]": lambda: rolled_back(1, 1),
}


@pytest.mark.parametrize("title", PICTURES)
def test_a_picture_is_what_the_code_draws(title: str) -> None:
    [picture] = [part for part in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL)[0].split("\n\n") if title in part]
    assert picture.split("\n", 1)[1].strip() == drawn(PICTURES[title]())


def test_the_masks_are_those_of_the_pictures() -> None:
    def text(ring: BatchedRotatingCache, tokens: int) -> list[str]:
        mask = np.array(ring.make_mask(tokens, return_array=True)).astype(int)[:, 0]
        return [" ".join("".join(map(str, query)) for query in row) for row in mask]

    first, second = text(wrapped(), 1)
    assert f"`{first}` for row 0 and `{second}` for row 1" in TEXT
    first, second = text(wrapped(), 3)
    assert f"`{first}` for row 0 and `{second}` for row 1" in TEXT


def test_a_rollback_that_keeps_nothing_leaves_one_token_fewer() -> None:
    ring = rolled_back(0, 0)
    assert drawn(ring).startswith("row 0 |   3   4   5   6   7\n")
    assert ring.position.stored(0) == WINDOW - 1
    assert "With keep [0, 0] the ring holds 3 to 7" in TEXT


def test_the_prefill_of_the_text() -> None:
    ring = BatchedRotatingCache(WINDOW)
    ring.prepare_prefill([2, 4], right_padding=[2, 0])
    ring.update_and_fetch(*block(range(1, 5), range(101, 105)))
    assert f"`offsets {ring.position.offsets}` and `prefill_ends {ring.position.prefill_ends}`" in TEXT
    with pytest.raises(PendingPrefillError):
        ring.trim(1)
    ring.finalize_prefill()
    assert f"`offsets {ring.position.offsets}`, `left_pad {ring.position.left_pad}`" in TEXT
    assert drawn(ring).startswith("row 0 |   ·   ·   1   2\n")


def test_the_numbers_and_fields_of_the_text() -> None:
    assert f"spare columns {GROWTH_COLUMNS} at a time" in TEXT
    for field in fields(BatchedRotatingState):
        assert f"\n| `{field.name}` |" in TEXT


def test_every_module_and_name_of_the_guide_exists() -> None:
    table = TEXT[TEXT.index("## Modules") :]
    names = {name for path in sorted(ROOT.rglob("*.py")) for name in defined_in(path)}
    for line in table.splitlines()[4:]:
        modules, calls = line.strip("| ").split(" | ")
        for module in re.findall(r"`([\w/]+(?:\.py|/))`", modules):
            assert (ROOT / module).exists(), module
        for name in re.findall(r"`(\w+)`", calls):
            assert name in names, name
    for name in re.findall(r"`(\w+Error)`", TEXT):
        assert hasattr(impl.errors, name), name


def defined_in(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def _table_of_names() -> list[tuple[list[str], list[str], list[str]]]:
    """Rows of the table of names: theirs, ours, and the cases."""
    text = TEXT.split("## Names in mlx-bun", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [tuple(re.findall(r"`([^`]+)`", cell) for cell in row) for row in rows]  # type: ignore[misc]  # three cells


NAMES = _table_of_names()
# What the files of mlx-bun 0.4.0 export or say in their classes beyond what every cache says.
EXPORTED = {
    "captureRotatingDonorAttention", "combinedPosition", "AlignedRotatingCache", "rotatingSourcePosition",
    "alignRotatingRows", "RotatingKvPositions", "RotatingAffineLayout", "SpeculativeRotatingAffineLayout",
    "RotatingRing", "rollbackRotatingRing", "SpeculativeRotatingKVCache", "isDrafterModelType",
    "isDiffusionGemmaConfig", "BALANCED_SCATTER_SOURCE", "SsmPrefillPadding",
}  # fmt: skip


def test_every_name_of_mlx_bun_has_its_row() -> None:
    assert {name for theirs, _, _ in NAMES for name in theirs} >= EXPORTED


@pytest.mark.parametrize("ours", sorted({name for _, ours, _ in NAMES for name in ours}))
def test_the_names_here_exist(ours: str) -> None:
    assert pkgutil.resolve_name(f"impl.{ours}") is not None


@pytest.mark.parametrize("case", sorted({case for _, _, cases in NAMES for case in cases}))
def test_the_cases_that_pin_a_name_exist(case: str) -> None:
    assert (ROOT.parent / "cases" / f"{case}.yaml").is_file()


def test_names_without_a_case_are_predicates() -> None:
    assert {ours[0].split(".")[0] for _, ours, cases in NAMES if not cases} == {"models"}
