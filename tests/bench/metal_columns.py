"""Columns of the report on mlx-lm's kernels beside its own: what checks say here, and what other machines saw.

A file of another machine is JSON: `{"column": "cuda", "machine": "...", "cells": {"kl_forward, 2 x 200": "0.003"}}`,
a cell for each kernel and size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.checking import CheckSettings
from harness.subjects.reference.kernel_checks import checked_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.outcome import KernelFault
    from tests.bench.metal_arms import Arm

CLEAN = "clean"


def check(arms: Iterable[Arm]) -> list[tuple[KernelFault, ...]]:
    """Call every kernel with each access watched, and return its faults; outside of `metal_text`."""
    with checked_kernels(CheckSettings(), every_package=True) as collector:
        found = []
        for arm in arms:
            arm.call()
            checks = collector.drain()
            # A call may launch other kernels as well: a cell is about one.
            assert arm.kernel in checks.kernels, (arm.kernel, checks.kernels)
            found.append(tuple(fault for fault in checks.faults if fault.kernel == arm.kernel))
    return found


def cell(faults: Iterable[KernelFault]) -> str:
    """Write faults as `race source:47 / source:41`, the later access first."""
    words = [
        f"{fault.fault} {' / '.join(f'{place.file}:{place.line}' for place in fault.places)}".rstrip()
        for fault in faults
    ]
    return "; ".join(words) or CLEAN


def key(arm: Arm) -> str:
    """Return the name of a kernel's cell in the file of another machine."""
    return f"{arm.kernel}, {arm.size}"


def read_column(path: Path) -> tuple[str, str, dict[str, str]]:
    """Return the name of a column, the machine that it is of, and its cells by `key`."""
    value = json.loads(path.read_text(encoding="utf-8"))
    return value["column"], value["machine"], dict(value["cells"])


def write_column(path: Path, column: str, machine: str, cells: dict[str, str]) -> None:
    """Write what `read_column` reads."""
    value = {"column": column, "machine": machine, "cells": cells}
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
