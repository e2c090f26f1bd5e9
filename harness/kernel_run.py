"""Checking one kernel of a file: a case, a description, or Metal text beside one, in worker processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from harness.checking import CHECK_NAME
from harness.errors import CaseFileError, UsageError
from harness.outcome import KernelFault, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.case.expand import Instance
    from harness.case.problem import Problem
    from harness.case.source import Source
    from harness.outcome import Finding, KernelChecks, Result

SUBJECT = "reference"
WRONG_ANSWER = "wrong answer"
MEMORY_LIMIT = "memory limit"
DOES_NOT_RUN = "does not run"


@dataclass(frozen=True)
class Origin:
    """Where a kernel's text stands: its first line, and the columns that stand before each line of it."""

    path: Path
    line: int = 1
    indent: int = 0


@dataclass(frozen=True)
class Seen:
    """A fault in all instances that have it. differs: for a wrong answer, what was expected and seen."""

    fault: KernelFault
    instances: tuple[str, ...]
    differs: Finding | None = None


def described(path: Path) -> Path:
    """Return the file to load; for Metal text, the case or description beside it. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"{path}: {'is a folder; name one file' if path.is_dir() else 'no such file'}")
    if path.suffix != ".metal":
        return path
    for suffix in (".yaml", ".yml"):
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    beside = path.with_suffix(".yaml")
    raise UsageError(
        f"{path}: has no inputs and no launch; describe them in {beside.name} beside it, with `file: {path.name}` "
        f"(`assay new {beside} --kernel` writes one to start from)"
    )


def load_files(paths: Sequence[Path], patterns: Sequence[str]) -> list[Instance]:
    """Load the instances of all files that `patterns` select; raises CaseFileError, UsageError, NothingRanError."""
    from harness.select import select

    found: list[Instance] = []
    problems: list[Problem] = []
    for path in dict.fromkeys(described(path) for path in paths):
        try:
            found += load(path)
        except CaseFileError as error:
            problems += error.problems
    if problems:
        raise CaseFileError(problems)
    files: dict[str, str] = {}
    for instance in found:
        other = files.setdefault(instance.case_name, instance.path)
        if other != instance.path:
            raise UsageError(f"{instance.path}: has the name '{instance.case_name}', as {other} has; check it alone")
    return select(found, patterns)


def load(path: Path) -> list[Instance]:
    """Load the instances of a case of kind `kernel`, or of a description; raises CaseFileError and UsageError."""
    from harness.case.load import load_described, load_file
    from harness.case.source import is_case_file
    from harness.kinds.kernel.description import DESCRIPTION
    from harness.kinds.kernel.files import refuse_code

    if not is_case_file(path):
        return load_described(path, DESCRIPTION)
    instances = load_file(path)
    if instances[0].kind != "kernel":
        raise UsageError(f"{path}: is a case of kind {instances[0].kind}; `assay run {path}` runs it")
    refuse_code(instances)
    return instances


def compiled(instances: Sequence[Instance], target: str, folder: Path, jobs: int) -> tuple[int, KernelChecks]:
    """Compile the kernels of `instances` for another device into `folder`.

    Returns how many kernels there are, and what does not compile or is not covered there. Raises UsageError.
    """
    from harness.kinds.kernel.launches import distinct_launches
    from harness.subjects.reference.kernel_ahead import compile_ahead

    launches = distinct_launches(instances)
    return len(launches), compile_ahead(launches, target, folder, jobs)


def origins(path: Path) -> dict[str, Origin]:
    """Return where `source` and `header` of a file stand, as far as lines of theirs are lines of a file."""
    from harness.case.source import read_source

    source = read_source(path)
    given = source.value.get("given")
    found = {}
    for name, key in (("source", "file"), ("header", "header_file")):
        if isinstance(given, dict) and isinstance(given.get(key), str):
            found[name] = Origin(path.parent / given[key])
        elif (place := _block(source, name)) is not None:
            found[name] = Origin(path, *place)
    return found


def _block(source: Source, name: str) -> tuple[int, int] | None:
    """Return the line and the indentation of a text under `given` that is written as a block, `source: |`."""
    node: yaml.Node | None = source.root
    for key in ("given", name):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for word, value in pairs if word.value == key), None)
    if not isinstance(node, yaml.ScalarNode) or node.style != "|":
        return None
    first = next((line for line in node.value.splitlines() if line.strip()), "")
    lines = Path(source.path).read_text(encoding="utf-8").splitlines()[node.start_mark.line + 1 :]
    written = next((line for line in lines if line.strip()), "")
    return node.start_mark.line + 2, len(written) - len(first)


def faults(results: Mapping[str, Result]) -> list[Seen]:
    """Return the faults of all instances, each once, in the order in which they were met."""
    seen: dict[object, Seen] = {}
    for instance_id, result in results.items():
        for fault, differs in _of(result):
            key = (fault.kernel, fault.fault, tuple((p.file, p.line) for p in fault.places), differs and differs.check)
            before = seen.get(key)
            if before is None:
                seen[key] = Seen(fault, (instance_id,), differs)
            else:
                together = replace(before.fault, count=before.fault.count + fault.count)
                seen[key] = replace(before, fault=together, instances=(*before.instances, instance_id))
    return list(seen.values())


def _of(result: Result) -> Iterable[tuple[KernelFault, Finding | None]]:
    known = result.checks.faults if result.checks is not None else ()
    yield from ((fault, None) for fault in known)
    for finding in result.findings:
        if finding.check != CHECK_NAME:
            yield KernelFault("", WRONG_ANSWER, f"{finding.where}, in the check {finding.check}"), finding
    if result.outcome is Outcome.ERRORED:
        yield KernelFault("", _ending(result.reason), result.reason), None


def _ending(reason: str) -> str:
    """Name how the checks of an instance ended: words of `harness.pool` and `harness.execute`."""
    if reason.startswith("the worker"):
        return "crashed"
    if "(the time limit)" in reason:
        return "time limit"
    return MEMORY_LIMIT if "of memory" in reason else DOES_NOT_RUN
