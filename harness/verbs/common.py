"""What verbs share: output, options that choose instances, where records go."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.case.expand import Instance
    from harness.known import Entry


def say(line: str, *, nl: bool = True) -> None:
    """Write to stdout; when its reader (`| head`) has seen enough, go on in silence with the same exit code."""
    try:
        click.echo(line, nl=nl)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...")
kinds_option = click.option("--kind", "kinds", multiple=True, metavar="K", help="Only cases of this kind (repeatable).")
select_option = click.option(
    "--select",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Only these instances: an id, or a pattern with * and ?.",
)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_record(subjects: Sequence[str]) -> Path:
    """Return where a record of these subjects goes when nothing else was said."""
    from datetime import UTC, datetime

    folder = Path("reports/local") if Path("reports").is_dir() else Path(".assay")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = "-".join(Path(name.rpartition(":")[0]).stem if ":" in name else name for name in subjects)
    return folder / f"{stamp}-{label}.jsonl"


def known_failures(instances: Sequence[Instance], *, whole: bool) -> Callable[[str, dict[str, str]], list[Entry]]:
    """Return how to find a subject's known failures, listed beside the cases; checked whole only in a whole run."""
    from harness.case.load import root_of
    from harness.known import known_path, load_known

    root = root_of(Path(instances[0].path))

    def find(subject: str, versions: dict[str, str]) -> list[Entry]:
        path = known_path(root, subject)
        if ":" in subject or not path.is_file():
            return []
        return load_known(path, versions.get(subject), [instance.id for instance in instances] if whole else None)

    return find


def switch(instances: Sequence[Instance], *, metal_text: bool, allow_code: bool) -> None:
    """Tell the workers, which inherit this process's environment; raises UsageError for code that is not allowed."""
    from harness.kinds.kernel import files
    from harness.worker import METAL_TEXT_VARIABLE

    if metal_text:
        os.environ[METAL_TEXT_VARIABLE] = "1"
    if allow_code:
        files.allow_code()
    files.refuse_code(instances)


def check_kernels(time_limit_s: float) -> None:
    """Let the workers watch Metal kernels while they run; an instance has time for more than that."""
    from harness.checking import CheckSettings

    CheckSettings(time_limit_s=time_limit_s / 3).pass_on()
