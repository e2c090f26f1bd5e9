"""Metal text on an NVIDIA GPU: ``python -m tests.bench.metal_cuda --markdown reports/metal-cuda.md``.

The answers come from NumPy and plain Python in float64 or in whole numbers, never from another backend. A machine
without a compiler needs the compiled kernels in METAL_ASSAY_CACHE; ``--fill`` makes them where there is a compiler, for
the GPU that METAL_ASSAY_TARGET names, and runs nothing.
"""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
import mlx.core as mx
from tabulate import tabulate

from harness.fingerprint import fingerprint
from impl.metal.backend import BACKEND_VARIABLE, default_backend
from impl.metal.cuda import CudaBackend
from impl.metal.native import Report
from tests.bench.metal_columns import write_column
from tests.bench.metal_speed import arms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from impl.metal.backend import Backend, Call
    from impl.metal.cuda.backend import CudaRunner
    from impl.metal.signature import Text

RIGHT = "right"
MANY = 20  # launches that are evaluated at once


@dataclass(frozen=True)
class Row:
    """What came of one kernel: `verdict` is RIGHT, or says what is not."""

    part: str
    name: str
    verdict: str
    note: str = ""


class Filling:
    """A backend that compiles into the cache and runs nothing; outputs are zeros."""

    def __init__(self, backend: CudaBackend) -> None:
        """Compile with `backend`."""
        self._backend = backend

    @property
    def name(self) -> str:
        """Not `cuda`: packages must see a GPU where there is none."""
        return "compile only"

    def runner(self, text: Text) -> FillingRunner:
        """Return what compiles `text`."""
        return FillingRunner(self._backend.runner(text))


class FillingRunner:
    """A kernel that is compiled when it is called."""

    def __init__(self, runner: CudaRunner) -> None:
        """Compile with `runner`."""
        self._runner = runner

    def compile(self, call: Call) -> None:
        """Compile."""
        self._runner.compile(call)

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        """Compile, and return zeros."""
        self._runner.compile(call)
        made = zip(call.output_shapes, call.output_dtypes, strict=True)
        return [mx.zeros(tuple(shape), dtype) for shape, dtype in made], Report()


def parts() -> dict[str, Callable[[Backend], Iterator[Row]]]:
    """Return the parts of the run by name."""
    from tests.bench import metal_cuda_parts as own

    return {
        "lanes": own.lanes,
        "grids": own.grids,
        "calls": own.calls,
        "functions": own.functions,
        "trellis": own.trellis_products,
        "mlx-lm": own.mlx_lm,
    }


def rows(backend: Backend, wanted: tuple[str, ...]) -> Iterator[Row]:
    """Run the wanted parts; an error in one is its last row."""
    for name, part in parts().items():
        if wanted and name not in wanted:
            continue
        try:
            with default_backend(backend):
                for row in part(backend):
                    click.echo(f"{row.part:10} {row.verdict:8} {row.name} {row.note}")
                    yield row
        except Exception:  # noqa: BLE001 - the machine is not here for long: the other parts run all the same
            told = traceback.format_exc()
            click.echo(told)
            yield Row(name, "(the part itself)", told.strip().splitlines()[-1][:300])


def cases(record: Path | None) -> Iterator[Row]:
    """Run every kernel case through the harness, as `assay run --kind kernel` does."""
    from harness.case.load import load_cases
    from harness.outcome import Outcome
    from harness.pool import Limits
    from harness.run import Options, run

    done = run(
        load_cases(["cases/kernel"]),
        ["reference"],
        Options(limits=Limits(seconds=120, memory_mib=32768), record=record),
    )
    by_case: dict[str, list[tuple[str, str]]] = {}
    for part in done.subjects:
        for one, result in part.results.items():
            told = "; ".join(str(found) for found in result.findings[:1]) or result.reason
            by_case.setdefault(one.partition("[")[0], []).append((str(result.outcome), told))
    for name, results in sorted(by_case.items()):
        fine = sum(outcome == Outcome.PASSED for outcome, _ in results)
        worst = next((f"{outcome}: {told[:300]}" for outcome, told in results if outcome != Outcome.PASSED), RIGHT)
        yield Row("cases", name, worst, f"{fine} of {len(results)} instances")


def fill_cases(backend: CudaBackend) -> int:
    """Compile every kernel of the cases; return how many there are."""
    from harness.case.load import load_cases
    from harness.kinds.kernel.launches import distinct_launches
    from harness.subjects.reference.kernel import ReferenceKernels

    before = os.environ.get(BACKEND_VARIABLE)
    os.environ[BACKEND_VARIABLE] = backend.name
    try:
        kernels = ReferenceKernels()
        found = distinct_launches(load_cases(["cases/kernel"]))
        for text, launch in found:
            kernels.prepare(text, launch)
    finally:
        os.environ.pop(BACKEND_VARIABLE)
        if before is not None:
            os.environ[BACKEND_VARIABLE] = before
    return len(found)


