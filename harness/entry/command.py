"""The console script `assay`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from harness.cli import main as run

    run()


if __name__ == "__main__":
    main()
