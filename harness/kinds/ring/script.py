"""What the steps of a case mean for ids: how many tokens and rows there are, and which ids they get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.ring import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.kinds.ring.schema import StepsCase
    from harness.kinds.ring.steps import Step


def every_step(path: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps of a path and those of the solo caches built in it."""
    for step in path:
        yield step
        for row in built_rows(step):
            yield from every_step(row)


def built_rows(step: Step) -> Sequence[Sequence[Step]]:
    """Return the rows that a step builds from solo caches."""
    match step:
        case steps.MergeStep():
            return step.merge.rows
        case steps.ExtendStep():
            return step.extend.rows
        case _:
            return ()


def tokens_written(path: Sequence[Step]) -> int:
    """Return how many tokens the steps write into one row at most."""
    total = 0
    for step in path:
        match step:
            case steps.AppendStep():
                total += step.append
            case steps.DecodeStep():
                total += step.decode
            case steps.PrepareStep():
                total += max(step.prepare.lengths)
            case steps.PrefillStep():
                total += max(step.prefill.lengths)
            case _:
                total += max((tokens_written(row) for row in built_rows(step)), default=0)
    # What is looked at after a copy or a refusal writes one token more.
    return total


def row_stride(case: StepsCase) -> int:
    """Return the distance between two rows' ids: row r writes r * stride + 1, + 2, ..., and never reaches the next."""
    return -(-(tokens_written(case.steps) + 3) // 100) * 100


def most_rows(case: StepsCase) -> int:
    """Return how many rows are ever numbered."""
    built = sum(len(built_rows(step)) for step in case.steps)
    return built + (0 if isinstance(case.steps[0], steps.MergeStep) else case.given.rows)


def last_id(case: StepsCase) -> int:
    """Return the largest id that the case can write."""
    return (most_rows(case) - 1) * row_stride(case) + tokens_written(case.steps) + 2


def marker_group(case: StepsCase) -> int | None:
    """Return the largest group size of any storage in the case, None when all is plain."""
    storage = case.given.affine()
    groups = [step.quantize.group for step in every_step(case.steps) if isinstance(step, steps.QuantizeStep)]
    return max([*groups, *([storage.group_size] if storage else [])], default=None)
