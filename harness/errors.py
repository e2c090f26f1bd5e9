"""Errors that reach a user: each prints as one message and carries the exit code of `assay`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.case.problem import Problem


class AssayError(Exception):
    """Base of every error that is shown to the user without a traceback."""

    exit_code = 2


class UsageError(AssayError):
    """The command line, or a call from Python, asks for something that does not exist."""


class CaseFileError(AssayError):
    """One or more case files say something that can't be run."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep `problems` sorted by place, each only once."""
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SubjectMissingError(AssayError):
    """A subject was named whose package, file or class can't be loaded."""


class RecordError(AssayError):
    """A record file is not one of ours, is damaged, or belongs to another run."""


class AnswerError(AssayError):
    """What a case says must come out can't be computed."""


class RecordingError(AssayError):
    """A recording is damaged, incomplete, of another version, or not one of ours."""


class NothingRanError(AssayError):
    """The selection is empty, or nothing could be measured."""

    exit_code = 4
