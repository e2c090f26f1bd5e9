"""Measure the error of trellis-coded weights against the gates: ``python -m tests.bench.trellis_quality``.

Normal numbers first, where limits and published figures exist, then a matrix of a real model, with and without
rotation. The errors are those of decoded codes: the bits are what counts, not what the encoder says of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
import mlx.core as mx
import numpy as np
from rich.console import Console
from rich.progress import Progress
from tabulate import tabulate

from harness.baseline.trellis_search import SCALAR_ERROR, error_limit
from impl.trellis.codebooks import codebook_rms
from impl.trellis.decode import decode
from impl.trellis.encoder import MatrixEncoder
from impl.trellis.layout import BLOCK, TrellisFormat
from impl.trellis.linear import quantize_linear
from tests.bench.trellis_plot import Point, draw

STATE_BITS, COLUMNS = 12, 4096
# Measured by an independent program on 4,096 blocks: at gain 1 (within 2 %), and at the best gain (at most).
AT_GAIN_1 = {2: 0.0748, 3: 0.0199, 4: 0.00549}
AT_BEST_GAIN = {2: 0.0750, 3: 0.0195, 4: 0.00507}
BEST_GAIN = {2: 1.04, 3: 1.12, 4: 1.16}
WITHIN = 0.02
# MLX's own formats: mode, bits, group, and the bits a weight that their scales and biases bring it to.
OF_MLX = (
    ("affine", 2, 64, 2.5),
    ("affine", 3, 64, 3.5),
    ("affine", 4, 64, 4.5),
    ("affine", 2, 32, 3.0),
    ("affine", 3, 32, 4.0),
    ("affine", 4, 32, 5.0),
    ("mxfp4", 4, 32, 4.25),
    ("nvfp4", 4, 16, 4.5),
)
PACKAGE, WEIGHTS_FILE = "silero_vad", "data/silero_vad_16k.safetensors"
TENSORS = ("lstm_cell.weight_ih", "lstm_cell.weight_hh")
Line = dict[str, object]


def coded_error(numbers: mx.array, bits: int, gain: float, bar: Progress) -> float:
    """Return the mean squared error of numbers [rows, columns] of variance 1, encoded with one scale for all."""
    rows, columns = numbers.shape
    layout = TrellisFormat(rows, columns, bits, STATE_BITS)
    scales = mx.full((rows,), gain / codebook_rms("1mad", STATE_BITS), mx.float32)
    task = bar.add_task(f"{bits} bits, gain {gain}", total=rows)
    encoder = MatrixEncoder(numbers, layout, scales=scales)
    encoder.run(lambda done, _rows: bar.update(task, completed=done))
    codes, _ = encoder.result()
    return error_of(decode(codes, scales, layout), numbers)


def error_of(found: mx.array, wanted: mx.array) -> float:
    """Return the mean squared error relative to the mean square."""
    error = np.array(found, np.float64) - np.array(wanted, np.float64)
    return float(np.mean(error * error) / np.mean(np.array(wanted, np.float64) ** 2))


def judged(bits: int, gain: float, error: float) -> Line:
    """Hold one error to its gates."""
    limit, scalar = error_limit(bits), SCALAR_ERROR[bits]
    if gain == 1:
        gate, passed = f"{AT_GAIN_1[bits]} within {WITHIN:.0%}", abs(error / AT_GAIN_1[bits] - 1) <= WITHIN
    else:
        gate, passed = f"at most {AT_BEST_GAIN[bits]}", error <= AT_BEST_GAIN[bits]
    return {
        "bits": bits,
        "gain": gain,
        "error": f"{error:.5f}",
        "gate": gate,
        "limit 4^-bits": f"{limit:.5f}",
        "scalar": scalar,
        "verdict": "met" if passed and limit <= error <= scalar else "MISSED",
    }


def mlx_error(numbers: mx.array, mode: str, bits: int, group: int) -> float:
    """Return the error of one of MLX's formats on the same numbers."""
    parts = mx.quantize(numbers, group_size=group, bits=bits, mode=mode)
    return error_of(mx.dequantize(*parts, group_size=group, bits=bits, mode=mode).astype(mx.float32), numbers)


