"""`assay subjects`."""

from __future__ import annotations

import click

from harness.verbs.common import say


@click.command("subjects", epilog="\b\nExample:\n  assay subjects")
def command() -> None:
    """List the implementations that `--subject` knows by name."""
    from importlib.metadata import PackageNotFoundError, version

    from tabulate import tabulate

    from harness.subjects.registry import BUILT_IN, subject_names

    rows = []
    for name in subject_names():
        entry = BUILT_IN.get(name)
        package = entry.package if entry else None
        try:
            found = version(package) if package else ""
        except PackageNotFoundError:
            found = f"not installed (pip install {package})"
        rows.append([name, found, entry.about if entry else "from an installed package"])
    say(tabulate(rows, headers=["subject", "version", "what it is"], tablefmt="simple"))
    say("\nA class of your own: --subject path/to/file.py:ClassName (a subclass of harness.subjects.protocol.Subject)")
