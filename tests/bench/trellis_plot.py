"""The plot of the quality report: error against bits a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.baseline.trellis_search import SCALAR_ERROR

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Point:
    """One measured format, in the series that it is drawn with."""

    series: str
    bits: float
    error: float


def draw(points: list[Point], path: Path) -> None:
    """Write the plot as SVG, the same bytes for the same points; needs matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "metal-assay", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.add_subplot()
        bits = np.linspace(1.9, 5.1, 50)
        axes.plot(bits, 4.0**-bits, color="0.6", linestyle="--", label="limit 4^-bits")
        scalar = {count: error for count, error in SCALAR_ERROR.items() if count >= 2}
        axes.plot(list(scalar), list(scalar.values()), color="0.4", marker="_", label="best scalar codebook")
        for series in dict.fromkeys(point.series for point in points):
            own = sorted((point.bits, point.error) for point in points if point.series == series)
            marker = "o" if series.startswith("trellis") else "s"
            axes.plot(*zip(*own, strict=True), marker=marker, markersize=5, linewidth=1.2, label=series)
        axes.set(
            yscale="log", xlabel="bits a weight, scales and biases included", ylabel="mean squared error / variance"
        )
        axes.grid(which="both", alpha=0.25)
        axes.legend(fontsize=8)
        figure.savefig(path, metadata={"Date": None})
