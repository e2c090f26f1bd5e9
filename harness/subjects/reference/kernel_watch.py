"""The backend that checks launches, with patience: a kernel that only takes long under checks has no fault."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from impl.metal import CpuBackend, LaunchError
from impl.metal.checks.finding import Checked, Fault
from impl.metal.toolchain import cores

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

    from harness.checking import CheckSettings
    from impl.metal.backend import Call, Runner
    from impl.metal.native import Report
    from impl.metal.signature import Text

# Of a launch that was cut short they say nothing.
_OF_WHOLE_LAUNCHES = (Fault.TIME_LIMIT, Fault.UNWRITTEN_OUTPUT, Fault.ORDER_DEPENDENT)
# Checks, on one core, made kernels 1 to 40 times as slow. What is faster without them by more than this, on one core,
# had its endless loop removed by the optimizer, which may assume that every loop ends.
_MOST_SLOWED = 200


@dataclass(frozen=True)
class WatchingBackend:
    """Checks every launch and tells `found`; outputs are those of a whole launch wherever there is one."""

    found: Callable[[Checked], object]
    settings: CheckSettings

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "cpu with checks"

    def runner(self, text: Text) -> WatchingRunner:
        """Return what runs `text`; nothing is compiled before the first call."""
        return WatchingRunner(self, text)


class WatchingRunner:
    """One kernel's text: checked, and plain where the checks do not end in time."""

    def __init__(self, backend: WatchingBackend, text: Text) -> None:
        """Compile nothing yet."""
        from impl.metal.checks import CheckingBackend

        self._backend = backend
        self._text = text
        self._said = threading.local()
        settings = backend.settings
        checking = CheckingBackend(self._hear, seeds=settings.seeds, time_limit_s=settings.time_limit_s)
        self._checking: Runner = checking.runner(text)
        self._limit_s = settings.time_limit_s
        # All cores, and time for what shares them with others: an endless kernel is rare, a large one is not.
        self._plain: Runner = CpuBackend(time_limit_s=2 * self._limit_s).runner(text)
        self._slow_with: object = None

    def compile(self, call: Call) -> None:
        """Compile for calls like this one, and run nothing. Raises as `run` does."""
        self._checking.compile(call)

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        """Return the outputs of the forward order; `found` is told before. Raises as the backends do."""
        if self._slow_with == _size(call):
            # One such launch of a test or an instance cost it the time of the checks; a second one won't.
            outputs, report = self._plain.run(call)
            checked = Checked(self._text.name, (), (), (self._why_not(),))
        else:
            self._said.checked = None
            outputs, report = self._checking.run(call)
            checked = self._said.checked
            if any(one.fault is Fault.TIME_LIMIT for one in checked.findings):
                whole = self._without_checks(call)
                checked = _endless(checked) if whole is None else self._slow(checked, call)
                outputs, report = whole or (outputs, report)
        self._backend.found(checked)
        return outputs, report

    def _without_checks(self, call: Call) -> tuple[list[mx.array], Report] | None:
        """Run plainly what did not end in time; None: that does not end either."""
        self._plain.compile(call)
        try:
            took_s, outputs, report = _timed(self._plain, call)
            enough_s = self._limit_s / _MOST_SLOWED / cores()
            if took_s < 10 * enough_s:
                # A busy machine makes a short launch long.
                took_s = min(took_s, *(_timed(self._plain, call)[0] for _ in range(2)))
        except LaunchError:
            return None
        return (outputs, report) if took_s > enough_s else None

    def _slow(self, checked: Checked, call: Call) -> Checked:
        self._slow_with = _size(call)
        findings = tuple(one for one in checked.findings if one.fault not in _OF_WHOLE_LAUNCHES)
        # The last order was cut short.
        skipped = (*checked.skipped, self._why_not())
        return replace(checked, findings=findings, orders=checked.orders[:-1], skipped=skipped)

    def _why_not(self) -> str:
        return (
            f"{self._text.name} as a whole: with checks it takes longer than {self._limit_s:g} s; give a higher limit"
        )

    def _hear(self, checked: Checked) -> None:
        self._said.checked = checked


def _endless(checked: Checked) -> Checked:
    others = set(_OF_WHOLE_LAUNCHES) - {Fault.TIME_LIMIT}
    return replace(checked, findings=tuple(one for one in checked.findings if one.fault not in others))


def _size(call: Call) -> object:
    return call.grid, call.threadgroup, tuple(x.shape for x in call.inputs), call.template


def _timed(plain: Runner, call: Call) -> tuple[float, list[mx.array], Report]:
    began = time.perf_counter()
    outputs, report = plain.run(call)
    return time.perf_counter() - began, outputs, report
