"""`assay schema`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.errors import UsageError
from harness.verbs.common import say


@click.command("schema", epilog="\b\nExamples:\n  assay schema | less\n  assay schema --write case.schema.json")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def command(write: Path | None) -> None:
    """Print the JSON Schema of case files, for completion in editors."""
    from harness.case.json_schema import schema_text

    if write is None:
        say(schema_text(), nl=False)
    else:
        try:
            write.write_text(schema_text(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{write}: can't be written: {error.strerror}") from None
        say(f"wrote {write}")
