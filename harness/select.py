"""Choosing instances: by kind, by id or pattern, or a fixed sample of every case."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.case.problem import closest, nearest
from harness.errors import NothingRanError, UsageError
from harness.kinds import KIND_NAMES
from harness.known import matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.case.expand import Instance


def select(instances: Sequence[Instance], patterns: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[Instance]:
    """Keep what `patterns` match (an exact id first; else `*` and `?` are special) and what is of `kinds`.

    A pattern without brackets also matches the whole case. Raises UsageError for an unknown kind, NothingRanError when
    nothing is left.
    """
    for kind in kinds:
        if kind not in KIND_NAMES:
            raise UsageError(f"no kind '{kind}'{nearest(kind, KIND_NAMES)}")
    chosen = [instance for instance in instances if not kinds or instance.kind in kinds]
    if patterns:
        for pattern in patterns:
            if not any(_fits(pattern, instance) for instance in chosen):
                known = {instance.id for instance in chosen} if "[" in pattern else {i.case_name for i in chosen}
                # Comparing spellings is slow, so a very large selection gets no guess.
                near = closest(pattern, known) if len(known) < 3000 else None
                hint = f"did you mean '{near}'?" if near else "`assay list` shows what there is"
                raise NothingRanError(f"'{pattern}' matches no instance; {hint}")
        chosen = [instance for instance in chosen if any(_fits(pattern, instance) for pattern in patterns)]
    if not chosen:
        raise NothingRanError("no instance is left to run; `assay list` shows what there is")
    return chosen


def _fits(pattern: str, instance: Instance) -> bool:
    return _means(pattern, instance.id)


def load_selected(paths: Sequence[str], patterns: Sequence[str], kinds: Sequence[str]) -> list[Instance]:
    """Load and select; with patterns, only the files and instances that they may mean are read."""
    from harness.case.load import load_cases

    if patterns:
        found = load_cases(
            paths,
            named=lambda case: any(_may_mean(pattern, case) for pattern in patterns),
            wanted=lambda ids: {one for one in ids if any(_means(pattern, one) for pattern in patterns)},
        )
        if all(any(_fits(pattern, instance) for instance in found) for pattern in patterns):
            return select(found, patterns, kinds)
    return select(load_cases(paths), patterns, kinds)


def _may_mean(pattern: str, case: str) -> bool:
    stem = pattern.partition("[")[0]
    return matches(stem, case) or ("*" in stem and "[" not in pattern and matches(stem, f"{case}["))


def _means(pattern: str, instance_id: str) -> bool:
    return matches(pattern, instance_id) or pattern == instance_id.partition("[")[0]


def sample(ids: Sequence[str], count: int) -> set[str]:
    """Choose `count` of a case's ids, always the same: the first, and others by a hash of the id."""
    rest = sorted(ids[1:], key=lambda one: hashlib.sha256(one.encode()).digest())
    return set([*ids[:1], *rest][:count])
