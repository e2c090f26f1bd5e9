"""Run mlx-lm's custom Metal kernels, unmodified, on this machine: ``python -m tests.bench.metal_kernels``.

Every kernel that the installed mlx-lm makes is called through the package's own functions inside
`impl.metal.metal_text()`, in several orders of the threads, and compared with the package's operations in float64.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

import click
import mlx.core as mx
import numpy as np
from tabulate import tabulate

from harness.fingerprint import fingerprint
from impl.metal import MetalKernel, MetalTextError, metal_text
from impl.metal.cpu import LANE_SEED_VARIABLE
from tests.bench.metal_columns import cell, check, key, read_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.metal_arms import Arm

ORDERS = ("forward", "reverse", *map(str, range(1, 9)))
# What is known to be wrong in a kernel itself, by kernel; anything else that is wrong is not explained yet.
MISSING_BARRIER = (
    "mlx-lm: no barrier between reading the maxima from `shared` and overwriting it with the sums; a simdgroup that is "
    "ahead destroys what another has not read"
)
FAULTS = {f"{loss}_{way}": MISSING_BARRIER for loss in ("kl", "js") for way in ("forward", "backward")}
FAULTS["kl_forward"] += (
    "; and its last barrier is `mem_flags::mem_none`, which orders no memory, between writing `shared` and reading it"
)
SMALL_SIZES = (1, 4, 8, 32, 64, 100, 128, 129, 160, 200, 300)
FEATURES = {
    r"simd_(sum|max|min)": "reductions",
    r"simd_shuffle": "shuffles",
    r"threadgroup_barrier": "barriers",
    r"threadgroup (float|T|uint)": "threadgroup memory",
    r"\w+_(shape|strides|ndim)\b": "shapes",
    r"fast::|precise::": "fast and precise",
    r"template <": "templates in the header",
    r"constexpr|if constexpr": "constants of templates",
    r"static_cast": "casts",
}


@dataclass
class Seen:
    """What came of one kernel: the largest error over its bound in every order, or why there is none."""

    arm: Arm
    ratios: dict[str, float] = field(default_factory=dict)
    refused: str = ""

    @property
    def wrong(self) -> list[str]:
        """Orders in which an answer is further off than its bound."""
        return [order for order, ratio in self.ratios.items() if not ratio <= 1]


def run(arm: Arm, orders: Iterable[str] = ORDERS) -> Seen:
    """Call a kernel in every order; inside of `metal_text`."""
    seen = Seen(arm)
    before = os.environ.get(LANE_SEED_VARIABLE)
    try:
        for order in orders:
            os.environ[LANE_SEED_VARIABLE] = order
            outputs = [np.array(output, np.float64) for output in arm.call()]
            seen.ratios[order] = max(starmap(_ratio, zip(outputs, arm.expected, arm.limits, strict=True)))
    except MetalTextError as error:
        seen.refused = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        os.environ.pop(LANE_SEED_VARIABLE, None)
        if before is not None:
            os.environ[LANE_SEED_VARIABLE] = before
    return seen


def _ratio(output: np.ndarray, expected: np.ndarray, limit: np.ndarray) -> float:
    if output.shape != expected.shape:
        return float("inf")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(output - expected) / limit
    # Neither an answer that is no number nor one beside a bound of 0 is right.
    return float(np.where(output == expected, 0.0, np.where(np.isnan(ratio), np.inf, ratio)).max())


def kernels_made() -> dict[str, str]:
    """Return the text of every kernel that modules of mlx-lm hold, by name; inside of `metal_text`."""
    modules = [module for name, module in sys.modules.items() if name.startswith("mlx_lm.")]
    held = [getattr(value, "here", None) for module in modules for value in vars(module).values()]
    texts = [one._text for one in held if isinstance(one, MetalKernel)]
    return {text.name: text.header + text.source for text in texts}


def features(text: str) -> str:
    """Name what a kernel's text uses."""
    return ", ".join(name for pattern, name in FEATURES.items() if re.search(pattern, text))


def small_arms() -> list[Arm]:
    """Return the losses with one row of few logits, the fewest first; outside of `metal_text`."""
    from tests.bench.metal_model_arms import loss_arms

    with mx.stream(mx.cpu):
        return [arm for size in SMALL_SIZES for arm in loss_arms(size, rows=1)]


def smallest(name: str, small: list[Arm]) -> str:
    """Find the smallest input of a kernel that goes wrong in some order, as words."""
    for arm in small:
        if arm.kernel != name:
            continue
        seen = run(arm)
        if seen.wrong:
            order = seen.wrong[0]
            return f"{arm.size} logits, order {order}: {seen.ratios[order]:.3g} times the bound"
    return "none of the small ones"


