"""Saying where an answer is wrong in terms of the matrix: the row, the group, the code, and how far it spreads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.compare import Mismatch
    from harness.kinds.affine.data import Values
    from harness.kinds.affine.schema import AffineGiven
    from harness.subjects.protocol import AffineArrays


def index_of(wrong: Mismatch) -> tuple[int, ...]:
    """Return the place of a mismatch as an index; shapes and dtypes were compared before."""
    return tuple(json.loads(wrong.where))


def group_place(index: tuple[int, ...], group_size: int) -> str:
    """Name a group of W by its index [..., row, group]."""
    *lead, row, group = index
    first = group * group_size
    return f"{_matrix(lead)}row {row} of W, group {group} (columns {first} to {first + group_size - 1})"


def value_place(index: tuple[int, ...], group_size: int) -> str:
    """Name a value of W by its index [..., row, column]."""
    *lead, row, column = index
    group, position = divmod(column, group_size)
    return f"{_matrix(lead)}row {row} of W, column {column} (group {group}, value {position} of it)"


def result_place(index: tuple[int, ...], given: AffineGiven) -> str:
    """Name an element of the product by its index [..., row of x, output]."""
    *lead, row, output = index
    where = f"stack {lead[0]}, repeat {lead[1]}, " if lead else ""
    hot = f" (1 at input {row % given.inputs}, else 0)" if given.x == "one-hot" else ""
    return f"{where}row {row} of x{hot}, output {output}"


def gather_place(index: tuple[int, ...], values: Values) -> str:
    """Name an element of the picked products by its index [..., row of x, output]."""
    *lead, row, output = index
    product = tuple(lead)
    block, pick = int(values.blocks[product]), int(values.picks[product])
    return f"product {', '.join(map(str, lead))} (block {block} of x, matrix {pick}), row {row}, output {output}"


def code_text(planes: AffineArrays, index: tuple[int, ...]) -> str:
    """Write the code, scale and bias behind a value of W by its index [..., row, column]."""
    *row, column = index
    group = (*row, column // planes.group_size)
    code = baseline.unpack(planes.packed[tuple(row)], planes.bits)[column]
    return f"code {int(code)}, scale {number(planes.scales[group])}, bias {number(planes.biases[group])}"


def spread(differs: NDArray[np.bool_], last: str, before: str) -> str:
    """Say which indices of the last two axes differ, as `rows 0 to 2, outputs 32 to 39 of 40`: a shape of the fault."""
    *_, rows, columns = np.nonzero(differs)
    count = f"{int(differs.sum())} of {differs.size} elements differ"
    return f"{count}, in {_ranges(rows, differs.shape[-2], before)} and {_ranges(columns, differs.shape[-1], last)}"


def number(value: Any) -> str:
    """Write a value with the digits that tell it from its neighbors in float32."""
    return f"{float(value):.9g}"


def _matrix(lead: list[int]) -> str:
    return f"matrix {lead[0]}, " if lead else ""


def _ranges(indices: NDArray[np.intp], length: int, name: str) -> str:
    places = np.unique(indices)
    if places.size == length:
        return f"all {name}s" if length > 1 else f"the only {name}"
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = [str(run[0]) if run.size == 1 else f"{run[0]} to {run[-1]}" for run in runs[:3]]
    more = f" and {len(runs) - 3} more ranges" if len(runs) > 3 else ""
    return f"{name}s {', '.join(shown)}{more} of {length}"
