"""The gate of `pytest --benchmark --benchmark-gate=confirmed`: timed items beside the stored baseline of this machine.

All timed items of a subject are measured together when the first of them asks, in fresh processes, with a canary and a
second copy; what is slower is measured in a second session. So an item fails only by what two sessions agree on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.regress import percent
from harness.report.timing import duration, figures, operation, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.regress_records import Apart
    from harness.verdict import Verdict

PROCESSES = 8


class SlowerError(Exception):
    """A timed case is slower than its baseline; the message is the evidence."""


@dataclass(frozen=True)
class Lines:
    """What is said of one item: why it fails, and what is worth knowing beside."""

    slower: list[str]
    others: list[str]


class Gate:
    """The verdicts on the items of each subject, made when first asked for."""

    def __init__(self, baselines: Path) -> None:
        """Measure nothing yet."""
        self._folder = baselines
        self._found: dict[str, Apart] = {}

    def lines(self, subject: str, instances: Sequence[Instance], wanted: str) -> Lines:
        """Return what to say of one instance; raises NothingRanError where no baseline of this machine is stored."""
        if subject not in self._found:
            self._found[subject] = self._measure(subject, instances)
        found = self._found[subject]
        own = [verdict for verdict in found.verdicts if verdict.evidence.instance == wanted]
        left_out = [f"{name}: {why}, so it was not judged" for name, why in found.left_out if _is_of(name, wanted)]
        slower = [line for verdict in own if verdict.is_regression for line in _evidence(verdict)]
        others = [f"{operation(v.evidence)}: {v.call} {ratio(v.evidence)} {v.detail}".rstrip() for v in own]
        return Lines(slower, others + left_out)

    def _measure(self, subject: str, instances: Sequence[Instance]) -> Apart:
        from harness.compare_baseline import beside_baseline
        from harness.compare_session import measuring
        from harness.fingerprint import fingerprint
        from harness.timing.baselines import read_baseline
        from harness.timing.plan import ArmSpec, Plan
        from harness.timing.samples import Arm, Role

        stored = read_baseline(self._folder, fingerprint(), subject)
        arm = ArmSpec(Arm(subject, Role.BASELINE), subject)
        plan = Plan(tuple(instances), (arm,), processes=PROCESSES)
        return beside_baseline(stored, self._folder, instances, measuring(plan, quiet=True))


def _is_of(name: str, instance: str) -> bool:
    return name.rpartition(" ")[0] == instance


def _evidence(verdict: Verdict) -> list[str]:
    one = verdict.evidence
    base, new = (duration(side.median_ns) if side else "-" for side in (one.base, one.new))
    return [
        f"{one.instance} {operation(one)}: slower than its baseline by {percent(one.interval.effect)}",
        f"  baseline  {base}",
        f"  now       {new}  ({ratio(one)} of the baseline, by the canary)",
        f"  {figures(one)}",
        "  a second session agrees; `limits: {slowdown: ...}` of the case says what counts",
    ]
