"""How Metal kernels are checked while they run: settings that processes inherit."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Self

from harness.outcome import Finding, KernelChecks, KernelFault, Outcome, Result

# Set by `--checks` and `--metal-checks`, and inherited by workers.
KERNEL_CHECKS_VARIABLE = "METAL_ASSAY_KERNEL_CHECKS"
# The check of an instance, or of a test, in findings, reports and records.
CHECK_NAME = "kernel-checks"


@dataclass(frozen=True)
class CheckSettings:
    """seeds: of random lane orders, beside forward and reverse. time_limit_s: for all orders of a launch."""

    seeds: tuple[int, ...] = (1, 2)
    time_limit_s: float = 20.0

    def pass_on(self) -> None:
        """Ask for checks in this process and in those that it starts."""
        os.environ[KERNEL_CHECKS_VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def asked_for(cls) -> Self | None:
        """Return the settings that were passed on, None where nobody asked for checks."""
        text = os.environ.get(KERNEL_CHECKS_VARIABLE)
        if not text:
            return None
        value = json.loads(text)
        return cls(tuple(value["seeds"]), float(value["time_limit_s"]))


def with_checks(result: Result, checks: KernelChecks) -> Result:
    """Return the result of an instance with the faults of the kernels that it launched; one is enough to fail it."""
    if not checks.kernels:
        return result
    result = replace(result, checks=checks)
    if not checks.faults:
        return result
    found = tuple(as_finding(fault) for fault in checks.faults)
    first = (*result.findings, *found)[0]
    # What went wrong otherwise is often only what came of it.
    more = f"; and {result.reason}" if result.outcome is Outcome.ERRORED else ""
    reason = f"{first.check}: {first.where}{more}"
    return replace(result, outcome=Outcome.FAILED, reason=reason, findings=(*result.findings, *found))


def as_finding(fault: KernelFault) -> Finding:
    """Return a fault in the words of an instance's findings."""
    lines = [f"{place}: {place.text.strip()}" for place in fault.places]
    often = [f"{fault.count} times"] if fault.count > 1 else []
    place = f", {fault.places[0]}" if fault.places else ""
    note = "; ".join([*lines, *often])
    return Finding(CHECK_NAME, f"{fault.kernel}{place}", "no fault", f"{fault.fault}: {fault.message}", note)
