"""`assay new`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.verbs.common import say


@click.command(
    "new", epilog="\b\nExamples:\n  assay new cases/ring/my-behavior.yaml\n  assay new my-behavior.yaml --kind affine"
)
@click.argument("path", required=False, metavar="[PATH]", type=click.Path(path_type=Path))
@click.option("--kind", metavar="K", help="Kind of case [default: the folder's name if it is a kind, else ring].")
def command(path: Path | None, kind: str | None) -> None:
    """Write a small case that passes as it stands, to be changed into your own."""
    from harness.new import new_case

    for line in new_case(path, kind):
        say(line)
