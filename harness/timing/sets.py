"""Sets of fresh processes, one an arm: started together, kept to cores, started again where one died."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from harness.timing.process import ArmError, ArmProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.case.expand import Instance
    from harness.timing.plan import ArmSpec, Plan


def usable_cores() -> list[int]:
    """Return the cores that this process may use, in order; none where the system can't say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class ProcessSet:
    """One process an arm, for all instances of a batch; `number` counts the sets of a session's part."""

    def __init__(self, plan: Plan, number: int, instances: list[Instance]) -> None:
        """Note what to start; a `with` block starts and ends it. Raises SubjectMissingError, ArmError there."""
        self.plan, self.number = plan, number
        self._cases: dict[str, list[str]] = {}
        for instance in instances:
            self._cases.setdefault(instance.path, []).append(instance.id)
        self.processes: dict[str, ArmProcess] = {}
        self.hellos: dict[str, dict[str, Any]] = {}
        # Which each arm is kept to; those that were not asked have all.
        self.cores: dict[str, list[int]] = {}

    def __enter__(self) -> Self:
        """Start every arm, and wait until all have loaded the cases."""
        specs = self.plan.all_arms()
        try:
            for spec in specs:
                self.processes[spec.arm.name] = ArmProcess(spec, self.plan.limits)
            for spec in specs:
                self._welcome(spec)
            for spec in specs:
                self._loaded(spec)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every arm."""
        for process in self.processes.values():
            process.stop()

    def revive(self) -> None:
        """Start the arms again that died on an earlier instance."""
        for name, process in list(self.processes.items()):
            if process.dead:
                process.stop()
                self.cores.pop(name, None)
                self.processes[name] = ArmProcess(process.spec, self.plan.limits)
                self._welcome(process.spec)
                self._loaded(process.spec)

    def keep_to(self, names: Iterable[str], cores: list[int]) -> None:
        """Keep arms to some cores; who dies of it is found dead by the next request."""
        for name in names:
            if self.cores.get(name, usable_cores()) != cores:
                self.processes[name].request("timing", "keep_to", cores=cores)
                with suppress(ArmError):
                    self.processes[name].answer()
                self.cores[name] = cores

    def _welcome(self, spec: ArmSpec) -> None:
        """Wait until the subject is there, and have it load the cases while others are still starting."""
        process = self.processes[spec.arm.name]
        self.hellos[spec.arm.name] = process.hello()
        if spec.subject:
            process.request("loading the cases", "load", cases=list(self._cases.items()))

    def _loaded(self, spec: ArmSpec) -> None:
        if spec.subject:
            answer = self.processes[spec.arm.name].answer()
            if "errored" in answer:
                raise ArmError(answer["errored"])
