"""Words for what an attention case finds: the query, what it sees, and whose value its answer looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.attention.data import Inputs
    from harness.kinds.attention.schema import AttentionGiven

_SHOWN_RUNS = 4


def query_place(index: tuple[int, ...], given: AttentionGiven, inputs: Inputs) -> str:
    """Name an element of the output by its index [row, head, query, channel]."""
    row, head, query, channel = index
    kv = f" (kv head {head // given.share})" if given.share > 1 else ""
    seen = columns_text(inputs.sees[row, head, query])
    return f"row {row}, head {head}{kv}, query {query}, which sees {seen}; channel {channel}"


def columns_text(seen: NDArray[np.bool_]) -> str:
    """Write the columns that are seen as `columns 0 to 3 and 7 of 12`."""
    columns = np.flatnonzero(seen)
    if not columns.size:
        return "nothing"
    if columns.size == seen.size:
        return f"all {seen.size} columns" if seen.size > 1 else "the only column"
    runs = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    words = [f"{run[0]}" if run.size == 1 else f"{run[0]} to {run[-1]}" for run in runs[:_SHOWN_RUNS]]
    more = f" and {len(runs) - _SHOWN_RUNS} more ranges" if len(runs) > _SHOWN_RUNS else ""
    return f"column{'s' if columns.size > 1 else ''} {', '.join(words)}{more} of {seen.size}"


def spread(far: NDArray[np.bool_]) -> str:
    """Say which rows, heads and queries are wrong."""
    words = []
    for axis, name in enumerate(("row", "head", "query")):
        others = tuple(other for other in range(4) if other != axis)
        wrong = np.flatnonzero(far.any(axis=others))
        if far.shape[axis] > 1:
            plural = "queries" if name == "query" else f"{name}s"
            share = "all" if wrong.size == far.shape[axis] else f"{wrong.size} of {far.shape[axis]}"
            words.append(f"{share} {plural}")
    return "in " + ", ".join(words) if words else ""


def resembles(index: tuple[int, ...], actual: NDArray[np.float64], given: AttentionGiven, inputs: Inputs) -> str:
    """Where a query picks one key: say whose value the answer is like, as `picks column 4, but got ... of column 5`."""
    if inputs.targets is None or given.data != "pick":
        return ""
    row, head, query, _ = index
    target = int(inputs.targets[row, head, query])
    aim = f"the query picks column {target}"
    answer = actual[row, head, query]
    if not np.isfinite(answer).all():
        return aim
    distances = np.array([np.abs(inputs.attended(row, kv).values - answer).max(axis=1) for kv in range(given.kv_heads)])
    kv, column = np.unravel_index(int(distances.argmin()), distances.shape)
    largest = max(float(np.abs(answer).max()), 1e-30)
    if distances[kv, column] > 0.05 * largest or (int(kv), int(column)) == (head // given.share, target):
        return aim
    return f"{aim}, and the answer is the value of column {column}, kv head {kv}"
