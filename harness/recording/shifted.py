"""By how much the exact attention moves where codes of keys and values differ by one: two right answers then differ.

Each output is within its bound of the exact attention over its own planes, so both are within the sum of the bounds
and the distance of the two exact ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.attention import attend_head
from harness.kinds.ring.observe import decoded, parts, pieces
from harness.recording.values import read_value
from harness.subjects.protocol import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from harness.subjects.protocol import Arrays


def output_shift(
    call: Mapping[str, Any], given: Mapping[str, Any], here: object, tensors: Mapping[str, NDArray[Any]], at: str
) -> dict[str, NDArray[np.float64]]:
    """Return the distance [rows, heads, queries, value_dim] by the name of the output's tensor.

    Empty where the call is not one that shows keys, values and an output together.
    """
    recorded, queries = call.get("result"), given.get("queries")
    if not isinstance(here, Answer) or not isinstance(recorded, dict) or queries is None or here.output is None:
        return {}
    leaf = recorded.get("output")
    if recorded.get("$") != "Answer" or not isinstance(leaf, dict):
        return {}
    then: Answer = read_value(recorded, tensors, {}, at)
    if _same(then.keys, here.keys) and _same(then.values, here.values):
        return {leaf["tensor"]: np.zeros(())}
    try:
        moved = np.abs(exact_output(then, queries) - exact_output(here, queries))
    except ValueError:
        return {}  # Of different shapes, which the comparison says in better words.
    return {leaf["tensor"]: np.nan_to_num(moved, nan=np.inf)}


def exact_output(answer: Answer, queries: NDArray[Any]) -> NDArray[np.float64]:
    """Return attention in float64 over what an answer shows, [rows, heads, queries, value_dim]."""
    keys, values = (np.concatenate([decoded(piece) for piece in pieces(side)]) for side in (answer.keys, answer.values))
    rows, heads, count, head_dim = queries.shape
    share, columns = heads // keys.shape[1], keys.shape[2]
    sees = np.broadcast_to(_sees(answer.mask, count, columns), (rows, heads, count, columns))
    out = np.zeros((rows, heads, count, values.shape[3]))
    for row, head in np.ndindex(rows, heads):
        own = queries[row, head].astype(np.float64)
        k, v = keys[row, head // share], values[row, head // share]
        out[row, head], _ = attend_head(own, k, v, head_dim**-0.5, sees[row, head])
    return out


def _sees(mask: Any, queries: int, columns: int) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones((queries, columns), bool)
    if isinstance(mask, str):
        newest: NDArray[np.bool_] = np.arange(columns)[None] <= np.arange(columns - queries, columns)[:, None]
        return newest
    shown: NDArray[np.bool_] = mask if mask.dtype == bool else mask.astype(np.float64) > -1e4
    return shown


def _same(then: Arrays, here: Arrays) -> bool:
    pairs = ([array for piece in pieces(side) for array in parts(piece)] for side in (then, here))
    return all(a.tobytes() == b.tobytes() for a, b in zip(*pairs, strict=False))
