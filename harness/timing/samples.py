"""Raw samples of a timing: who was visited when, for how many calls, and how long that took.

A verdict is made of these alone, so that it can be made again from a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What an arm is there for.

    The control is a second copy of the baseline: what the two differ by is noise. The canary is a fixed piece of work:
    when its time changes, the machine did.
    """

    BASELINE = "baseline"
    CONTROL = "control"
    CANDIDATE = "candidate"
    CANARY = "canary"


@dataclass(frozen=True)
class Arm:
    """One thing that is timed beside others: a subject, a variant of a kernel, a revision."""

    name: str
    role: Role
    about: str = ""


@dataclass(frozen=True)
class Visit:
    """`calls` calls of one arm, one after the other, on the clock.

    process counts the sets of fresh processes (one process an arm in each set); round counts over all of them, turn
    within a round; position is the arm's place in the shuffled order of its turn.
    """

    arm: str
    process: int
    round: int
    position: int
    calls: int
    took_ns: int
    turn: int = 0

    @property
    def call_ns(self) -> float:
        """Mean time of one call."""
        return self.took_ns / self.calls


@dataclass(frozen=True)
class Timing:
    """All samples of one operation of one instance.

    amortized: False where each call was synchronized before the next, True where a visit was synchronized once.
    overhead_ns: what reading the clock around an empty evaluation costs here; reported, never subtracted.
    moved_bytes and operations: of one call, as the case declares; None where it does not.
    wrong: names of arms whose outputs were wrong, with the reason; their visits are not kept. failed: those that could
    not be timed to the end: no answer in time, too much memory, an error; neither are theirs.
    """

    instance: str
    case_digest: str
    operation: str
    amortized: bool
    arms: tuple[Arm, ...]
    visits: tuple[Visit, ...]
    overhead_ns: int
    seed: int
    moved_bytes: int | None = None
    operations: int | None = None
    wrong: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def of(self, role: Role) -> tuple[Arm, ...]:
        """Return the arms of a role."""
        return tuple(arm for arm in self.arms if arm.role == role)
