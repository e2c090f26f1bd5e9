"""Files beside a case: Metal text, and Python functions that compute what must come out.

Their text is put into the case while it is loaded, so that the digest of an instance covers it and a worker needs no
file. Python of somebody else's case runs only with `--allow-code`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from harness.errors import CaseFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harness.case.expand import Instance
    from harness.case.problem import Problem
    from harness.case.source import Location, Source
    from harness.kinds.kernel.schema import Function

# Workers inherit it; the command line sets it.
ALLOW_CODE_VARIABLE = "METAL_ASSAY_ALLOW_CODE"
MAX_BYTES = 1 << 18
_TEXTS = {"file": "source", "header_file": "header"}


def include(source: Source, own: bool) -> Source:
    """Return the case with the text of the files that it names; `own` says whether it comes with the package.

    Raises CaseFileError for a file that is missing, too large, not UTF-8, or not beside the case.
    """
    problems: list[Problem] = []
    given = source.value.get("given")
    value = dict(source.value)
    if isinstance(given, dict):
        given = dict(given)
        for key, target in _TEXTS.items():
            if isinstance(given.get(key), str):
                at = ("given", key)
                if target in given:
                    problems.append(source.problem(at, f"there is `{target}` already; write one of the two"))
                given[target] = _read(source, at, given[key], problems)
        value["given"] = given
    # Wherever it stands, also in the matrix: nothing but this may make a function.
    value = {key: _functions(item, source, (key,), own, problems) for key, item in value.items()}
    if problems:
        raise CaseFileError(problems)
    return replace(source, value=value)


def _functions(value: Any, source: Source, at: Location, own: bool, problems: list[Problem]) -> Any:
    if isinstance(value, list):
        return [_functions(item, source, (*at, index), own, problems) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {
        key: _function(item, source, (*at, key), own, problems)
        if key == "function"
        else _functions(item, source, (*at, key), own, problems)
        for key, item in value.items()
    }


def _function(value: Any, source: Source, at: Location, own: bool, problems: list[Problem]) -> Any:
    file, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not file.endswith(".py") or not name.isidentifier():
        problems.append(source.problem(at, "must be `file.py:function`, with the file beside the case"))
        return None
    text = _read(source, at, file, problems)
    return {"file": str(Path(source.path).parent / file), "name": name, "text": text, "own": own}


def _read(source: Source, at: Location, name: str, problems: list[Problem]) -> str:
    written = PurePosixPath(name)
    path = Path(source.path).parent / written
    message = ""
    text = ""
    if written.is_absolute() or ".." in written.parts:
        message = f"'{name}' must lie beside the case, or below its folder"
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            message = f"'{name}' can't be read: {error.strerror}"
        except UnicodeDecodeError:
            message = f"'{name}' is not UTF-8"
        if len(text) > MAX_BYTES:
            message = f"'{name}' is larger than {MAX_BYTES >> 10} KiB"
        elif not message and not text.strip():
            message = f"'{name}' is empty"
    if message:
        problems.append(source.problem(at, message))
    return text


def allow_code() -> None:
    """Let this process and its workers run the Python functions of any case."""
    os.environ[ALLOW_CODE_VARIABLE] = "1"


def refuse_code(instances: Iterable[Instance]) -> None:
    """Raise UsageError if one of the instances needs Python of its own and nobody allowed that."""
    for instance in instances:
        for function in functions_of(instance.case):
            if not _allowed(function):
                raise UsageError(
                    f"{instance.path}: runs Python, the function {function.name} of {function.file}; "
                    "add --allow-code if you trust it"
                )


def functions_of(case: Any) -> Iterator[Function]:
    """Yield the functions that a case of any kind needs."""
    for output in getattr(getattr(case, "given", None), "outputs", {}).values() if case.kind == "kernel" else ():
        if output.function is not None:
            yield output.function


def call_function(function: Function, arguments: dict[str, Any]) -> Any:
    """Run a case's Python function with the inputs by name.

    Raises UsageError where that is not allowed, or the file has no such function, and what its code raises.
    """
    if not _allowed(function):
        raise UsageError(f"the function {function.name} of {function.file} may not run without --allow-code")
    names: dict[str, Any] = {"__name__": "assay_case_functions"}
    exec(compile(function.text, function.file, "exec"), names)  # noqa: S102 - what --allow-code is for
    found: Callable[..., Any] | None = names.get(function.name)
    if not callable(found):
        raise UsageError(f"{function.file} has no function {function.name}")
    return found(**arguments)


def _allowed(function: Function) -> bool:
    return function.own or os.environ.get(ALLOW_CODE_VARIABLE) == "1"
