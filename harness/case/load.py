"""Loading case files: from paths to instances, or to every error at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from harness.case.expand import Instance, combinations, digest, kept, resolve
from harness.case.expression import ExpressionError
from harness.case.matrix import check_matrix
from harness.case.model import SCHEMA_VERSION, file_problem
from harness.case.problem import Problem, nearest
from harness.case.source import is_case_file, read_source
from harness.errors import CaseFileError, UsageError
from harness.kinds import KIND_NAMES, get_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.case.expand import Combination
    from harness.case.source import Source
    from harness.kinds.base import Kind

    Wanted = Callable[[list[str]], set[str]]

SUFFIXES = (".yaml", ".yml")


def default_root() -> Path:
    """Return `./cases` when there is one with cases of ours in it, else the cases that come with the package."""
    local = Path("cases")
    if local.is_dir() and any(is_case_file(path) for path in _files(local)):
        return local
    return shipped_root()


def shipped_root() -> Path:
    """Return the folder of the cases that come with the package."""
    import metal_assay

    here = Path(metal_assay.__file__).parent
    # In a wheel the cases lie beside the module; in an editable install both keep their places in the project.
    beside = here / "cases"
    return beside if beside.is_dir() else here.parent.parent / "cases"


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file())


def case_files(paths: Sequence[str | Path]) -> list[Path]:
    """Find the case files under `paths` (files or folders; none: the default ones). Raises UsageError for a bad path.

    A YAML file without a top-level `assay: <number>` is not ours: skipped in a folder, an error when named itself.
    """
    # By the resolved path: `cases` and `./cases/ring` together name a file once.
    found: dict[Path, Path] = {}
    for path in [Path(p) for p in paths] or [default_root()]:
        if path.is_dir():
            ours = [file for file in _files(path) if is_case_file(file)]
            if not ours:
                raise UsageError(f"{path}: holds no case file (a YAML file with `assay: {SCHEMA_VERSION}` at the top)")
        elif path.exists():
            ours = [path]
        else:
            raise UsageError(f"{path}: no such file or folder")
        for file in ours:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def case_name(path: Path) -> str:
    """Return the stable name of a case: its path below `root_of` it, without suffix."""
    return path.resolve().with_suffix("").relative_to(root_of(path)).as_posix()


def root_of(path: Path) -> Path:
    """Return the folder below which cases are named: the nearest one called `cases`, else two levels up."""
    parents = path.resolve().parents
    return next((parent for parent in parents if parent.name == "cases"), parents[min(1, len(parents) - 1)])


def load_cases(
    paths: Sequence[str | Path] = (), *, wanted: Wanted | None = None, named: Callable[[str], bool] | None = None
) -> list[Instance]:
    """Load every instance under `paths` (default: `./cases`, else the shipped ones).

    `named` chooses cases by name before their files are read, `wanted` instances as in `load_file`.

    Raises CaseFileError with every problem of every file, and UsageError when a path holds nothing.
    """
    instances: list[Instance] = []
    problems: list[Problem] = []
    names: dict[str, Path] = {}
    for path in case_files(paths):
        name = case_name(path)
        if name in names:
            message = f"has the name '{name}', as {names[name]} has; rename one of them"
            problems.append(Problem(str(path), 1, 1, "", message))
        names[name] = path
        if named is not None and not named(name):
            continue
        try:
            instances.extend(load_file(path, wanted=wanted))
        except CaseFileError as error:
            problems.extend(error.problems)
    if problems:
        raise CaseFileError(problems)
    return instances


def load_file(path: Path, *, wanted: Wanted | None = None) -> list[Instance]:
    """Load the instances of one case file; raises CaseFileError.

    `wanted` gets the ids of all of them and returns those to check and build: of a large matrix, a sample is quick.
    """
    source = read_source(path)
    return _load(path, source, _kind(source), wanted)


def load_described(path: Path, kind: Kind) -> list[Instance]:
    """Load the instances of a file that is no case and has the keys of `kind`; raises CaseFileError."""
    source = read_source(path)
    if not isinstance(source.value, dict):
        raise CaseFileError([source.problem([], "must be a mapping with keys such as: given")])
    return _load(path, source, kind, None)


def _load(path: Path, source: Source, kind: Kind, wanted: Wanted | None) -> list[Instance]:
    if kind.include is not None:
        source = kind.include(source, path.resolve().is_relative_to(shipped_root().resolve()))
    given = frozenset(_given_keys(kind))
    problems = check_matrix(source, given)
    if problems:
        # The matrix is wrong, so combinations mean nothing; what the rest says on its own can still be checked.
        rest = {key: value for key, value in source.value.items() if key in ("assay", "title", "why")}
        needed = [key for key in ("title", "why") if kind.model.model_fields[key].is_required()]
        missing = [source.problem([], f"the key '{key}' is missing") for key in needed if key not in rest]
        raise CaseFileError([*problems, *missing])
    return list(_instances(source, kind, given, case_name(path), wanted))


def _kind(source: Source) -> Kind:
    value = source.value
    if not isinstance(value, dict):
        raise CaseFileError([source.problem([], "must be a mapping that starts with `assay: 1` and `kind:`")])
    problems = []
    version = value.get("assay")
    if "assay" not in value:
        problems.append(source.problem([], f"the key 'assay' is missing; write `assay: {SCHEMA_VERSION}` at the top"))
    elif version != SCHEMA_VERSION or type(version) is not int:
        message = f"this version is not known to this release; it reads `assay: {SCHEMA_VERSION}`"
        problems.append(source.problem(["assay"], message))
    name = value.get("kind")
    if name is None:
        problems.append(source.problem([], f"the key 'kind' is missing{nearest('', KIND_NAMES)}"))
    elif name not in KIND_NAMES:
        what = f"'{name}' is no kind{nearest(name, KIND_NAMES)}" if isinstance(name, str) else "must be one word"
        problems.append(source.problem(["kind"], what))
    if problems:
        raise CaseFileError(problems)
    return get_kind(str(name))


def _given_keys(kind: Kind) -> Iterable[str]:
    model = kind.model.model_fields["given"].annotation
    fields: dict[str, Any] = getattr(model, "model_fields", {})
    return fields.keys()


def _instances(
    source: Source, kind: Kind, given_keys: frozenset[str], name: str, wanted: Wanted | None
) -> Iterable[Instance]:
    problems: dict[tuple[int, int, str], _Troubled] = {}
    found: list[Instance] = []
    considered = 0
    chosen = list(combinations(source.value))
    ids = (
        None
        if wanted is None
        else wanted([name + one.suffix for one in chosen if _may_be_kept(source, one, given_keys)])
    )
    for combination in chosen:
        if ids is not None and name + combination.suffix not in ids:
            continue
        content = resolve(source.value, combination, given_keys)
        place = partial(content.place, combination)
        try:
            if not kept(source.value, content.names):
                continue
            case = kind.model.model_validate(content.values, context={"names": content.names})
            bad = [source.problem(place(at), message) for at, message in kind.complaints(case)]
            found.append(Instance(name + combination.suffix, name, source.path, kind.name, case, digest(content)))
        except ExpressionError as error:
            bad = [source.problem(["where"], str(error))]
        except ValidationError as error:
            bad = [file_problem(source, item, place) for item in error.errors(include_url=False)]
        considered += 1
        by_place: dict[tuple[int, int, str], list[Problem]] = {}
        for problem in bad:
            by_place.setdefault((problem.line, problem.column, problem.key), []).append(problem)
        for at, here in by_place.items():
            problems.setdefault(at, _Troubled(combination.suffix, here)).count(here)
    if problems:
        raise CaseFileError([problem for troubled in problems.values() for problem in troubled.told(considered)])
    if not found and ids is None:
        raise CaseFileError([source.problem(["where"], "keeps no combination of the matrix: no instance would run")])
    return found


def _may_be_kept(source: Source, combination: Combination, given_keys: frozenset[str]) -> bool:
    try:
        return kept(source.value, resolve(source.value, combination, given_keys).names)
    except ExpressionError:
        # A condition without a value is a problem to be told when its instance is built.
        return True


@dataclass
class _Troubled:
    """A place in the file: what is wrong there in the first combination that fails there, and how many others fail."""

    suffix: str
    problems: list[Problem]
    times: int = 0
    alike: bool = True

    def count(self, problems: list[Problem]) -> None:
        self.times += 1
        self.alike = self.alike and problems == self.problems

    def told(self, considered: int) -> list[Problem]:
        """Return one combination's problems; what is wrong with all of them alike is a problem of the file."""
        if not self.suffix or (self.alike and self.times == considered):
            return self.problems
        others = f", and {self.times - 1} more" if self.times > 1 else ""
        return [replace(problem, message=f"{problem.message} (in {self.suffix}{others})") for problem in self.problems]
