"""How many tokens the steps of a recurrent case give to one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.recurrent import steps
from harness.kinds.ring import steps as ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kinds.recurrent.schema import RecurrentCase
    from harness.kinds.recurrent.steps import Step


def most_tokens(case: RecurrentCase) -> int:
    """Return how many tokens any row takes at most, the one after a copy included."""
    return _written(case.steps) + 1


def _written(path: Sequence[Step]) -> int:
    total = 0
    for step in path:
        match step:
            case ring.AppendStep():
                total += step.append
            case ring.DecodeStep():
                total += step.decode
            case ring.ChunkStep():
                # Rows that join an open prefill take all its columns.
                total += step.chunk
            case ring.PrefillStep():
                total += max(step.prefill.lengths)
            case steps.MergeStep():
                total += max(_written(row) for row in step.merge.rows)
            case steps.ExtendStep():
                total += max(_written(row) for row in step.extend.rows)
            case _:
                pass
    return total
