"""The benchmark of the rings times what it says, and says what it timed."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from click.testing import CliRunner

from impl.rings.ring import GROWTH_COLUMNS
from tests.bench import ring_arms, ring_speed
from tests.bench.ring_arms import ADDITION, ARMS, CONTROL, ONE_CACHE, OURS, ROLLBACK, THEIRS, Inputs, Size, Times

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
SIZES = [
    Size(rows, window, wrapped)
    for rows in ring_speed.ROWS
    for window in ring_speed.WINDOWS
    for wrapped in ring_speed.WRAPS
]
STEPS = ring_arms.WARM_UP_STEPS + ring_arms.TIMED_STEPS + 1


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_visit_neither_grows_a_buffer_nor_runs_out_of_padding(size: Size) -> None:
    padding = size.left_padding
    assert len(set(padding)) == size.rows
    assert max(padding) < size.columns
    if size.wrapped:
        assert size.rows == 1 or max(padding) > STEPS
    else:
        assert size.columns + STEPS <= min(size.columns + GROWTH_COLUMNS, size.window)


@pytest.mark.slow
def test_all_arms_are_timed_in_every_round_also_in_fresh_processes() -> None:
    times = ring_speed.measure_in_processes(Size(2, 16, wrapped=True), rounds=3, processes=2, seed=1)
    assert {name: len(took) for name, took in times.items()} == dict.fromkeys((*ARMS, ADDITION), 3)
    assert all(took > 0 for values in times.values() for took in values)


@pytest.mark.slow
def test_a_rollback_is_timed_at_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size(2, 16, wrapped=True)
    monkeypatch.setattr(ring_arms, "ROLLBACK_SIZES", (size,))
    times = ring_arms.measure(size, rounds=1, seed=1)
    assert set(times) == {*ARMS, ADDITION, ROLLBACK}


def test_rings_that_answer_differently_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ring_arms.time_decode

    def lying(arm: ring_arms.Arm, size: Size, inputs: Inputs) -> Any:
        return real(arm, size, replace(inputs, tokens=inputs.tokens[::-1]) if arm.theirs else inputs)

    monkeypatch.setattr(ring_arms, "time_decode", lying)
    with pytest.raises(AssertionError, match="window=16"):
        ring_arms.measure(Size(2, 16, wrapped=True), rounds=1, seed=1)


def made_up(size: Size, rounds: int, processes: int, seed: int) -> Times:
    assert (rounds, processes, seed) == (2, 1, 7)
    times = {name: [90.0, 90.0] for name in ARMS} | {ADDITION: [20.0, 40.0], CONTROL: [50.0, 180.0]}
    times |= {f"{THEIRS}, {ONE_CACHE}": [100.0, 200.0], f"{OURS}, {ONE_CACHE}": [50.0, 180.0]}
    return times | ({} if size.wrapped else {ROLLBACK: [100.0, 360.0]})


def test_the_page_gives_medians_of_ratios_and_says_what_was_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ring_speed, "measure_in_processes", made_up)
    file = tmp_path / "speed.md"
    result = CliRunner().invoke(ring_speed.main, ["--quick", "--seed", "7", "--markdown", str(file)])
    assert result.exit_code == 0, result.output
    assert "seed 7" in result.output
    text = file.read_text(encoding="utf-8")
    assert "| 4      | 1024     | before | 0.70 [0.60, 0.80] met |" in text
    assert "2.00 [2.00, 2.00] MISSED" in text
    counts = "1 cache: 2 of 2 meet the bar; 8 caches, a mask each: 0 of 2 meet the bar;"
    assert counts in text
    assert counts in result.output
    assert ("not yet seen on Metal" in text) == (mx.default_device() == mx.Device(mx.cpu))
    assert "--quick --seed 7" in text
