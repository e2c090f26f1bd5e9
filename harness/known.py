"""Known failures: `cases/known/<subject>.yaml` lists what fails today, so that only news makes a run fail.

A listed failure that passes is `fixed`, and fails the run until its entry is removed.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, ValidationError

from harness.case.model import Strict, file_problem
from harness.case.source import read_source
from harness.errors import CaseFileError
from harness.outcome import Outcome, Result

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.case.problem import Problem


class Entry(Strict):
    """One known failure: which instances, of which versions, why, and where it is reported."""

    instances: Annotated[str, Field(min_length=1)]
    versions: str = ""
    reason: Annotated[str, Field(min_length=1)]
    link: str | None = None

    def matches(self, instance_id: str) -> bool:
        """Whether this entry is about `instance_id`."""
        return matches(self.instances, instance_id)


class KnownFile(Strict):
    """The whole file."""

    version: Literal[1] = Field(alias="assay-known")
    failures: list[Entry]


def matches(pattern: str, instance_id: str) -> bool:
    """Match an id with a pattern: the exact id, or a pattern in which `*` and `?` are special and brackets are not."""
    return pattern == instance_id or fnmatchcase(instance_id, pattern.replace("[", "[[]"))


def known_path(root: Path, subject: str) -> Path:
    """Return where the known failures of `subject` would be listed."""
    return root / "known" / f"{subject}.yaml"


def load_known(path: Path, version: str | None, ids: Iterable[str] | None) -> list[Entry]:
    """Load the entries that apply to `version`; raises CaseFileError.

    An entry that matches none of `ids` is an error, too; None: not all instances are at hand, don't judge.
    """
    source = read_source(path)
    try:
        file = KnownFile.model_validate(source.value)
    except ValidationError as error:
        raise CaseFileError([file_problem(source, item) for item in error.errors(include_url=False)]) from None
    every_id = None if ids is None else list(ids)
    entries: list[Entry] = []
    bad: list[Problem] = []
    for index, entry in enumerate(file.failures):
        try:
            applies = _applies(SpecifierSet(entry.versions), version)
        except InvalidSpecifier:
            message = f"'{entry.versions}' is no version range; write for example '>=0.30,<0.33'"
            bad.append(source.problem(["failures", index, "versions"], message))
            continue
        if every_id is not None and not any(map(entry.matches, every_id)):
            message = f"'{entry.instances}' matches no instance; remove the entry or mend the pattern"
            bad.append(source.problem(["failures", index, "instances"], message))
        if applies:
            entries.append(entry)
    if bad:
        raise CaseFileError(bad)
    return entries


def _applies(versions: SpecifierSet, version: str | None) -> bool:
    try:
        return version is None or versions.contains(Version(version), prereleases=True)
    except InvalidVersion:
        # A version that is no number is in no range, and in every one: better a failure listed too much.
        return True


def apply_known(entries: list[Entry], instance_id: str, result: Result) -> Result:
    """Turn a listed failure into `known`, and a listed instance that passed into `fixed`."""
    entry = next((entry for entry in entries if entry.matches(instance_id)), None)
    if entry is None:
        return result
    where = f" ({entry.link})" if entry.link else ""
    if result.outcome in (Outcome.FAILED, Outcome.ERRORED):
        return replace(result, outcome=Outcome.KNOWN, reason=f"{entry.reason}{where}")
    if result.outcome is Outcome.PASSED:
        reason = f"listed as a known failure, and passes: remove the entry '{entry.instances}'{where}"
        return replace(result, outcome=Outcome.FIXED, reason=reason)
    return result
