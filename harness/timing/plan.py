"""What is to be measured: instances, arms, rounds, and where the arms run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.timing.samples import Arm, Role

if TYPE_CHECKING:
    from harness.case.expand import Instance

ROUNDS = 16
PROCESSES = 8
# A median over many short turns bears a machine that changes its pace between two visits.
TURNS = 17
# The inputs of a set of processes are its own, in whatever session and part of it.
_SALTS_A_PART = 256
_PARTS_A_SESSION = 64


@dataclass(frozen=True)
class ArmSpec:
    """An arm and how its processes are started.

    subject: a name of `assay subjects` or file.py:Class; "" for the canary. python: another interpreter (None: this
    one, with this process's path). paths: folders put in front of its path; one with nothing but a package `impl` in it
    makes an arm of another revision, measured by this harness. environment: variables on top of this process's.
    """

    arm: Arm
    subject: str
    python: str | None = None
    paths: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ArmLimits:
    """What an arm may use: seconds until it has prepared an instance or made a visit, and memory in MiB."""

    seconds: float = 120.0
    memory_mib: int = 4096


@dataclass(frozen=True)
class Plan:
    """A measurement.

    arms: the baseline and the candidates; a control, which is a second copy of the baseline, and a canary come along.
    rounds are spread evenly over `processes` sets of fresh processes, one process an arm. turns: how often a round
    visits every arm, at most; fewer where visits take long. amortized: also, or only,
    time visits that are synchronized once; None: as each case says. batch: instances that share sets of processes;
    timings of a batch are known when its last set is through.
    """

    instances: tuple[Instance, ...]
    arms: tuple[ArmSpec, ...]
    rounds: int = ROUNDS
    processes: int = PROCESSES
    seed: int = 0
    session: int = 0
    part: int = 0
    amortized: bool | None = None
    limits: ArmLimits = field(default_factory=ArmLimits)
    batch: int = 32
    turns: int = TURNS

    def all_arms(self) -> tuple[ArmSpec, ...]:
        """Return the arms with control and canary."""
        baseline = next(spec for spec in self.arms if spec.arm.role is Role.BASELINE)
        control = replace(baseline, arm=Arm(f"{baseline.arm.name} again", Role.CONTROL, baseline.arm.about))
        canary = ArmSpec(Arm("canary", Role.CANARY, "a fixed piece of work"), "")
        others = tuple(spec for spec in self.arms if spec is not baseline)
        return (baseline, control, *others, canary)

    def salt(self, process: int) -> int:
        """Return the number that the inputs of a set of processes are made from."""
        return 1 + process + _SALTS_A_PART * (self.part + _PARTS_A_SESSION * (self.session + 1) + 7 * self.seed)

    def modes(self, instance: Instance) -> tuple[bool, ...]:
        """Return in which ways the operations of an instance are timed: False per call, True amortized."""
        if self.amortized is not None:
            return (self.amortized,)
        return {"per-call": (False,), "amortized": (True,), "both": (False, True)}[instance.case.timing]

    def count(self) -> int:
        """Return the steps of this plan: an instance in one set of processes each."""
        return len(self.instances) * self.processes


def arms_of(subjects: list[str], baseline: str | None = None) -> tuple[ArmSpec, ...]:
    """Return one arm a subject; the baseline is the first unless named."""
    first = baseline or subjects[0]
    names = [first, *(name for name in subjects if name != first)]
    return tuple(
        ArmSpec(Arm(name, Role.BASELINE if name == first else Role.CANDIDATE), name) for name in dict.fromkeys(names)
    )
