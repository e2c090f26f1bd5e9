"""Time the trellis encoder on whatever runs Metal text here: ``python -m tests.bench.trellis_encode``.

Blocks of normal numbers are encoded in two passes, as layers are. Every format is visited once a round, in shuffled
order; the fastest round counts, since a machine that is busy now and then only ever slows.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
import mlx.core as mx
from rich.console import Console
from rich.progress import Progress
from tabulate import tabulate

from harness.fingerprint import fingerprint
from impl.metal.backend import choose
from impl.trellis.codebooks import codebook_rms, codeword_table
from impl.trellis.layout import BLOCK
from impl.trellis.viterbi import Geometry, encode_blocks, usual_geometry

FORMATS = ((2, 12), (3, 12), (4, 12), (1, 12), (2, 8), (2, 10), (2, 14), (4, 16))
MATRIX_WEIGHTS = 4096 * 4096


@dataclass(frozen=True)
class Arm:
    """One format, its geometry, and blocks enough for the time that was asked for."""

    bits: int
    state_bits: int
    geometry: Geometry
    blocks: int


def prepare(bits: int, state_bits: int, geometry: Geometry | None, seconds: float) -> Arm:
    """Compile, and find how many blocks take about `seconds`."""
    chosen = geometry or usual_geometry(bits, state_bits)
    blocks = max(2, chosen.workers)
    encode_once(Arm(bits, state_bits, chosen, blocks), 0)
    while (took := encode_once(Arm(bits, state_bits, chosen, blocks), 1)) < seconds / 4:
        blocks *= max(2, min(8, int(seconds / 4 / took)))
    return Arm(bits, state_bits, chosen, max(chosen.workers, int(blocks * seconds / took)))


def encode_once(arm: Arm, seed: int) -> float:
    """Encode the blocks of an arm, and return the seconds that it took."""
    numbers = mx.random.normal((arm.blocks, BLOCK), key=mx.random.key(seed))
    table = codeword_table("1mad", arm.state_bits) / codebook_rms("1mad", arm.state_bits)
    mx.eval(numbers, table)
    begun = time.perf_counter()
    encoded = encode_blocks(numbers, table, arm.bits, geometry=arm.geometry)
    mx.eval(encoded.words, encoded.costs)
    mx.synchronize()
    return time.perf_counter() - begun


def measure(arms: list[Arm], rounds: int) -> list[list[float]]:
    """Return the weights a second of every arm, in every round."""
    rates: list[list[float]] = [[] for _ in arms]
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("encoding", total=rounds * len(arms))
        for turn in range(rounds):
            for index in random.sample(range(len(arms)), len(arms)):
                rates[index].append(arms[index].blocks * BLOCK / encode_once(arms[index], turn))
                bar.advance(task)
    return rates


def table_of(arms: list[Arm], rates: list[list[float]]) -> list[dict[str, object]]:
    """Give one line a format."""
    return [
        {
            "bits": arm.bits,
            "state bits": arm.state_bits,
            "threads a block": arm.geometry.threads,
            "blocks at once": arm.geometry.workers,
            "million weights/s, best": f"{max(values) / 1e6:.2f}",
            "median": f"{median(values) / 1e6:.2f}",
            "4096 x 4096 in": f"{MATRIX_WEIGHTS / max(values):.2f} s",
        }
        for arm, values in zip(arms, rates, strict=True)
    ]


def page(table: list[dict[str, object]], command: str, backend: str, rounds: int) -> str:
    """Give the report."""
    machine = {**fingerprint(), "Metal text runs on": backend}
    return f"""# Speed of the trellis encoder

Made by `{command}` on {datetime.now(UTC).date()}.

Blocks of {BLOCK} normal numbers, codebook 1MAD, two passes (`impl/trellis/kernels/viterbi.metal`), best and median of
{rounds} rounds. The last column is the best rate, for a matrix of that size.

{tabulate(table, headers="keys", tablefmt="github", disable_numparse=True)}

## Machine

{tabulate(list(machine.items()), headers=("", ""), tablefmt="github", disable_numparse=True)}
"""


@click.command()
@click.option("--format", "formats", multiple=True, metavar="K,L", help="Bits and state bits; may be repeated.")
@click.option("--geometry", metavar="THREADS,WORKERS", help="Another geometry than the usual one.")
@click.option("--seconds", default=1.0, show_default=True, help="Time of one round of one format.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
def main(formats: tuple[str, ...], geometry: str | None, seconds: float, rounds: int, markdown: Path | None) -> None:
    """Measure how many weights a second are encoded, for several bits a weight and bits a state.

    \b
    Examples:
      python -m tests.bench.trellis_encode --format 2,12 --format 4,12
      python -m tests.bench.trellis_encode --geometry 256,1024 --markdown reports/local/encode.md
    """  # noqa: D301 - click's mark for lines to be kept
    pairs = [_pair(text, "--format") for text in formats] or list(FORMATS)
    chosen = Geometry(*_pair(geometry, "--geometry")) if geometry else None
    runner = choose(None)
    backend = "Metal" if runner is None else runner.name
    arms = [prepare(*pair, chosen, seconds) for pair in pairs]
    table = table_of(arms, measure(arms, rounds))
    click.echo(tabulate(table, headers="keys", disable_numparse=True))
    if markdown:
        options = "".join(f" --format {text}" for text in formats) + (f" --geometry {geometry}" if geometry else "")
        command = f"python -m tests.bench.trellis_encode{options} --seconds {seconds} --rounds {rounds}"
        markdown.write_text(page(table, f"{command} --markdown {markdown}", backend, rounds), encoding="utf-8")


def _pair(text: str, option: str) -> tuple[int, int]:
    try:
        first, second = map(int, text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not two numbers; write 2,12 for example", param_hint=option) from None
    return first, second


if __name__ == "__main__":
    main()
