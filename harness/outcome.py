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
class KernelPlace:
    """A place in a kernel's text: `file` is `source` (the body) or `header`; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        """Read like a compiler's message."""
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class KernelFault:
    """What a check found in a kernel, once for each place (of a race: pair of places), the later access first."""

    kernel: str
    fault: str
    message: str
    places: tuple[KernelPlace, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class KernelChecks:
    """What the checks of Metal kernels saw: how many kernels and launches, in which orders, what could not be made."""

    kernels: tuple[str, ...] = ()
    launches: int = 0
    orders: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    faults: tuple[KernelFault, ...] = ()


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
    checks: KernelChecks | None = None


@dataclass(frozen=True)
class Observed(Result):
    """A result with what was observed, as a file of a recording; empty where there is nothing to keep."""

    file: bytes = b""
