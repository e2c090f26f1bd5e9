"""Time of Metal text on this processor beside MLX's own 4-bit product, in shuffled rounds of one run.

The trellis text is mlx-bun's, which the project has no copy of: METAL_ASSAY_SEED names the file that holds it.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import mlx.core as mx
import numpy as np
from tabulate import tabulate

from impl.metal import metal_kernel
from tests.impl.metal_bodies import QUANTIZED_PRODUCT
from tests.impl.test_metal_trellis import HEADER, OURS, seed_text

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE, BITS, BLOCK, STATE_BITS, SPLITS, SIMDGROUPS = 4096, 3, 256, 12, 4, 2
BARS = {"int4 product": 1.0, "trellis, mlx-bun's text": 0.6}


def arms() -> dict[str, Callable[[], mx.array]]:
    """Return each product of a 4096 x 4096 matrix and one vector; the first is what the others are compared with."""
    rng = np.random.default_rng(1)
    x = mx.array(rng.standard_normal(SIZE).astype(np.float32))
    packed, scales, biases = mx.quantize(mx.array(rng.standard_normal((SIZE, SIZE)).astype(np.float32)), 64, 4)
    codes = mx.array(rng.integers(0, 2**32, SIZE * SIZE * BITS // 32, dtype=np.uint32))
    rows = mx.array(rng.random(SIZE).astype(np.float32))
    mx.eval(x, packed, scales, biases, codes, rows)
    found: dict[str, Callable[[], mx.array]] = {
        "mx.quantized_matmul": lambda: mx.quantized_matmul(x[None], packed, scales, biases, group_size=64, bits=4)
    }
    gemv = metal_kernel("int4_product", ["w", "scales", "biases", "x"], ["y"], QUANTIZED_PRODUCT)
    found["int4 product"] = lambda: gemv(
        inputs=[packed, scales, biases, x],
        template=[("T", mx.float32), ("R", SIZE)],
        grid=(SIZE // 8 * 64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(SIZE,)],
        output_dtypes=[mx.float32],
    )[0]
    texts = {"trellis, a text without cleverness": OURS, "trellis, mlx-bun's text": seed_text()}
    for name, text in texts.items():
        if text:
            found[name] = _trellis(text, codes, rows, x)
    return found


def _trellis(text: str, codes: mx.array, rows: mx.array, x: mx.array) -> Callable[[], mx.array]:
    kernel = metal_kernel("trellis", ["codes", "scales", "x"], ["partial"], text, HEADER)
    template: list[tuple[str, Any]] = [("T", mx.float32), ("K", BITS), ("BT", BLOCK), ("L", STATE_BITS), ("C", SIZE)]
    template += [("R", SIZE), ("M", 1), ("SPLITS", SPLITS), ("SG_TG", SIMDGROUPS), ("INTERLEAVE", True)]
    return lambda: kernel(
        inputs=[codes, rows, x[None]],
        template=template,
        grid=(32 * SIMDGROUPS, SIZE // BLOCK // SIMDGROUPS, SPLITS),
        threadgroup=(32 * SIMDGROUPS, 1, 1),
        output_shapes=[(1, SPLITS, SIZE)],
        output_dtypes=[mx.float32],
    )[0]


def measure(rounds: int, seed: int) -> dict[str, list[float]]:
    """Return milliseconds of each arm, round by round; a round visits all arms in shuffled order."""
    todo, order = arms(), random.Random(seed)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {name: [] for name in todo}
    for call in todo.values():
        mx.eval(call())
    for _ in range(rounds):
        names = list(todo)
        order.shuffle(names)
        for name in names:
            begun = time.perf_counter()
            mx.eval(todo[name]())
            times[name].append((time.perf_counter() - begun) * 1e3)
    return times


def page(times: dict[str, list[float]]) -> str:
    """Write the times as a table: ratios to the first arm, round by round, and whether a bar is met."""
    base, *others = times
    rows = []
    for name in others:
        ratios = sorted(mine / theirs for mine, theirs in zip(times[name], times[base], strict=True))
        median, low, high = statistics.median(ratios), ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
        bar = BARS.get(name)
        verdict = "" if bar is None else f"{bar}: {'met' if median <= bar else 'MISSED'}"
        best = min(times[name]) / min(times[base])
        rows.append((name, f"{median:.2f} [{low:.2f}, {high:.2f}]", f"{best:.2f}", verdict))
    header = ("kernel", f"time / {base}, median [quartiles]", "best / best", "bar")
    return tabulate(rows, headers=header, tablefmt="github", disable_numparse=True)


@click.command()
@click.option("--rounds", default=60, show_default=True, help="Visits of every kernel.")
@click.option("--seed", default=1, show_default=True, help="Draws the order.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
def main(rounds: int, seed: int, markdown: Path | None) -> None:
    """Compare Metal text on this processor with MLX's 4-bit product, 4096 x 4096, one vector."""
    table = page(measure(rounds, seed))
    click.echo(table)
    if markdown is not None:
        markdown.write_text(
            "# Metal text on a processor\n\n"
            "4096 x 4096, one vector, on MLX's CPU backend and `impl.metal`'s, which use the same cores; below 1, the\n"
            f"Metal text takes less time. {rounds} rounds, each in shuffled order. Made by\n"
            "`python -m tests.bench.metal_speed --markdown reports/metal-speed.md`. Not yet seen on Metal.\n\n"
            f"{table}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