def normal_part(blocks: int, seed: int, bar: Progress) -> tuple[list[Line], list[Line], list[Point]]:
    """Return the lines of the gates, those of MLX's formats, and all of them as points."""
    rows = -(-blocks * BLOCK // COLUMNS)
    numbers = mx.array(np.random.default_rng(seed).standard_normal((rows, COLUMNS)).astype(np.float32))
    gates, points = [], []
    for gains, series in (({2: 1.0, 3: 1.0, 4: 1.0}, "trellis, gain 1"), (BEST_GAIN, "trellis, best gain")):
        for bits, gain in gains.items():
            error = coded_error(numbers, bits, gain, bar)
            gates.append(judged(bits, gain, error))
            points.append(Point(series, bits + 32 / COLUMNS, error))
    beside = []
    for mode, bits, group, each in OF_MLX:
        error = mlx_error(numbers, mode, bits, group)
        beside.append({"format": mode, "bits": bits, "group": group, "bits a weight": each, "error": f"{error:.5f}"})
        points.append(Point(f"{mode}, groups of {group}", each, error))
    return gates, beside, points


def real_part(bar: Progress) -> list[Line]:
    """Return the errors of matrices of a real model; empty when its package is missing."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return []
    tensors = mx.load(str(Path(found.submodule_search_locations[0]) / WEIGHTS_FILE))
    assert isinstance(tensors, dict)
    task = bar.add_task("a real model", total=3 * len(TENSORS))
    lines = []
    for name in TENSORS:
        weight = tensors[name].astype(mx.float32).T
        for bits in (2, 3, 4):
            bar.advance(task)
            line: Line = {"matrix": f"{name} {list(weight.shape)}", "kurtosis": f"{kurtosis(weight):.1f}", "bits": bits}
            for rotated in (False, True):
                layer = quantize_linear(weight, bits, rotate_both_sides=rotated, gains=(1.0, BEST_GAIN[bits]))
                error = error_of(layer.matrix(), weight)
                line["rotated" if rotated else "as it is"] = f"{error:.5f} at {layer.bits_per_weight():.2f}"
            # MLX quantizes along the inputs, the last axis of its own weights.
            line["affine, group 64"] = f"{mlx_error(weight.T, 'affine', bits, 64):.5f} at {bits + 0.5:.2f}"
            line["normal numbers"] = AT_BEST_GAIN[bits]
            lines.append(line)
    return lines


def kurtosis(matrix: mx.array) -> float:
    """Return the fourth moment in units of the squared variance: 3 for normal numbers, more with outliers."""
    away = np.array(matrix, np.float64)
    away -= away.mean()
    return float(np.mean(away**4) / np.mean(away**2) ** 2)


def page(gates: list[Line], beside: list[Line], real: list[Line], blocks: int, command: str, plot: str | None) -> str:
    """Give the report that is committed."""
    real_text = f"The package {PACKAGE} is not installed, so no real matrix was measured."
    if real:
        real_text = f"""Two matrices [inputs, outputs] of silero-vad {version("silero-vad")} (MIT), which detects
voices. Their errors are relative to their mean square, at the bits a weight behind *at*, scales and signs included; a
row keeps the better of gain 1 and the best one, and its scale is fitted to the path. *Rotated*: random signs and
Hadamard matrices on both sides. Rows have scales of their own already, so what is left to a rotation is the outliers
within a row. MLX's affine format, for comparison, has groups of 64 inputs.

{tabulate(real, headers="keys", tablefmt="github", disable_numparse=True)}"""
    picture = f"![error against bits a weight]({plot})" if plot else "matplotlib is not installed, so there is no plot."
    return f"""# Error of trellis-coded weights

Made by `{command}` on {datetime.now(UTC).date()}, with MLX {version("mlx")} and NumPy {np.__version__}.

## Normal numbers

{blocks} blocks of {BLOCK} independent normal numbers, codebook 1MAD, {STATE_BITS} bits a state, closed in two passes.
Mean squared error in units of the variance. The gates are figures of an independent program on other numbers; *scalar*
is the best codebook of single numbers (Lloyd-Max), *limit* what no code can do (rate-distortion).

{tabulate(gates, headers="keys", tablefmt="github", disable_numparse=True)}

MLX's own formats on the same numbers, with the bits of their scales and biases:

{tabulate(beside, headers="keys", tablefmt="github", disable_numparse=True)}

A trellis with one float32 scale a row of {COLUMNS} has {32 / COLUMNS:.3f} bits a weight more than its bits.

{picture}

## A real model

{real_text}
"""


@click.command()
@click.option("--blocks", default=2048, show_default=True, help="Blocks of 256 normal numbers.")
@click.option("--seed", default=1, show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here, and its plot beside it.")
def main(blocks: int, seed: int, markdown: Path | None) -> None:
    """Print measured errors against their gates; exits with 1 when one is missed.

    \b
    Example:
      python -m tests.bench.trellis_quality --markdown reports/trellis-quality.md
    """  # noqa: D301 - click's mark for lines to be kept
    with Progress(console=Console(stderr=True), transient=True) as bar:
        gates, beside, points = normal_part(blocks, seed, bar)
        real = real_part(bar)
    for table in filter(None, (gates, beside, real)):
        click.echo(tabulate(table, headers="keys", disable_numparse=True) + "\n")
    if not real:
        click.echo(f"{PACKAGE} is not installed (pip install --no-deps {PACKAGE.replace('_', '-')}): no real matrix")
    if markdown:
        plot = None
        if find_spec("matplotlib") is None:
            click.echo("matplotlib is not installed (pip install 'metal-assay[report]'): no plot")
        else:
            plot = f"{markdown.stem}.svg"
            draw(points, markdown.with_name(plot))
        command = f"python -m tests.bench.trellis_quality --blocks {blocks} --seed {seed} --markdown {markdown}"
        markdown.write_text(page(gates, beside, real, blocks, command, plot), encoding="utf-8")
    if any(line["verdict"] != "met" for line in gates):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
