"""What came of one instance: the outcome, why, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How an instance ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNSUPPORTED = "unsupported"
    KNOWN = "known"
    FIXED = "fixed"

    @property
    def is_bad(self) -> bool:
        """Whether this outcome makes `assay run` exit with 1."""
        return self in (Outcome.FAILED, Outcome.ERRORED, Outcome.FIXED)


@dataclass(frozen=True)
class Finding:
    """One difference between what a subject showed and the baseline: what was checked, where, and both sides."""

    check: str
    where: str
    expected: str
    actual: str
    note: str = ""


@dataclass(frozen=True)
class Rounds:
    """Timed rounds of one operation: `calls` calls a round, and how long each round took."""

    operation: str
    calls: int
    round_ns: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """The outcome of one instance on one subject."""

    outcome: Outcome
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    comparisons: int = 0
    seconds: float = 0.0
    rounds: tuple[Rounds, ...] = ()
    output: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed(Result):
    """A result with what was observed, as a file of a recording; empty where there is nothing to keep."""

    file: bytes = b""
