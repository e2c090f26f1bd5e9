"""The page on the speed of Metal text says what was met and what was missed."""

from __future__ import annotations

from tests.bench.metal_speed import page


def test_a_bar_is_judged_by_the_median_of_ratios() -> None:
    times = {
        "mx.quantized_matmul": [10.0, 20.0, 10.0, 10.0],
        "int4 product": [11.0, 10.0, 12.0, 13.0],
        "trellis, mlx-bun's text": [5.0, 12.0, 5.0, 5.0],
        "another": [10.0, 20.0, 10.0, 10.0],
    }
    lines = page(times).splitlines()
    assert "| int4 product" in lines[2]
    assert "1.15 [" in lines[2]
    assert "| 1.00" in lines[2]
    assert "1.0: MISSED" in lines[2]
    assert "0.50 [" in lines[3]
    assert "0.6: met" in lines[3]
    assert lines[4].rstrip(" |").endswith("1.00")
