"""Lines of `assay show` for an attention case: shapes, who sees what, and the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.kinds.attention.data import make_inputs
from harness.kinds.attention.evidence import columns_text
from harness.kinds.attention.rope import describe_rope
from harness.kinds.attention.run import Answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.attention.schema import AttentionCase

_SHOWN_QUERIES = 4


def describe(case: AttentionCase) -> Iterator[str]:
    """Write what attends to what, with the bound beside the size of the answers."""
    given = case.given
    if "output" not in case.check:
        yield from describe_rope(case)
        return
    inputs = make_inputs(given)
    answers = Answers(given, inputs)
    yield f"queries: {given.dtype} {list(given.query_shape())}, {given.data}; {given.share} to a kv head"
    yield f"keys: {given.storage} {list(given.key_shape())}"
    yield f"values: {given.storage} {list(given.value_shape())}, {given.values}"
    mask = inputs.shown.mask
    form = mask if isinstance(mask, str) else "none" if mask is None else f"{mask.dtype} {list(mask.shape)}"
    yield f"mask: {given.mask}, bias: {given.bias}, given as {form}; views: {given.views}"
    for query in range(min(given.queries, _SHOWN_QUERIES)):
        yield f"query {query} of row 0 sees {columns_text(inputs.sees[0, 0, query])}"
    sinks = inputs.shown.sinks
    yield f"sinks: {given.sinks}" + (
        "" if sinks is None else f", {', '.join(f'{float(one):.6g}' for one in sinks[:4])}"
    )
    yield f"scale: {given.factor:.9g}"
    compared = answers.expected[answers.comparable]
    yield f"size of an answer (root mean square): {np.sqrt(np.mean(compared**2)) if compared.size else 0:.3g}"
    yield f"bound: {np.median(answers.limit):.3g} (median), {answers.limit.max():.3g} (largest)"
    yield f"checked: {', '.join(case.check)}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"
