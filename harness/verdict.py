"""What a verdict is: the call, the reason, the rule that it is made by, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.stats import Interval, Spread


class Call(StrEnum):
    """What can be said of a candidate beside the baseline."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"


class Reason(StrEnum):
    """Why a verdict is what it is."""

    CLEAR = "clear"
    FEW_ROUNDS = "few-rounds"
    WIDE_INTERVAL = "wide-interval"
    MANY_COMPARED = "many-compared"
    CANARY_DRIFTED = "canary-drifted"
    CANARY_MISSING = "canary-missing"
    BELOW_OVERHEAD = "below-overhead"
    CONTROL_ARM_MOVED = "control-arm-moved"
    CONTROL_ARM_MISSING = "control-arm-missing"
    WRONG_ANSWER = "wrong-answer"
    WRONG_BASELINE = "wrong-baseline"
    ERRORED = "errored"
    IMPOSSIBLE = "impossible"
    UNCONFIRMED = "unconfirmed"

    @property
    def may_pass(self) -> bool:
        """Whether more rounds may change it."""
        return self not in _FINAL


_FINAL = (
    Reason.WRONG_ANSWER,
    Reason.WRONG_BASELINE,
    Reason.ERRORED,
    Reason.BELOW_OVERHEAD,
    Reason.IMPOSSIBLE,
    Reason.CONTROL_ARM_MISSING,
    Reason.CANARY_MISSING,
)


@dataclass(frozen=True)
class Rule:
    """How verdicts are made.

    min_effect: the least change that counts, as a share (0.03: 3 %), however quiet the machine. spent: the error
    allowed at each look; together 1 %. least_rounds is also what a look adds.
    """

    min_effect: float = 0.03
    least_rounds: int = 16
    least_sets: int = 4
    spent: tuple[float, ...] = (0.007, 0.0015, 0.0015)

    @property
    def error(self) -> float:
        """The share of false alarms allowed where nothing changed."""
        return sum(self.spent)

    @property
    def most_rounds(self) -> int:
        """Rounds after the last look."""
        return self.least_rounds * len(self.spent)


DEFAULT_RULE = Rule()


@dataclass(frozen=True)
class Evidence:
    """What one timing says of one candidate; effects are logarithms of ratios.

    p is corrected for the looks. least: the change that counts however quiet the machine, floor: on this one. barred:
    why nothing may be concluded, whatever the figures.
    """

    instance: str
    operation: str
    amortized: bool
    case_digest: str
    baseline: str
    candidate: str
    rounds: int
    sets: int
    look: int
    base: Spread | None
    new: Spread | None
    interval: Interval
    control: Interval | None
    least: float
    floor: float
    p: float
    trace: str = ""
    barred: Reason | None = None
    detail: str = ""
    interleaved: bool = True

    @property
    def key(self) -> tuple[str, str, bool]:
        """What was timed."""
        return self.instance, self.operation, self.amortized


@dataclass(frozen=True)
class Verdict:
    """A verdict with its evidence. confirmed: what a second session said; None where there was none."""

    call: Call
    reason: Reason
    evidence: Evidence
    detail: str = ""
    confirmed: bool | None = None
    p_adjusted: float = 1.0

    @property
    def is_regression(self) -> bool:
        """Whether this counts: two independent sessions called it slower."""
        return self.call is Call.SLOWER and self.confirmed is True

    @property
    def may_pass(self) -> bool:
        """Whether more rounds may settle it."""
        return self.call is Call.AMBIGUOUS and self.reason.may_pass
