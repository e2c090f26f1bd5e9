"""The command line: what `assay` says of itself, and how errors end. The verbs are in `harness/verbs`."""

from __future__ import annotations

import importlib
import sys

import click

from harness import __version__
from harness.errors import AssayError, CaseFileError

# In the order of `assay --help`. A verb's module is imported when it is asked for.
VERBS = (
    "run",
    "kernel",
    "list",
    "show",
    "new",
    "record",
    "time",
    "compare",
    "selftest",
    "machine",
    "subjects",
    "schema",
)

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Verbs(click.Group):
    """The commands of `harness/verbs`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which people meet them."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb of this name."""
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"harness.verbs.{cmd_name}").command
        return command


@click.group(
    cls=Verbs,
    context_settings=_CONTEXT,
    epilog="""\b
Examples:
  assay run                                    run every case on our own implementation
  assay run --subject mlx-lm                   ... on the installed mlx-lm
  assay run cases/ring --subject mine.py:Mine  ... one folder, on a class of yours
  assay list --kind ring                       what there is
  assay show 'ring/decode-past-the-window[window=4,tokens=2*window]'

\b
Exit codes: 0 all fine, 1 a conformance failure, 2 bad usage, case file or subject,
3 a confirmed timing regression, 4 nothing ran or could be measured, 130 interrupted.""",
)
@click.version_option(__version__, prog_name="metal-assay")
def cli() -> None:
    """Check and time KV caches and kernels against naive baselines."""


def main() -> None:
    """Run the command line; every error of ours ends as one message and an exit code."""
    try:
        cli(prog_name="assay", standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except CaseFileError as error:
        # Each line starts with its place, so that editors can jump to it.
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except AssayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
