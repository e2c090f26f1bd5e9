"""Visits: some calls of one operation on the clock, whose outputs are evaluated there and compared afterwards.

A call is charged for all that it returns, so work that is only promised is done on the clock. Each visit is
primed by one call; of some visits a few calls, chosen at random, are kept with the clock stopped, and before those
memory is poisoned. The overhead of clock and empty evaluation is reported, never subtracted.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.kinds.base import Notes, StopInstance
from harness.outcome import Rounds
from harness.subjects.outputs import OutputError, force, poison, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kinds.base import Timed

# A visit lasts at least this many overheads, and at least so long that the clock of a busy machine tells.
OVERHEAD_FACTOR = 20
LEAST_VISIT_NS = 1_000_000
MOST_CALLS = 10_000
WARM_UP_CALLS = 3
# A call this long needs no other before it: what a pause costs it is nothing beside it.
LONG_CALL_NS = 8_000_000
ROUNDS = 16
KEPT_A_VISIT = 2
# Compared after the last visit; beyond so many bytes no more are kept.
MOST_KEPT_BYTES = 128 << 20
# Of what is kept so many are compared in any case; more as long as that does not take too long.
FEWEST_COMPARED = 2
COMPARING_SECONDS = 1.0
# New inputs are compared with the shortest of so many later calls; of long calls, one input with one.
RECALLS = 3
# A queue holds the outputs of all its calls at once.
MOST_QUEUED_BYTES = 256 << 20


class WrongError(Exception):
    """What was timed is worth nothing: the reason, as it is reported."""


@cache
def overhead_ns() -> int:
    """Return the median cost of reading the clock around an evaluation of nothing."""
    core = sys.modules.get("mlx.core")
    nothing = None if core is None else core.zeros((1,))
    costs = []
    for _ in range(101):
        start = time.perf_counter_ns()
        if core is not None:
            core.eval(nothing)
            core.synchronize()
        costs.append(time.perf_counter_ns() - start)
    return sorted(costs)[len(costs) // 2]


def least_visit_ns() -> int:
    """Return how long a visit lasts at least."""
    return max(OVERHEAD_FACTOR * overhead_ns(), LEAST_VISIT_NS)


@dataclass(frozen=True)
class _Kept:
    number: int
    output: Any


class Operation:
    """One operation of one subject: warmed up, visited, and in the end compared.

    `prepare` makes it ready, and again where it can't be called for ever. `amortized`: the calls of a visit are queued
    and evaluated together, those that build on each other by the last of them.
    """

    def __init__(self, prepare: Callable[[], Timed], *, amortized: bool = False) -> None:
        """Prepare it and make the first calls."""
        self._prepare, self.amortized = prepare, amortized
        # Nobody can know which outputs are looked at.
        self._chance = random.SystemRandom()
        self.compared = 0
        self._kept: list[_Kept] = []
        self._call_ns = 0.0
        # Cores that the last calls kept busy: their processor time over their time.
        self.cores = 0.0
        self._renew()
        self._sample = self._warm_up()
        self._sample_bytes = max(1, _bytes(self._sample))

    def calibrate(self) -> tuple[int, float]:
        """Return the calls that make a visit long enough, and the time of a call [ns]."""
        goal, calls = least_visit_ns(), 1
        if self._call_ns >= max(LONG_CALL_NS, goal):
            # A visit shows whether that was so: the driver makes one that is too short again.
            return 1, self._call_ns
        # Of two: one that was disturbed would make all visits too short.
        took = min(self.visit(1, keep=False), self.visit(1, keep=False))
        while took < goal and calls < self.most_calls:
            wanted = int(calls * min(10.0, 1.2 * goal / max(took, 1)))
            calls = min(self.most_calls, max(calls + 1, wanted))
            took = min(self.visit(calls, keep=False), self.visit(calls, keep=False))
        return calls, took / calls

    @property
    def most_calls(self) -> int:
        """How many calls a visit may have at most."""
        most = MOST_CALLS if self.timed.most_calls is None else self.timed.most_calls - 1
        if self.amortized and not self.timed.stateful:
            most = min(most, MOST_QUEUED_BYTES // self._sample_bytes)
        return max(1, most)

    def visit(self, calls: int, *, keep: bool = True) -> int:
        """Make `calls` calls on the clock and return how long they took [ns]; with `keep` some are kept."""
        if self.timed.most_calls is not None and self._number + 1 + calls > self.timed.most_calls:
            # Arms are asked for the same calls in the same turns, so their states stay alike.
            self.compare()
            self._renew()
        if keep:
            # Only what is looked at can show that it was not written.
            poison(self._sample)
        if self._call_ns < LONG_CALL_NS:
            self._call(self._next())
        room = keep and len(self._kept) * self._sample_bytes < MOST_KEPT_BYTES
        chosen = set(self._chance.sample(range(calls), min(KEPT_A_VISIT, calls))) if room else set()
        first = self._number
        self._number += calls
        gc.collect(0)
        gc.disable()
        busy = time.process_time_ns()
        try:
            took, kept = (self._queued if self.amortized else self._one_by_one)(first, calls, chosen)
        finally:
            gc.enable()
        self._call_ns = took / calls
        self.cores = (time.process_time_ns() - busy) / took
        self._kept += kept
        return took

    def compare(self) -> None:
        """Compare what was kept with the baseline; raises WrongError for the first call that was wrong."""
        kept, self._kept = self._kept, []
        begun = time.monotonic()
        for number, one in enumerate(kept):
            if number > FEWEST_COMPARED and self._chance.random() > COMPARING_SECONDS / (time.monotonic() - begun):
                # Large answers take long to compute by the baseline; which are left out nobody knows either.
                continue
            notes = Notes()
            try:
                self.timed.check(one.number, one.output, notes)
            except StopInstance:
                pass
            except WrongError:
                raise
            except Exception as error:
                # An answer of no sense is a wrong answer.
                raise WrongError(f"call {one.number} could not be compared: {type(error).__name__}: {error}") from error
            if notes.findings:
                found = notes.findings[0]
                raise WrongError(
                    f"a timed call was wrong (number {one.number}): {found.check}: {found.where}: "
                    f"expected {found.expected}, got {found.actual}"
                )
            self.compared += 1

    @property
    def recallable(self) -> bool:
        """Whether the same inputs can be given once more."""
        return not self.timed.stateful and not self.amortized

    def renew(self) -> None:
        """Compare what was kept, and make the inputs of `remembers` new ones."""
        if self.recallable:
            self.compare()
            self._renew()

    def remembers(self) -> float:
        """Return how many times longer new inputs take than the same once more; 1 where calls build on each other.

        An operation that was just renewed has not seen its later inputs yet: those are new. The least ratio of any of
        them counts, since a new input can be disturbed only once; the others are called in between, so that what was
        just read lies in no nearer cache.
        """
        if not self.recallable:
            return 1.0
        turns, recalls, known = self.timed.turns, RECALLS, self.timed.turns // 2
        if self._call_ns >= LONG_CALL_NS:
            # What such a call reads lies in no near cache, whatever is called in between.
            turns, recalls, known = 1, 1, 0
        fresh = self._pass(known, turns)
        again = [min(times) for times in zip(*(self._pass(known, turns) for _ in range(recalls)), strict=True)]
        return min((new / max(old, 1) for new, old in zip(fresh, again, strict=True)), default=1.0)

    def _pass(self, known: int, turns: int) -> list[int]:
        """Call so many turns once, and return the times of those that are not known."""
        for number in range(known):
            self._call(number)
        self._number = self.timed.turns
        return [self._one_by_one(number, 1, set())[0] for number in range(known, turns)]

    def _renew(self) -> None:
        self.timed = self._prepare()
        self._number = 0
        self._kept.clear()

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def _call(self, number: int) -> object:
        output = self.timed.call(number)
        self._force(output)
        return output

    def _warm_up(self) -> Any:
        begun = time.perf_counter_ns()
        for _ in range(WARM_UP_CALLS - 1):
            self._call(self._next())
            if time.perf_counter_ns() - begun > LONG_CALL_NS:
                break
        begun, busy = time.perf_counter_ns(), time.process_time_ns()
        output = self._call(self._next())
        self._call_ns = time.perf_counter_ns() - begun
        self.cores = (time.process_time_ns() - busy) / self._call_ns
        return take(output)

    @staticmethod
    def _force(output: object) -> None:
        try:
            force(output)
        except OutputError as error:
            raise WrongError(str(error)) from None

    def _one_by_one(self, first: int, calls: int, keep: set[int]) -> tuple[int, list[_Kept]]:
        call, clock = self.timed.call, time.perf_counter_ns
        kept: list[_Kept] = []
        took = 0
        try:
            start = clock()
            for turn in range(calls):
                output = call(first + turn)
                force(output)
                if turn in keep:
                    # Taken at once: what is written later, behind the clock's back, is not the answer.
                    took += clock() - start
                    kept.append(_Kept(first + turn, take(output)))
                    start = clock()
                # A cache may write in place only where nobody holds what it showed before.
                output = None
            took += clock() - start
        except OutputError as error:
            raise WrongError(str(error)) from None
        return took, kept

    def _queued(self, first: int, calls: int, keep: set[int]) -> tuple[int, list[_Kept]]:
        call, clock = self.timed.call, time.perf_counter_ns
        try:
            if self.timed.stateful:
                output: object = None
                held: list[object] = []
                start = clock()
                for turn in range(calls):
                    output = None
                    output = call(first + turn)
                    held.append(self.timed.queued(output))
                force((output, held))
                took = clock() - start
                return took, [_Kept(first + calls - 1, take(output))] if keep else []
            start = clock()
            outputs = [call(first + turn) for turn in range(calls)]
            force(outputs)
            took = clock() - start
        except OutputError as error:
            raise WrongError(str(error)) from None
        return took, [_Kept(first + turn, take(outputs[turn])) for turn in sorted(keep)]


def visit_in_rounds(name: str, prepare: Callable[[], Timed], *, rounds: int = ROUNDS) -> Rounds:
    """Time one operation by itself, in this process; raises WrongError where a timed call was wrong."""
    operation = Operation(prepare)
    calls, _ = operation.calibrate()
    times = tuple(operation.visit(calls) for _ in range(rounds))
    operation.compare()
    return Rounds(name, calls, times)


def _bytes(output: Any) -> int:
    if hasattr(output, "nbytes"):
        return int(output.nbytes)
    if isinstance(output, tuple | list):
        return sum(_bytes(each) for each in output)
    return sum(_bytes(each) for each in vars(output).values()) if hasattr(output, "__dataclass_fields__") else 0