def page(found: list[Row], times: list[list[str]]) -> str:
    """Return the report."""
    table = [asdict(row) for row in found]
    wrong = [row for row in found if row.verdict != RIGHT]
    machine = {**fingerprint(), "mlx": version("mlx"), "device": str(mx.default_device())}
    machine |= {"target": mx.device_info(mx.gpu)["architecture"]}
    return f"""# Metal text on an NVIDIA GPU

Made by `python -m tests.bench.metal_cuda` on {datetime.now(UTC).date()}; nothing here was compared with an Apple GPU.
The answers are NumPy's or plain Python's, in float64 or whole numbers; the bounds are those of the tests on the CPU.
{len(found)} rows, {len(found) - len(wrong)} right.

{tabulate(table, headers="keys", tablefmt="github", disable_numparse=True)}

## Times

{tabulate(times, headers=("kernel", "one launch", f"of {MANY} at once"), tablefmt="github", disable_numparse=True)}

Microseconds, median [quartiles], with evaluation, in shuffled rounds; 4096 x 4096, one vector. Outputs and threadgroup
variables are filled with NaN before each launch. Launches that are evaluated at once may overlap on the GPU, so the
second column is a throughput. No text was tuned for this GPU.

## Machine

{tabulate(list(machine.items()), headers=("", ""), tablefmt="github", disable_numparse=True)}
"""


@click.command()
@click.option("--fill", is_flag=True, help="Only compile, for METAL_ASSAY_TARGET into METAL_ASSAY_CACHE.")
@click.option("--part", "wanted", multiple=True, help="Only this part; may be given again.")
@click.option("--no-cases", is_flag=True, help="Leave out the kernel cases of the harness.")
@click.option("--rounds", default=200, show_default=True, help="Visits of every timed kernel.")
@click.option("--record", type=click.Path(path_type=Path), help="Write the record of the kernel cases here.")
@click.option("--json", "raw", type=click.Path(path_type=Path), help="Write the rows here.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
@click.option(
    "--column", type=click.Path(path_type=Path), help="Write what tests.bench.metal_kernels shows of this GPU."
)
def main(
    fill: bool,
    wanted: tuple[str, ...],
    no_cases: bool,
    rounds: int,
    record: Path | None,
    raw: Path | None,
    markdown: Path | None,
    column: Path | None,
) -> None:
    """Run Metal text on the GPU at hand and compare it with answers that no kernel made."""
    backend = CudaBackend()
    if fill:
        found = list(rows(Filling(backend), wanted))
        count = 0 if no_cases else fill_cases(backend)
        with default_backend(Filling(backend)):
            timed(1)
        click.echo(f"{len(found)} rows and {count} kernels of cases compiled")
        return
    found = list(rows(backend, wanted))
    if not no_cases:
        os.environ[BACKEND_VARIABLE] = backend.name
        for row in cases(record):
            click.echo(f"{row.part:10} {row.verdict:8} {row.name} {row.note}")
            found.append(row)
    with default_backend(backend):
        times = timed(rounds)
    click.echo(tabulate(times))
    if raw:
        raw.write_text(json.dumps({"rows": [asdict(row) for row in found], "times": times}, indent=1), encoding="utf-8")
    if markdown:
        markdown.write_text(page(found, times), encoding="utf-8")
    if column:
        machine = str(mx.device_info(mx.gpu).get("device_name", "an NVIDIA GPU"))
        write_column(column, "cuda", machine, cells(found))


def cells(found: list[Row]) -> dict[str, str]:
    """Return what came of mlx-lm's kernels, by kernel and size: the largest error in bounds, or what was wrong."""
    told = {}
    for row in found:
        if row.part == "mlx-lm":
            ratio, _, size = row.note.removeprefix("largest error / bound ").partition(", ")
            told[f"{row.name}, {size}"] = ratio if row.verdict == RIGHT else row.verdict
    return told


def timed(rounds: int) -> list[list[str]]:
    """Return the times of the products of tests.bench.metal_speed, in shuffled rounds: one launch, and one of many."""
    if rounds == 0:
        return []
    todo, order = arms(), random.Random(1)  # noqa: S311 - an order, no secret
    times: dict[tuple[str, int], list[float]] = {(name, count): [] for name in todo for count in (1, MANY)}
    for call in todo.values():
        mx.eval(call())
    for _ in range(rounds):
        visits = list(times)
        order.shuffle(visits)
        for name, count in visits:
            begun = time.perf_counter()
            mx.eval([todo[name]() for _ in range(count)])
            times[name, count].append((time.perf_counter() - begun) * 1e6 / count)
    return [[name, quartiles(times[name, 1]), quartiles(times[name, MANY])] for name in todo]


def quartiles(microseconds: list[float]) -> str:
    """Return the median and the quartiles as words."""
    low, median, high = (sorted(microseconds)[len(microseconds) * quarter // 4] for quarter in (1, 2, 3))
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
