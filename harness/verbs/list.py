"""`assay list`."""

from __future__ import annotations

import click

from harness.verbs.common import kinds_option, paths_argument, say, select_option


@click.command("list", epilog="\b\nExamples:\n  assay list\n  assay list cases/ring --instances\n  assay list --timed")
@paths_argument
@kinds_option
@select_option
@click.option("--instances", "each", is_flag=True, help="List every instance, not every case.")
@click.option("--timed", is_flag=True, help="Only cases that list something under `time:`.")
def command(paths: tuple[str, ...], kinds: tuple[str, ...], patterns: tuple[str, ...], each: bool, timed: bool) -> None:
    """List cases: name, number of instances, title."""
    from collections import Counter

    from tabulate import tabulate

    from harness.select import load_selected

    instances = [one for one in load_selected(paths, patterns, kinds) if not timed or getattr(one.case, "time", None)]
    if each:
        for instance in instances:
            say(instance.id)
        return
    count = Counter(instance.case_name for instance in instances)
    titles = {instance.case_name: instance.case.title for instance in instances}
    rows = [[name, number, titles[name]] for name, number in count.items()]
    say(tabulate(rows, headers=["case", "instances", "title"], tablefmt="simple", maxcolwidths=[None, None, 70]))
    say(f"\n{len(count)} cases, {len(instances)} instances")
