"""Which releases of mlx-lm give which wrong answers: an environment a release, the same cases in each, one table.

    python -m tests.subjects.versions [--keep DIR] [VERSION...]

A suite that tells right from wrong reports a broken release and is silent about the one that mends it. Each
environment gets this project, `mlx-lm==VERSION` and what the two need from the package index: about 360 MB on disk, a
minute, most of it for mlx, transformers and numpy. Nothing else in this project starts this script.

All releases run on the MLX that this project gets, so that only mlx-lm differs between the columns: none of them names
an upper bound for MLX, and on the oldest MLX that each allows the answers were the same, except that MLX 0.30 takes no
bfloat16 from NumPy. Exit code: 0 all as `faults.py` has it, 1 not so, 4 could not measure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

from harness.errors import AssayError
from harness.outcome import Outcome
from harness.record import read_record
from tests.subjects.faults import FAULTS, VERSIONS, case_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.outcome import Result
    from tests.subjects.faults import Fault

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "cases" / "ring"
# What mlx-lm has caches for.
FOLDERS = (CASES, ROOT / "cases" / "recurrent")

Results = dict[str, "Result"]


class MeasureError(AssayError):
    """A release could not be installed or run."""

    exit_code = 4


@click.command()
@click.argument("versions", nargs=-1, metavar="[VERSION]...")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the environments; those that are there already are used again [default: a temporary one].",
)
def main(versions: tuple[str, ...], keep: Path | None) -> None:
    """Install releases of mlx-lm (360 MB, a minute each) and print which of the listed faults each of them has."""
    try:
        if keep is None:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(versions or VERSIONS, Path(folder))
        else:
            found = measure(versions or VERSIONS, keep.absolute())
        click.echo("\n" + table(found))
        surprises = list(unexpected(found))
    except AssayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    for line in surprises:
        click.echo(line)
    sys.exit(1 if surprises else 0)


def measure(versions: Sequence[str], folder: Path) -> dict[str, Results]:
    """Return the results of every release; raises MeasureError."""
    found = {}
    for version in versions:
        python = environment(folder / f"mlx-lm-{version}", version)
        started = time.monotonic()
        record = ROOT / "reports" / "local" / f"mlx-lm-{version}.jsonl"
        command = [str(python), "-m", "metal_assay.command", "run", *map(str, FOLDERS), "--subject", "mlx-lm", "-q"]
        call([*command, "--record", str(record)], allowed=(0, 1))
        read = read_record(record)
        used = ", ".join(f"{name} {number}" for name, number in read.header["versions"]["mlx-lm"].items())
        click.echo(f"{used}: ran {len(read.results)} instances in {time.monotonic() - started:.0f} s, see {record}")
        found[version] = {instance: result for (_, instance), result in read.results.items()}
    return found


def environment(folder: Path, version: str) -> Path:
    """Return the interpreter of a virtual environment with this release in it, which is made unless it is there."""
    python = folder / "bin" / "python"
    asked = "from importlib.metadata import version as v; print(v('metal-assay') and v('mlx-lm'))"
    if python.exists():
        answer = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            click.echo(f"using {folder}")
            return python
    wanted = ["-e", f"{ROOT}[cpu]", f"mlx-lm=={version}"]
    click.echo(f"making {folder}: pip install {' '.join(wanted)}")
    started = time.monotonic()
    call([sys.executable, "-m", "venv", "--clear", str(folder)])
    call([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted])
    click.echo(f"  done in {time.monotonic() - started:.0f} s")
    return python


def call(command: Sequence[str], allowed: Sequence[int] = (0,)) -> None:
    """Run a command in this project; raises MeasureError with the end of what it said."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
        raise MeasureError("\n  ".join([f"{' '.join(command)} ended with {done.returncode}", *said]))


def wrong(result: Result) -> bool:
    """Whether this is a wrong answer, also one that is listed as known."""
    return result.outcome in (Outcome.FAILED, Outcome.ERRORED, Outcome.KNOWN)


def verdict(fault: Fault, results: Mapping[str, Result]) -> str:
    """Say whether the cases of a fault report it."""
    there = {case_of(instance) for instance in results}
    missing = [case for case in fault.cases if case not in there]
    if missing:
        raise MeasureError(f"no instance of {', '.join(missing)} ran: was it renamed?")
    own = [result for instance, result in results.items() if case_of(instance) in fault.cases]
    count = sum(map(wrong, own))
    if count:
        return f"reported ({count} of {len(own)})"
    unsupported = all(result.outcome is Outcome.UNSUPPORTED for result in own)
    return "not applicable" if unsupported else "not reported"


def table(found: Mapping[str, Results]) -> str:
    """Return the table of faults and releases; its last row counts the cases that no fault names."""
    rows = [[fault.what, *(verdict(fault, results) for results in found.values())] for fault in FAULTS]
    rows.append(["(other cases that report something)", *(str(len(others(results))) for results in found.values())])
    return tabulate(rows, headers=["fault", *found], tablefmt="simple", maxcolwidths=[44])


def others(results: Mapping[str, Result]) -> list[str]:
    """Return the cases that report something and that no fault names: in old releases, those that merge first."""
    named = {case for fault in FAULTS for case in fault.cases}
    return sorted({case_of(instance) for instance, result in results.items() if wrong(result)} - named)


def unexpected(found: Mapping[str, Results]) -> Iterator[str]:
    """Say where the table differs from what is listed."""
    for version, results in found.items():
        for fault in FAULTS if version in VERSIONS else ():
            if verdict(fault, results).startswith("reported") != (version in fault.releases):
                yield f"mlx-lm {version}: '{fault.what}' is {verdict(fault, results)}, which was not expected"


if __name__ == "__main__":
    main()
