"""The checks of kind `ring`, weakest to strongest: visible, stored, attention; each notes what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.attention_bound import Arithmetic, Attended, attention_limit
from harness.baseline.attention import attend_head
from harness.compare import Bound, Exact
from harness.kinds.ring.observe import View, parts, ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.kinds.base import Notes
    from harness.kinds.ring.stored import Alone, Yardstick
    from harness.kinds.ring.tokens import Tokens
    from harness.subjects.protocol import RingSpec

# expected[row][query]: ids that the query may attend to, oldest first; None: the query is padding.
Expected = list[list[list[int] | None]]


def check_visible(view: View, expected: Expected, block: NDArray[np.int64], where: str, notes: Notes) -> bool:
    """Compare the ids that each query sees with those it may see; returns whether all agree."""
    before = len(notes.findings)
    for row, queries in enumerate(expected):
        for query, want in enumerate(queries):
            if want is None:
                continue
            notes.compared()
            columns = np.flatnonzero(view.sees[row, query])
            keys, values = view.key_ids[row, columns], view.value_ids[row, columns]
            place = f"{where}: row {row}, query of token {block[row, query]}"
            if sorted(keys.tolist()) != sorted(want):
                notes.found(
                    "visible", place, f"sees {ranges(sorted(want))}", f"sees {_seen(keys)}", _difference(keys, want)
                )
            elif (keys != values).any():
                at = int(np.flatnonzero(keys != values)[0])
                actual = f"the value of token {values[at]}" if values[at] > 0 else "a value of no token"
                notes.found("visible", place, f"column {columns[at]} holds key and value of token {keys[at]}", actual)
    return len(notes.findings) == before


def _seen(ids: NDArray[np.int64]) -> str:
    real = sorted(set(ids[ids > 0].tolist()))
    pads = int((ids < 0).sum())
    return ranges(real) + (f" and {pads} column{'s' if pads > 1 else ''} that hold no token" if pads else "")


def _difference(ids: NDArray[np.int64], want: list[int]) -> str:
    seen = ids[ids > 0].tolist()
    missing, extra = sorted(set(want) - set(seen)), sorted(set(seen) - set(want))
    twice = sorted({token for token in seen if seen.count(token) > 1})
    words = [("missing", missing), ("too many", extra), ("seen twice", twice)]
    return "; ".join(f"{word} {ranges(tokens)}" for word, tokens in words if tokens)


def check_stored(view: View, alones: Sequence[Alone], where: str, notes: Notes) -> bool:
    """Compare, bit by bit, every visible column with its token stored alone; returns whether all agree.

    `alones` has the yardstick of each row: rows may be stored in different ways.
    """
    before = len(notes.findings)
    for row, alone in enumerate(alones):
        names = ("",) if len(parts(view.keys[row])) == 1 else (".packed", ".scales", ".biases")
        columns = np.flatnonzero(view.sees[row].any(axis=0) & (view.key_ids[row] > 0))
        ids = view.key_ids[row, columns]
        alone.need(ids.tolist())
        for label, arrays, plane in (
            ("keys", view.keys[row], alone.keys),
            ("values", view.values[row], alone.values),
        ):
            for name, stored, got in zip(names, plane.stored, parts(arrays), strict=True):
                notes.compared()
                wrong = Exact().check(stored[ids], np.moveaxis(got[0][:, columns], 0, 1))
                if wrong is not None:
                    at = int(wrong.where.strip("[]").split(",")[0]) if wrong.where.startswith("[") else 0
                    place = f"{where}: row {row}, column {columns[at]} (token {ids[at]}), {label}{name} {wrong.where}"
                    notes.found("stored", place, wrong.expected, wrong.actual, f"[token, head, index]; {wrong.note}")
    return len(notes.findings) == before


def check_attention(
    view: View,
    expected: Expected,
    block: NDArray[np.int64],
    tokens: Tokens,
    alones: Sequence[Yardstick],
    spec: RingSpec,
    where: str,
    notes: Notes,
) -> None:
    """Compare the subject's attention with float64 softmax over the tokens that are visible.

    `harness.attention_bound` derives how far it may be from it.
    """
    output = view.output
    if output is None:
        return
    heads, queries = spec.query_heads, block.shape[1]
    shape = (len(alones), heads, queries, spec.value_dim)
    if output.shape != shape:
        notes.found("shape", f"{where}: attention output", str(list(shape)), str(list(output.shape)))
        return
    limits = np.full(shape, np.inf)
    notes.judged_by(output, Bound(limits))
    for row, alone in enumerate(alones):
        real = [query for query, ids in enumerate(expected[row]) if ids is not None]
        for query in sorted(set(range(queries)) - set(real)):
            notes.compared()
            if not np.isfinite(output[row, :, query].astype(np.float64)).all():
                notes.found(
                    "attention", f"{where}: row {row}, padding query {query}", "finite values", "NaN or infinity"
                )
        if not real:
            continue
        wanted = _attention_of_row(
            [expected[row][query] or [] for query in real], block[row, real], tokens, alone, spec
        )
        for head in range(heads):
            want, limit = wanted[head]
            limits[row, head, real] = limit
            notes.compared(len(real))
            wrong = Bound(limit).check(want, output[row, head, real])
            if wrong is not None:
                query, channel = wrong.index or (0, 0)
                token = block[row, real[query]]
                place = f"{where}: row {row}, query of token {token}, head {head}, channel [{channel}]"
                notes.found("attention", place, wrong.expected, wrong.actual, wrong.note)
                return


def _attention_of_row(
    seen: list[list[int]], asking: NDArray[np.int64], tokens: Tokens, alone: Yardstick, spec: RingSpec
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return, for each query head of one row, the output [queries, value_dim] and the bound on its error.

    `seen` has the ids that each query may attend to, `asking` the id of each query.
    """
    ids = sorted({token for query in seen for token in query})
    alone.need(ids)
    sees = np.array([np.isin(ids, query) for query in seen])
    arithmetic = Arithmetic(spec.dtype, affine=alone.affine)
    scale, share, asked = spec.head_dim**-0.5, spec.query_heads // spec.kv_heads, tokens.asked(asking)
    results = []
    for kv_head in range(spec.kv_heads):
        # Query heads that share a key head ask as one block.
        heads = range(kv_head * share, (kv_head + 1) * share)
        queries = np.concatenate([asked[:, head] for head in heads]).astype(np.float64)
        attended = Attended(*alone.keys.decoded(ids, kv_head), *alone.values.decoded(ids, kv_head))
        want, weights = attend_head(queries, attended.keys, attended.values, scale, np.tile(sees, (share, 1)))
        limit = attention_limit(queries, attended, scale, weights, arithmetic)
        results += list(zip(np.split(want, share), np.split(limit, share), strict=True))
    return results
