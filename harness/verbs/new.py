"""`assay new`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.errors import UsageError
from harness.verbs.common import say


@click.command(
    "new",
    epilog="""\b
Examples:
  assay new cases/ring/my-behavior.yaml
  assay new my-behavior.yaml --kind affine
  assay new softmax.yaml --kernel""",
)
@click.argument("path", required=False, metavar="[PATH]", type=click.Path(path_type=Path))
@click.option("--kind", metavar="K", help="Kind of case [default: the folder's name if it is a kind, else ring].")
@click.option("--kernel", is_flag=True, help="Not a case: a description of one Metal kernel, for `assay kernel`.")
def command(path: Path | None, kind: str | None, kernel: bool) -> None:
    """Write a small case that passes as it stands, to be changed into your own."""
    from harness.new import new_case, new_description

    if kernel and kind is not None:
        raise UsageError("--kernel describes a kernel without answers, --kind writes a case: give one of them")
    for line in new_description(path) if kernel else new_case(path, kind):
        say(line)
