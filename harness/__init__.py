"""metal-assay's harness: load case files, run them against a subject, report what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.case.load import load_cases
    from harness.run import run

__version__ = "0.1.0"
__all__ = ["__version__", "load_cases", "run"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `assay --help` and pytest's start-up must not pay for pydantic and NumPy.
    if name == "load_cases":
        from harness.case.load import load_cases

        return load_cases
    if name == "run":
        from harness.run import run

        return run
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
