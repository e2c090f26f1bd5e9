"""Whether a time can be true: nothing moves more bytes, or computes more, than the machine was measured to.

A case declares what a call must move and compute at least. What does better has answered from memory, left work out, or
belongs to a case that declares too much.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.timing.machine import Machine
    from harness.timing.samples import Timing

# A bound was measured once, perhaps while something else ran.
MARGIN = 1.5


def impossible(machine: Machine, timing: Timing) -> str:
    """Return why the times of an arm can't be true, naming the arm; "" where all can."""
    return next((f"{arm}: {why}" for arm, why in impossible_arms(machine, timing).items()), "")


class Bounds:
    """Says of timings whether they can be true; measures the machine again before it says no for the first time.

    The bounds may be from a busy hour: the better ones of both times count.
    """

    def __init__(self, machine: Machine, measured_again: Callable[[], Machine]) -> None:
        """Begin with what is known of the machine."""
        self.machine = machine
        self._measured_again: Callable[[], Machine] | None = measured_again

    def __call__(self, timing: Timing) -> str:
        """Return why the times of an arm can't be true; "" where all can."""
        why = impossible(self.machine, timing)
        if why and self._measured_again is not None:
            from harness.timing.machine import best_of

            self.machine, self._measured_again = best_of(self.machine, self._measured_again()), None
            why = impossible(self.machine, timing)
        return why


def impossible_arms(machine: Machine, timing: Timing) -> dict[str, str]:
    """Return the arms whose times can't be true, with the reason."""
    found = {}
    for arm in timing.arms:
        times = [visit.call_ns for visit in timing.visits if visit.arm == arm.name]
        if times and arm.role != "canary" and (why := _why(machine, timing, median(times))):
            found[arm.name] = why
    return found


def _why(machine: Machine, timing: Timing, call_ns: float) -> str:
    for amount, most, unit, cause in (
        (timing.moved_bytes, _bytes_s(machine, timing), "GB/s", "cached, elided or mis-declared bytes"),
        (timing.operations, machine.most_operations_s, "G operations/s", "cached, elided or mis-declared operations"),
    ):
        if amount and most and amount / call_ns * 1e9 > MARGIN * most:
            percent = 100 * amount / call_ns * 1e9 / most
            return f"{amount / call_ns:.3g} {unit} are {percent:.0f} % of what was measured at most: {cause}"
    return ""


def _bytes_s(machine: Machine, timing: Timing) -> float:
    return machine.most_moved_s(timing.moved_bytes) if timing.moved_bytes else 0.0
