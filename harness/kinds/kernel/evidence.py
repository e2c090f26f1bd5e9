"""Words for what a kernel case finds: the element, and which others are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.kernel.schema import KernelGiven

_SHOWN_RUNS = 3


def element(name: str, index: tuple[int, ...]) -> str:
    """Write an element as `y[3, 17]`."""
    return f"{name}[{', '.join(str(int(i)) for i in index)}]"


def spread(wrong: NDArray[np.bool_]) -> str:
    """Say which elements are wrong, in the order of memory: `8 of 33: 24 to 31`."""
    flat = np.flatnonzero(wrong)
    if not flat.size:
        return ""
    if flat.size == wrong.size:
        return f"all {wrong.size} elements" if wrong.size > 1 else "the only element"
    runs = np.split(flat, np.flatnonzero(np.diff(flat) > 1) + 1)
    words = [str(run[0]) if run.size == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_SHOWN_RUNS]]
    more = f" and {len(runs) - _SHOWN_RUNS} more runs" if len(runs) > _SHOWN_RUNS else ""
    tail = ", the last ones" if len(runs) == 1 and flat[-1] == wrong.size - 1 else ""
    return f"{flat.size} of {wrong.size} elements, counted as in memory: {', '.join(words)}{more}{tail}"


def launch_text(given: KernelGiven) -> str:
    """Write the launch, with what a grid that does not fill its last threadgroup leaves over."""
    grid, group = given.space("grid"), given.space("threadgroup")
    ragged = any(size % part for size, part in zip(grid, group, strict=True))
    return f"grid {_by(grid)}, threadgroup {_by(group)}" + (", the last ones not full" if ragged else "")


def _by(sizes: tuple[int, int, int]) -> str:
    return " x ".join(map(str, sizes))
