"""Break the reference in every way listed in the YAML files here, and say which shipped case notices."""

from __future__ import annotations

import argparse
import sys
import time

import click

from tests.mutations.engine import check_edits, run, shipped_instances
from tests.mutations.mutation import MutationError, load_mutations


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every mutation is caught, 1 when one is not, 2 when one can't be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutation (may be repeated)")
    parser.add_argument("--list", action="store_true", help="name the mutations and stop")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="how many at a time (default 2)")
    options = parser.parse_args(arguments)
    every = load_mutations()
    chosen = [mutation for mutation in every if options.only is None or mutation.name in options.only]
    unknown = set(options.only or ()) - {mutation.name for mutation in chosen}
    if unknown:
        parser.error(f"no mutation {', '.join(sorted(unknown))}; --list names them")
    if options.list:
        for mutation in chosen:
            click.echo(f"{mutation.name:24} {mutation.wrong}")
        return 0
    begun, caught = time.monotonic(), 0
    try:
        check_edits(chosen)
        instances = shipped_instances()
        for verdict in run(chosen, instances, options.jobs):
            caught += verdict.instance is not None
            click.echo(f"{verdict.mutation.name:24} {verdict.mutation.wrong}")
            by = f"caught by {verdict.instance}, {verdict.how}" if verdict.instance else "NOT CAUGHT"
            click.echo(f"{'':24} {by} ({verdict.tried} tried)")
    except MutationError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    click.echo(f"\ncaught {caught}/{len(chosen)} in {time.monotonic() - begun:.0f} s, with {len(instances)} instances")
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
