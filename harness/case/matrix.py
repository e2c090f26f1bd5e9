"""What can be wrong with `matrix` and `where` themselves, before any combination is looked at."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness.case.expand import SILENT_KEYS, named
from harness.case.expression import names_in
from harness.case.problem import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.case.problem import Problem
    from harness.case.source import Source

MAX_INSTANCES = 5000
MAX_STEPS = 5000

# What may stand in an id: the signs that separate its parts would make two instances one.
_LABEL = re.compile(r"[^\s,=\[\]{}'\"]{1,80}")


def check_matrix(source: Source, given_keys: frozenset[str]) -> list[Problem]:
    """Find what is wrong with `matrix` and `where` themselves; `given_keys` are the kind's keys of `given`."""
    case: Mapping[str, Any] = source.value
    problems = list(_check_where(source))
    if "matrix" not in case:
        return problems
    matrix = case["matrix"]
    if not isinstance(matrix, dict) or not matrix:
        message = "must name at least one key with a list of values; or leave `matrix` out"
        return [*problems, source.problem(["matrix"], message)]
    unused = _unused(case)
    for key, values in matrix.items():
        message = _values_problem(key, values)
        if message:
            problems.append(source.problem(["matrix", key], message, at_key=True))
        if key in unused - given_keys:
            hint = nearest(str(key), given_keys)
            message = f"is used nowhere: it is no key of `given`, and no step or expression names it{hint}"
            problems.append(source.problem(["matrix", key], message, at_key=True))
    sizes = [len(values) for values in matrix.values() if isinstance(values, (list, dict))]
    if math.prod(sizes) > MAX_INSTANCES:
        message = f"has {math.prod(sizes)} combinations; {MAX_INSTANCES} are allowed"
        problems.append(source.problem(["matrix"], message, at_key=True))
    if not problems and _most_steps(case) > MAX_STEPS:
        problems.append(source.problem(["steps"], f"become more than {MAX_STEPS} steps", at_key=True))
    return problems


def _check_where(source: Source) -> Iterator[Problem]:
    where = source.value.get("where", "absent")
    conditions = where if isinstance(where, list) else [where]
    if not conditions or not all(isinstance(condition, str) for condition in conditions):
        message = "must be a condition, or a list of them, such as `tokens > window`; or leave `where` out"
        yield source.problem(["where"], message)
    elif "where" in source.value and "matrix" not in source.value:
        yield source.problem(["where"], "chooses among the combinations of a `matrix`, and there is none", at_key=True)


def _values_problem(key: str, values: Any) -> str:
    if not isinstance(values, (list, dict)):
        return "must be a list of values (or a mapping of names to values)"
    if not values:
        return "is empty: no instance would run; give a list of values (or a mapping of names to values)"
    labels = [label for label, _ in named(values)]
    for label in labels:
        if not _LABEL.fullmatch(label):
            message = f"'{label[:60]}' can't stand in the id of an instance"
            return f"{message}; name the value: `{key}: {{a-name: ...}}`" if isinstance(values, list) else message
    twice = next((label for index, label in enumerate(labels) if label in labels[:index]), None)
    return "" if twice is None else f"has the value {twice} twice"


def _unused(case: Mapping[str, Any]) -> set[str]:
    """Return the matrix keys that stand nowhere in the case but in `matrix`, and there with no other key's values."""
    matrix: Mapping[str, Any] = case["matrix"]
    rest = _words({name: value for name, value in case.items() if name not in ("matrix", *SILENT_KEYS)})
    uses = Counter(word for values in matrix.values() for word in _words(values))
    return {key for key, values in matrix.items() if key not in rest and uses[key] == (key in _words(values))}


def _words(value: Any) -> set[str]:
    texts = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(value, default=str, ensure_ascii=False))
    # A whole text may be a name that is no word of arithmetic, such as `first-steps`.
    return {*texts, *(word for text in texts for word in names_in(text))}


def _most_steps(case: Mapping[str, Any]) -> int:
    steps = case.get("steps")
    if not isinstance(steps, list):
        return 0
    lengths = {
        key: max(len(value) if isinstance(value, list) else 1 for _, value in named(values))
        for key, values in case["matrix"].items()
    }
    return sum(lengths.get(step, 1) if isinstance(step, str) else 1 for step in steps)
