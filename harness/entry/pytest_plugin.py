"""What pytest loads at start-up: the harness's plugin, or nothing but one warning.

A project may keep its own package named `harness` or `impl` where Python finds it first. This module is named
uniquely, looks without importing, and switches itself off when the packages found are not the ones it came with.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def foreign_package() -> str | None:
    """Return the name of a package of ours in whose place Python finds another, or None."""
    here = Path(__file__).resolve().parent
    # In a wheel, metal_assay lies beside harness and impl; in the project it is harness/entry.
    roots = {here.parent, here.parent.parent}
    for name in ("harness", "impl"):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not any(Path(place).resolve().parent in roots for place in places):
            return name
    return None


_FOREIGN = foreign_package()

if _FOREIGN is None:
    from harness.plugin import (
        pytest_addoption,
        pytest_collect_file,
        pytest_configure,
        pytest_report_header,
        pytest_unconfigure,
        pytest_xdist_auto_num_workers,
    )

    __all__ = [
        "pytest_addoption",
        "pytest_collect_file",
        "pytest_configure",
        "pytest_report_header",
        "pytest_unconfigure",
        "pytest_xdist_auto_num_workers",
    ]
else:

    def pytest_configure(config: pytest.Config) -> None:
        """Say once that the plugin is off."""
        message = (
            f"metal-assay's pytest plugin is off: this project has its own package '{_FOREIGN}', which hides "
            "metal-assay's. `assay run` works; or run pytest from another folder."
        )
        try:
            config.issue_config_time_warning(UserWarning(message), stacklevel=2)
        except UserWarning:
            # A project that turns warnings into errors must not fail over a plugin that has nothing to do.
            sys.stderr.write(f"{message}\n")
