"""The page on trellis codes: its program runs, its drawing is of the format, and the names it uses exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

import impl.trellis
from impl.trellis.codebooks import CODEBOOKS
from impl.trellis.decode import decode_states
from impl.trellis.layout import TrellisFormat, pack_symbols

if TYPE_CHECKING:
    import pytest

FOLDER = Path(impl.trellis.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mx.random.seed(0)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(program, {})  # noqa: S102 - our own page
    assert (tmp_path / "layer.safetensors").exists()


def test_the_drawing_is_of_the_format() -> None:
    symbols = mx.arange(32, dtype=mx.uint32) % 4
    states = decode_states(pack_symbols(symbols, 2), TrellisFormat(1, 32, 2, 6, 32))[0]
    drawn = re.findall(r"^state of column (\d+) .*= symbols +([\d, ]+?)(?: {2,}wraps around)?$", TEXT, re.MULTILINE)
    assert [int(column) for column, _ in drawn] == [31, 2, 1, 0]
    for column, named in drawn:
        newest_first = [int(name) % 4 for name in named.split(",")]
        assert states[int(column)].item() == sum(symbol << (2 * i) for i, symbol in enumerate(newest_first))


def test_files_and_codebooks_are_those_that_exist() -> None:
    named = re.findall(r"`(\w+\.py)`", TEXT.partition("## Files")[2])
    assert len(named) > 10
    assert all((FOLDER / name).exists() for name in named)
    assert set(re.findall(r"^\| `(\w+)` \| (?:v|sum)", TEXT, re.MULTILINE)) == set(CODEBOOKS)
