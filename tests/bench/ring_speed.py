"""Time the reference's batched plain ring against mlx-lm's: ``python -m tests.bench.ring_speed``.

Both do the same work in one process, in rounds that visit every arm in shuffled order. Only ratios within a round
count: a machine that is busy now and then slows both sides. The reference is an arm twice, and the ratio of the two
says what this machine makes of no difference at all.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product, starmap
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles

import click
import mlx.core as mx
from tabulate import tabulate

from harness.fingerprint import fingerprint
from tests.bench.ring_arms import (
    ADDITION,
    CONTROL,
    DRAFT_TOKENS,
    HEAD_DIM,
    HEADS,
    KEPT_TOKENS,
    MASK_EACH,
    ONE_CACHE,
    ONE_MASK,
    OURS,
    ROLLBACK,
    THEIRS,
    TIMED_STEPS,
    UNITS,
    Size,
    Times,
    measure,
)

ROWS, WINDOWS, WRAPS = (1, 4, 8), (512, 1024, 4096), (False, True)
ROUNDS, PROCESSES = 24, 4
DECODE_BAR, ROLLBACK_BAR = 0.8, 1.5


def measure_in_processes(size: Size, rounds: int, processes: int, seed: int) -> Times:
    """Spread the rounds over fresh processes, one after the other: where memory lies is drawn anew in each."""
    shares = [rounds // processes + (index < rounds % processes) for index in range(processes)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        parts = [pool.submit(measure, size, share, seed + index).result() for index, share in enumerate(shares)]
    return {name: [took for part in parts for took in part[name]] for name in parts[0]}


def ratios(times: Times, name: str, base: str) -> list[float]:
    """Ratio of two arms in every round."""
    return [took / base_took for took, base_took in zip(times[name], times[base], strict=True)]


def judged(values: list[float], bar: float | None = None) -> str:
    """Median and quartiles, and whether the median keeps below the bar."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    word = "" if bar is None else " met" if median(values) <= bar else " MISSED"
    return f"{median(values):.2f} [{low:.2f}, {high:.2f}]{word}"


def line(size: Size, times: Times) -> dict[str, object]:
    """One size as a line of the table."""
    cells: dict[str, object] = {
        "rows": size.rows,
        "window": size.window,
        "wrap": "after" if size.wrapped else "before",
    }
    for unit in UNITS:
        cells[unit] = judged(ratios(times, f"{OURS}, {unit}", f"{THEIRS}, {unit}"), DECODE_BAR)
    cells[CONTROL] = judged(ratios(times, CONTROL, f"{OURS}, {ONE_CACHE}"))
    cells[ADDITION] = judged(ratios(times, ADDITION, f"{THEIRS}, {ONE_CACHE}"))
    cells[ROLLBACK] = ""
    if ROLLBACK in times:
        cells[ROLLBACK] = judged(ratios(times, ROLLBACK, f"{OURS}, {ONE_CACHE}"), ROLLBACK_BAR)
    return cells


def summary(table: list[dict[str, object]]) -> str:
    """Say of each unit, and of the rollback, at how many sizes it meets its bar."""
    counts = []
    for name in (*UNITS, ROLLBACK):
        cells = [str(row[name]) for row in table if row[name]]
        counts.append(f"{name}: {sum(cell.endswith(' met') for cell in cells)} of {len(cells)} meet the bar")
    return "; ".join(counts) + "."


def page(table: list[dict[str, object]], command: str, rounds: int, processes: int) -> str:
    """Give the report that is committed."""
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    backend = "MLX's CPU backend; not yet seen on Metal" if on_cpu else "MLX's GPU backend"
    machine = {**fingerprint(), **{name: version(name) for name in ("mlx", "mlx-lm", "numpy")}}
    return f"""# Speed of the batched ring

Made by `{command}` on {datetime.now(UTC).date()}; {backend}.

A decode step of the reference's `BatchedRotatingCache` against one of mlx-lm's `BatchRotatingKVCache`: array mask,
update, and one evaluation of keys, values and mask, which were the same bit for bit. {HEADS} heads x {HEAD_DIM},
bfloat16, rows of unequal length, in steady use: the ring has spare columns, or has wrapped and still holds padding.
Medians of {rounds} rounds, spread over {processes} fresh processes, with quartiles in brackets; a round visits all
arms in shuffled order, {TIMED_STEPS} steps each.

{summary(table)}

{tabulate(table, headers="keys", tablefmt="github", disable_numparse=True)}

- *{ONE_CACHE}*: reference / mlx-lm; below 1, the reference takes less time. The bar is {DECODE_BAR}.
- *{MASK_EACH}*: the same for eight layers, with one evaluation of all of them, as a model evaluates.
- *{ONE_MASK}*: the same, the layers sharing one mask, as in the models of mlx-lm. Little is left to compare: an
  update comes down to the same slices and writes in both.
- *{CONTROL}*: two copies of the reference with one cache, which tells how noisy the machine was.
- *{ADDITION}*: evaluating 1 + 1, against mlx-lm's step with one cache. No cache avoids it and nothing here subtracts
  it: the larger it is, the nearer to 1 comes the ratio of one cache.
- *{ROLLBACK}*: keeping {KEPT_TOKENS} of {DRAFT_TOKENS} verified tokens in every row (a trim), evaluated, against the
  reference's step with one cache. The bar is {ROLLBACK_BAR}. The cut is a view: the next update copies what stays.

## Machine

{tabulate(list(machine.items()), headers=("", ""), tablefmt="github", disable_numparse=True)}
"""


@click.command()
@click.option("--quick", is_flag=True, help="One size and few rounds: whether it works, not how fast it is.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
@click.option("--seed", default=1, show_default=True, help="Draws data and order.")
def main(quick: bool, markdown: Path | None, seed: int) -> None:
    """Compare the batched plain ring with mlx-lm's, and a rollback with a decode step."""
    if find_spec("mlx_lm") is None:
        raise click.ClickException("mlx-lm is not installed; pip install 'metal-assay[subjects]'")
    rounds, processes = (2, 1) if quick else (ROUNDS, PROCESSES)
    click.echo(f"seed {seed}, {rounds} rounds in {processes} processes")
    table = []
    for size in starmap(Size, product(*(values[1:2] if quick else values for values in (ROWS, WINDOWS)), WRAPS)):
        table.append(line(size, measure_in_processes(size, rounds, processes, seed)))
        click.echo("; ".join(f"{name} {value}" for name, value in table[-1].items()))
    click.echo(tabulate(table, headers="keys", disable_numparse=True))
    click.echo(summary(table))
    if markdown:
        command = f"python -m tests.bench.ring_speed{' --quick' if quick else ''} --seed {seed} --markdown {markdown}"
        markdown.write_text(page(table, command, rounds, processes), encoding="utf-8")


if __name__ == "__main__":
    main()
