"""`assay show`."""

from __future__ import annotations

import click

from harness.verbs.common import say


@click.command("show", epilog="\b\nExample:\n  assay show 'ring/decode-past-the-window[window=4,tokens=2*window]'")
@click.argument("instance_id", metavar="CASE[INSTANCE]")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def command(instance_id: str, paths: tuple[str, ...]) -> None:
    """Show one instance: why it exists, what happens in it, what is checked."""
    import textwrap

    from harness.kinds import get_kind
    from harness.select import load_selected

    instance = load_selected(paths, [instance_id], [])[0]
    case = instance.case
    lines = [click.style(instance.id, bold=True), case.title, "", textwrap.fill(case.why.strip(), 100)]
    if case.source:
        lines.append(f"source: {case.source}")
    lines += ["", *get_kind(instance.kind).describe(case), f"file: {instance.path}"]
    for line in lines:
        say(line)
