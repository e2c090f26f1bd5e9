"""The benches of the trellis encoder measure what they say, and say what they measured."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner

from impl.trellis.viterbi import Geometry
from tests.bench import trellis_encode, trellis_quality
from tests.bench.trellis_plot import Point

if TYPE_CHECKING:
    from pathlib import Path


def test_the_encoder_is_timed_in_every_round(tmp_path: Path) -> None:
    file = tmp_path / "encode.md"
    options = ["--format", "2,8", "--format", "3,8", "--seconds", "0.001", "--rounds", "2", "--markdown", str(file)]
    result = CliRunner().invoke(trellis_encode.main, options)
    assert result.exit_code == 0, result.output
    text = file.read_text(encoding="utf-8")
    assert "| 2      | 8            | 1 " in text
    assert "--format 2,8 --format 3,8 --seconds 0.001 --rounds 2" in text
    assert "Metal text runs on | cpu" in text


def test_rates_are_weights_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.5, 0.25, 1.0])
    monkeypatch.setattr(trellis_encode, "encode_once", lambda _arm, _seed: next(took))
    arms = [trellis_encode.Arm(2, 12, Geometry(1, 2), 4096)]
    (line,) = trellis_encode.table_of(arms, trellis_encode.measure(arms, 3))
    # 4,096 blocks of 256 are a sixteenth of the matrix.
    assert line["million weights/s, best"] == "4.19"
    assert line["median"] == "2.10"
    assert line["4096 x 4096 in"] == "4.00 s"


def test_a_wrong_option_is_named() -> None:
    result = CliRunner().invoke(trellis_encode.main, ["--format", "2x12"])
    assert result.exit_code == 2
    assert "write 2,12 for example" in result.output


def test_errors_are_those_of_decoded_codes_in_units_of_the_variance() -> None:
    found, wanted = mx.array([1.0, 2.0]), mx.array([1.0, 1.0])
    assert trellis_quality.error_of(found, wanted) == 0.5
    numbers = mx.array(np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32))
    assert 0.2 < trellis_quality.mlx_error(numbers, "affine", 2, 64) / 0.1559 < 2


@pytest.mark.parametrize(
    ("bits", "gain", "error", "verdict"),
    [
        (2, 1.0, 0.0748, "met"),
        (2, 1.0, 0.0732, "MISSED"),
        (2, 1.0, 0.0764, "MISSED"),
        (4, 1.16, 0.00507, "met"),
        (4, 1.16, 0.00508, "MISSED"),
        (4, 1.16, 0.0038, "MISSED"),
    ],
)
def test_gates_are_held_on_both_sides(bits: int, gain: float, error: float, verdict: str) -> None:
    assert trellis_quality.judged(bits, gain, error)["verdict"] == verdict


def fake_parts(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    def normal(*_: Any) -> Any:
        return [trellis_quality.judged(2, 1.0, error)], [{"format": "affine"}], [Point("trellis", 2.0, error)]

    monkeypatch.setattr(trellis_quality, "normal_part", normal)
    monkeypatch.setattr(trellis_quality, "find_spec", lambda _name: None)


def test_a_page_without_optional_packages_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_parts(monkeypatch, 0.0748)
    result = CliRunner().invoke(trellis_quality.main, ["--markdown", str(tmp_path / "quality.md")])
    assert result.exit_code == 0, result.output
    assert "matplotlib is not installed" in result.output
    assert "silero_vad is not installed" in result.output
    text = (tmp_path / "quality.md").read_text(encoding="utf-8")
    assert "so there is no plot" in text
    assert "0.0748 within 2%" in text


def test_a_missed_gate_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_parts(monkeypatch, 0.08)
    result = CliRunner().invoke(trellis_quality.main, [])
    assert result.exit_code == 1
    assert "MISSED" in result.output


def test_the_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from tests.bench.trellis_plot import draw

    draw([Point("trellis, gain 1", 2.0, 0.07), Point("affine", 2.5, 0.15)], tmp_path / "plot.svg")
    assert "trellis, gain 1" in (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert "matplotlib" in sys.modules


@pytest.mark.slow
@pytest.mark.exhaustive
def test_normal_numbers_have_the_error_of_the_literature() -> None:
    from rich.progress import Progress

    with Progress(disable=True) as bar:
        gates, _, points = trellis_quality.normal_part(2048, 1, bar)
    assert [line["verdict"] for line in gates] == ["met"] * 6
    assert {point.series for point in points} >= {"trellis, gain 1", "trellis, best gain", "nvfp4, groups of 16"}