def line(seen: Seen, text: str, more: dict[str, str]) -> dict[str, object]:
    """One kernel as a line of the table; `more` holds further columns."""
    ratios = [ratio for order, ratio in seen.ratios.items() if order not in seen.wrong]
    right = f"{max(ratios):.2g}" if ratios else "-"
    wrong = f"WRONG in orders {', '.join(seen.wrong)}; else " if seen.wrong else ""
    return {
        "kernel": seen.arm.kernel,
        "file": seen.arm.place,
        "size": seen.arm.size,
        "uses": features(text),
        "compiles": seen.refused or "yes",
        "largest error / bound": wrong + right,
        "orders": len(seen.ratios),
        **more,
        "compared with": seen.arm.reference,
    }


def all_arms() -> list[Arm]:
    """Return every kernel with its answers; outside of `metal_text`, so that no kernel makes them."""
    from tests.bench.metal_model_arms import model_arms
    from tests.bench.metal_norm_arms import norm_arms
    from tests.bench.metal_recurrent_arms import recurrent_arms

    with mx.stream(mx.cpu):
        return [*recurrent_arms(), *model_arms(), *norm_arms()]


def explained(every: list[Seen], small: list[Arm]) -> list[str]:
    """Say of each kernel that is wrong with which smallest input, and whose fault it is."""
    lines = []
    for name in dict.fromkeys(seen.arm.kernel for seen in every if seen.wrong):
        fault = FAULTS.get(name, "not explained")
        lines.append(f"- `{name}`: {fault}." + (f" Smallest: {smallest(name, small)}." if name in FAULTS else ""))
    return lines or ["Nothing is wrong."]


def page(
    table: list[dict[str, object]],
    wrong: list[str],
    notes: list[str],
    missing: set[str],
    machines: dict[str, str],
    command: str,
) -> str:
    """Give the report that is committed."""
    machine = {**fingerprint(), **{name: version(name) for name in ("mlx", "mlx-lm", "numpy")}}
    left = ", ".join(sorted(missing)) or "none"
    others = "".join(f'\n\n"{column}" was seen on {where}.' for column, where in machines.items())
    return f"""# Custom Metal kernels of mlx-lm, without a GPU

Made by `{command}` on {datetime.now(UTC).date()}; nothing here was compared with an Apple GPU.

Every kernel that mlx-lm {version("mlx-lm")} makes, text unchanged, called through the package's own functions inside
`impl.metal.metal_text()`, and compared with the package's own operations in float64, or, where it has none, with the
formula in NumPy. The bound counts the roundings that a kernel in float32 can't avoid; above 1 an answer is wrong. Each
ran with its threads in {len(ORDERS)} orders: ascending, descending, and {len(ORDERS) - 2} random ones. "checks" is what
`impl.metal.checks` found while it ran: memory, races, barriers, unwritten values; of a race the later access stands
first. Kernels made and not called: {left}.{others}

{tabulate(table, headers="keys", tablefmt="github", disable_numparse=True)}

## What is wrong, and whose fault it is

{chr(10).join(wrong)}

## Notes

{chr(10).join(notes)}

## Machine

{tabulate(list(machine.items()), headers=("", ""), tablefmt="github", disable_numparse=True)}
"""


@click.command()
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A column that another machine wrote, as JSON (repeatable).",
)
def main(markdown: Path | None, columns: tuple[Path, ...]) -> None:
    """Run mlx-lm's custom kernels here and compare them with the package's operations."""
    if find_spec("mlx_lm") is None:
        raise click.ClickException("mlx-lm is not installed; pip install 'metal-assay[subjects]'")
    arms, small = all_arms(), small_arms()
    with metal_text():
        every = [run(arm) for arm in arms]
        texts = kernels_made()
        wrong = explained(every, small)
    extra = [{"checks": cell(faults)} for faults in check(arms)]
    read = [read_column(path) for path in columns]
    for arm, more in zip(arms, extra, strict=True):
        more |= {name: cells.get(key(arm), "not run") for name, _, cells in read}
    table = [line(seen, texts.get(seen.arm.kernel, ""), more) for seen, more in zip(every, extra, strict=True)]
    missing = set(texts) - {seen.arm.kernel for seen in every}
    notes = [f"- `{arm.kernel}`: {arm.note}." for arm in arms if arm.note]
    click.echo(tabulate(table, headers="keys", disable_numparse=True))
    click.echo("\n".join(wrong))
    if markdown:
        given = "".join(f" --column {path}" for path in columns)
        command = f"python -m tests.bench.metal_kernels --markdown {markdown}{given}"
        machines = {name: machine for name, machine, _ in read}
        markdown.write_text(page(table, wrong, notes, missing, machines, command), encoding="utf-8")


if __name__ == "__main__":
    main()
