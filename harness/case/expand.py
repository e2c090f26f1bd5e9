"""From one case file to its instances: every combination of the matrix, filtered by `where`, with stable ids."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.case.expression import ExpressionError, evaluate, evaluate_int, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.case.model import CaseModel
    from harness.case.source import Location

# What these say does not change what an instance does, and uses no matrix key.
SILENT_KEYS = ("title", "why", "source")


@dataclass(frozen=True)
class Instance:
    """A case with one value chosen for every matrix key. `case` is the validated model, `digest` of its content."""

    id: str
    case_name: str
    path: str
    kind: str
    case: CaseModel
    digest: str


@dataclass(frozen=True)
class Combination:
    """One value for every matrix key, the id suffix that names them, and where each value stands in the file."""

    suffix: str
    chosen: Mapping[str, Any]
    places: Mapping[str, Location]


@dataclass(frozen=True)
class Content:
    """A case with a combination put in.

    `values` is the case without `matrix` and `where`, `names` are what its expressions may use, `steps` says where in
    the file each of its steps stands.
    """

    values: dict[str, Any]
    names: dict[str, Any]
    steps: tuple[Location, ...]

    def place(self, combination: Combination, location: Location) -> Location:
        """Return the place in the file of `location` in `values`."""
        match location:
            case ("given", str(key), *rest) if key in combination.places:
                return (*combination.places[key], *rest)
            case ("steps", int(index), *rest) if index < len(self.steps):
                return (*self.steps[index], *rest)
            case _:
                return location


def combinations(case: Mapping[str, Any]) -> Iterator[Combination]:
    """Yield every combination of the matrix, in the order of the file; a single one when there is no matrix."""
    matrix: Mapping[str, Any] = case.get("matrix") or {}
    choices = [
        [(f"{key}={name}", value, ("matrix", key, place)) for place, (name, value) in _placed(values)]
        for key, values in matrix.items()
    ]
    for picks in itertools.product(*choices):
        suffix = f"[{','.join(label for label, _, _ in picks)}]" if picks else ""
        values = [value for _, value, _ in picks]
        places = [place for _, _, place in picks]
        yield Combination(suffix, dict(zip(matrix, values, strict=True)), dict(zip(matrix, places, strict=True)))


def _placed(values: list[Any] | dict[str, Any]) -> Iterator[tuple[str | int, tuple[str, Any]]]:
    return zip(values if isinstance(values, dict) else range(len(values)), named(values), strict=True)


def named(values: list[Any] | dict[str, Any]) -> list[tuple[str, Any]]:
    """Return a matrix key's values with the labels that ids have for them."""
    if isinstance(values, dict):
        return [(str(name), value) for name, value in values.items()]
    return [(_label(value), value) for value in values]


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "-".join(_label(item) for item in value) or "none"
    return str(value).replace(" ", "")


def resolve(case: Mapping[str, Any], combination: Combination, given_keys: frozenset[str]) -> Content:
    """Put the chosen values where they belong.

    A matrix key that is a key of `given` sets it; any other is a name: a text that is exactly this name stands for
    the value, and as an item of `steps` a list of steps is put in its place.
    """
    out = {key: value for key, value in case.items() if key not in ("matrix", "where")}
    given = out.get("given", {})
    values = _values({**given, **combination.chosen} if isinstance(given, dict) else combination.chosen)
    free = {key: values[key] for key in combination.chosen if key not in given_keys}
    if isinstance(given, dict):
        out["given"] = _replace({key: value for key, value in values.items() if key not in free}, free)
        values = {**out["given"], **free}
    places: list[Location] = []
    if isinstance(out.get("steps"), list):
        placed = list(_steps(out["steps"], free, combination.places))
        places, out["steps"] = [place for place, _ in placed], [step for _, step in placed]
    names = {
        key: value
        for key, value in values.items()
        if isinstance(key, str) and isinstance(value, (int, str)) and not isinstance(value, bool)
    }
    return Content(out, names, tuple(places))


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate the values that are arithmetic over each other (`tokens: [window + 1]`)."""
    values = dict(values)
    # A value may use one that uses another; three rounds reach further than anybody reads.
    for _ in range(3):
        numbers = {key: value for key, value in values.items() if type(value) is int}
        for key, value in values.items():
            if isinstance(value, str) and names_in(value) and names_in(value) <= numbers.keys() | {"min", "max"}:
                try:
                    values[key] = evaluate_int(value, numbers)
                except ExpressionError:
                    continue
    return values


def _replace(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_replace(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _replace(item, names) for key, item in value.items()}
    return value


def _steps(
    steps: list[Any], names: Mapping[str, Any], places: Mapping[str, Location]
) -> Iterator[tuple[Location, Any]]:
    # One level deep: names within names would grow without end.
    for index, step in enumerate(steps):
        inner = names.get(step) if isinstance(step, str) else None
        if isinstance(step, str) and isinstance(inner, list):
            yield from (((*places[step], number), _replace(item, names)) for number, item in enumerate(inner))
        else:
            yield ("steps", index), _replace(step, names)


def kept(case: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    """Whether `where` keeps this combination; raises ExpressionError."""
    where = case.get("where")
    for condition in [where] if isinstance(where, str) else where or []:
        value = evaluate(str(condition), names)
        if not isinstance(value, bool):
            raise ExpressionError(f"'{condition}' is no condition; write a comparison such as `tokens > window`")
        if not value:
            return False
    return True


def digest(content: Content) -> str:
    """Hash what an instance does: a record is resumed only where this is unchanged. Titles and reasons don't count."""
    case = {key: value for key, value in content.values.items() if key not in SILENT_KEYS}
    text = json.dumps({"case": case, "names": content.names}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
