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
    return matches(pattern, instance.id) or pattern == instance.case_name


def sample(instances: Sequence[Instance], count: int) -> list[Instance]:
    """Keep `count` instances of every case, always the same: the first, and others chosen by a hash of their ids."""
    by_case: dict[str, list[Instance]] = {}
    for instance in instances:
        by_case.setdefault(instance.case_name, []).append(instance)
    kept: set[str] = set()
    for group in by_case.values():
        rest = sorted(group[1:], key=lambda instance: hashlib.sha256(instance.id.encode()).digest())
        kept.update(instance.id for instance in (group[:1] + rest)[:count])
    return [instance for instance in instances if instance.id in kept]
