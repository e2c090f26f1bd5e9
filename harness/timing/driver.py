"""Measuring: rounds over sets of fresh processes; each turn of a round visits every arm, in an order from the seed.

A set of processes, one an arm, serves all instances of a batch, so that starting them is paid once a set. Answers are
compared before, in between and after: an arm with a wrong one is named in `Timing.wrong`, and its times are dropped.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.timing.process import ArmError
from harness.timing.samples import Role, Timing, Visit
from harness.timing.sets import ProcessSet, usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.case.expand import Instance
    from harness.timing.plan import Plan

    Key = tuple[str, str, bool]

# Work that keeps no more cores busy than this stays on one: handing it from core to core is what scatters most.
ONE_CORE = 1.3
# Calls in common make visits alike; nobody has to wait so long for them.
MOST_VISIT_NS = 100_000_000
# A visit that came out this much shorter than it has to be is made again with more calls.
TOO_SHORT = 0.5
TRIES = 3
# Turns are for short visits: the pace of a shared machine changes within tens of milliseconds, and a pair of visits
# within one turn mostly misses that. Long visits have it in them.
MOST_ROUND_NS = 60_000_000
# A subject that answers inputs it has seen so many times faster than new ones remembers answers: caches of a processor
# are less than that ahead of its memory. Several sets have to agree.
MEMORY_RATIO = 10.0
RECALLING_SETS = 3


@dataclass(frozen=True)
class Watcher:
    """Who is told how a measurement goes: `step` of what is timed now and how many steps are done; `note` of the rest.

    A step is an instance in one set of processes.
    """

    step: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    note: Callable[[str], None] = lambda _text: None


def measure(plan: Plan, *, wanted: Sequence[Key] | None = None, watcher: Watcher | None = None) -> Iterator[Timing]:
    """Yield the timing of every operation of the plan's instances, of one batch after the other.

    wanted: only these (instance, operation, amortized). Raises SubjectMissingError when a subject can't be loaded.
    KeyboardInterrupt passes through, after the processes have been ended.
    """
    watcher = watcher or Watcher()
    tasks = [_Task(instance, timed) for instance in plan.instances if (timed := _timed(plan, instance, wanted))]
    total, done = len(tasks) * plan.processes, 0
    for start in range(0, len(tasks), plan.batch):
        batch = tasks[start : start + plan.batch]
        for process in range(plan.processes):
            with ProcessSet(plan, process, [task.instance for task in batch]) as processes:
                for task in batch:
                    watcher.step(task.instance.id, done, total)
                    task.run(plan, processes)
                    done += 1
        for task in batch:
            yield from task.timings(plan, watcher)


def measure_again(plan: Plan, wanted: Sequence[Key], *, watcher: Watcher | None = None) -> Iterator[Timing]:
    """Measure in a session of its own: other inputs, another order, fresh processes."""
    return measure(replace(plan, session=plan.session + 1), wanted=wanted, watcher=watcher)


def _timed(plan: Plan, instance: Instance, wanted: Sequence[Key] | None) -> list[tuple[str, bool]]:
    operations: list[str] = getattr(instance.case, "time", None) or []
    modes = plan.modes(instance) if wanted is None else (False, True)
    every = [(operation, amortized) for operation in operations for amortized in modes]
    return [one for one in every if wanted is None or (instance.id, *one) in wanted]


@dataclass
class _Measured:
    """What is known of one operation so far."""

    visits: list[Visit] = field(default_factory=list)
    calls: int = 1
    work: dict[str, int | None] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    remembers: dict[str, list[float]] = field(default_factory=dict)


class _Task:
    """One instance with the operations to time of it, over all sets."""

    def __init__(self, instance: Instance, timed: list[tuple[str, bool]]) -> None:
        self.instance, self.timed = instance, timed
        self.measured = [_Measured() for _ in timed]
        self.overhead_ns = 0
        # Of a visit, by operation and arm.
        self._calls: dict[tuple[int, str], int] = {}
        self._most_calls: dict[tuple[int, str], int] = {}
        self._turns: dict[int, int] = {}
        self._on_one_core: dict[int, bool] = {}

    def run(self, plan: Plan, processes: ProcessSet) -> None:
        """Prepare, visit and compare in one set of processes."""
        processes.revive()
        number = processes.number
        edge = number in (0, plan.processes - 1)
        self.overhead_ns = max(self.overhead_ns, *(hello["overhead_ns"] for hello in processes.hellos.values()))
        names = self._all(
            processes,
            list(processes.processes),
            "prepare",
            instance=self.instance.id,
            digest=self.instance.digest,
            timed=self.timed,
            salt=plan.salt(number),
            check=edge,
        )
        rounds = [one for one in range(plan.rounds) if one * plan.processes // plan.rounds == number]
        for index in range(len(self.timed)):
            self._calibrate(plan, processes, names, index)
        for one in rounds:
            for index in range(len(self.timed)):
                self._place(processes, names, index)
                self._round(plan, processes, names, index, one)
        # Arms compare side by side, and prepare so the next time.
        processes.keep_to(names, usable_cores())
        if number < RECALLING_SETS:
            self._recall(processes, names)
        self._all(processes, names, "finish", check=edge)

    def timings(self, plan: Plan, watcher: Watcher) -> Iterator[Timing]:
        """Yield what was measured; an operation that the baseline does not offer is only noted."""
        specs = plan.all_arms()
        for (operation, amortized), measured in zip(self.timed, self.measured, strict=True):
            for name, why in measured.unsupported.items():
                if not name.endswith(" again"):
                    watcher.note(f"{self.instance.id} {operation}: {name} can't: {why}")
            if specs[0].arm.name in measured.unsupported:
                continue
            for name, ratios in measured.remembers.items():
                if name not in measured.wrong and min(ratios) > MEMORY_RATIO:
                    measured.wrong[name] = (
                        f"answers inputs that it has seen {min(ratios):.0f} times faster than new ones: "
                        "it remembers answers"
                    )
            yield Timing(
                instance=self.instance.id,
                case_digest=self.instance.digest,
                operation=operation,
                amortized=amortized,
                arms=tuple(spec.arm for spec in specs if spec.arm.name not in measured.unsupported),
                visits=tuple(visit for visit in measured.visits if visit.arm not in measured.wrong | measured.failed),
                overhead_ns=self.overhead_ns,
                seed=plan.seed,
                moved_bytes=measured.work.get("moved_bytes"),
                operations=measured.work.get("operations"),
                wrong=tuple(measured.wrong.items()),
                failed=tuple(measured.failed.items()),
            )

    def _recall(self, processes: ProcessSet, names: list[str]) -> None:
        """See who answers inputs faster that it has seen before."""
        names = self._all(processes, names, "renew")
        for index in range(len(self.timed)):
            able = self._able([name for name in names if processes.processes[name].spec.subject], index)
            if able:
                self._place(processes, names, index)
            for name in able:
                # One after the other: this is a matter of time, too.
                answer = self._ask(processes, name, index, "recall")
                if answer is not None:
                    self.measured[index].remembers.setdefault(name, []).append(answer["remembers"])
        processes.keep_to(names, usable_cores())

    def _able(self, names: list[str], index: int) -> list[str]:
        measured = self.measured[index]
        return [name for name in names if name not in measured.wrong | measured.failed | measured.unsupported]

    def _all(self, processes: ProcessSet, names: list[str], do: str, **arguments: Any) -> list[str]:
        """Ask every arm at once; return those that go on."""
        doing = {"prepare": "preparing", "renew": "preparing anew", "finish": "comparing"}[do]
        for name in names:
            processes.processes[name].request(f"{doing} {self.instance.id}", do, **arguments)
        for name in names:
            try:
                answer = processes.processes[name].answer()
            except ArmError as error:
                answer = {"errored": str(error)}
            self._take(name, answer)
        return [name for name in names if not processes.processes[name].dead]

    def _take(self, name: str, answer: dict[str, Any]) -> None:
        each = answer.get("operations")
        for index, measured in enumerate(self.measured):
            own = answer if each is None else each[index]
            if why := own.get("wrong"):
                measured.wrong.setdefault(name, why)
            elif why := own.get("errored"):
                measured.failed.setdefault(name, why)
            elif why := own.get("unsupported"):
                measured.unsupported.setdefault(name, why)
            elif "moved_bytes" in own:
                measured.work.update(moved_bytes=own["moved_bytes"], operations=own["operations"])

    def _ask(self, processes: ProcessSet, name: str, index: int, do: str, **arguments: Any) -> dict[str, Any] | None:
        """Ask one arm about one operation; None where that went wrong, which is noted."""
        operation = self.timed[index][0]
        process = processes.processes[name]
        process.request(f"timing {operation} of {self.instance.id}", do, index=index, **arguments)
        try:
            answer = process.answer()
        except ArmError as error:
            answer = {"errored": str(error)}
        if why := answer.get("wrong"):
            self.measured[index].wrong.setdefault(name, why)
            return None
        if why := answer.get("errored"):
            for one in range(len(self.measured)) if process.dead else [index]:
                self.measured[one].failed.setdefault(name, why)
            return None
        return answer

    def _calibrate(self, plan: Plan, processes: ProcessSet, names: list[str], index: int) -> None:
        """Agree on the calls of a visit: as many as the quickest arm needs, unless others would take for ever."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._able(names, index):
            answer = self._ask(processes, name, index, "calibrate")
            if answer is not None:
                found[name] = answer
        own = {name for name, process in processes.processes.items() if process.spec.arm.role is not Role.CANARY}
        most = max((answer["calls"] for name, answer in found.items() if name in own), default=1)
        shared = max(most, self.measured[index].calls)
        self.measured[index].calls = shared
        for name, answer in found.items():
            fits = name in own and shared * answer["call_ns"] <= MOST_VISIT_NS
            self._calls[index, name] = min(shared if fits else answer["calls"], answer["most_calls"])
            self._most_calls[index, name] = answer["most_calls"]
        longest = max((self._calls[index, name] * answer["call_ns"] for name, answer in found.items()), default=1)
        busiest = max((answer["cores"] for name, answer in found.items() if name in own), default=0.0)
        # What the first set shows holds for all.
        self._on_one_core.setdefault(index, busiest <= ONE_CORE)
        self._turns[index] = min(plan.turns, max(1, int(MOST_ROUND_NS / longest)))

    def _place(self, processes: ProcessSet, names: list[str], index: int) -> None:
        """Keep the work of one thread to one core, another in each set; give other work all of them."""
        cores = usable_cores()
        if self._on_one_core.get(index):
            cores = cores[processes.number % len(cores) :][:1]
        processes.keep_to(self._able(names, index), cores)

    def _round(self, plan: Plan, processes: ProcessSet, names: list[str], index: int, number: int) -> None:
        operation, amortized = self.timed[index]
        key = (plan.seed, plan.session, plan.part, self.instance.id, operation, amortized, number)
        orders = random.Random(repr(key))  # noqa: S311 - orders that can be had again
        turns = self._turns[index]
        # One turn of a round keeps outputs to be compared; nobody can know which.
        kept = random.SystemRandom().randrange(turns)
        for turn in range(turns):
            order = self._able(names, index)
            orders.shuffle(order)
            for position, name in enumerate(order):
                visit = self._visit(processes, name, index, keep=turn == kept)
                if visit is not None:
                    made = Visit(name, processes.number, number, position, *visit, turn)
                    self.measured[index].visits.append(made)

    def _visit(self, processes: ProcessSet, name: str, index: int, *, keep: bool) -> tuple[int, int] | None:
        """Visit; a visit that is too short says little, and is made again with more calls."""
        least = processes.hellos[name]["least_visit_ns"]
        for _ in range(TRIES):
            calls = self._calls[index, name]
            answer = self._ask(processes, name, index, "visit", calls=calls, keep=keep)
            if answer is None:
                return None
            took = answer["took_ns"]
            most = self._most_calls[index, name]
            if took >= TOO_SHORT * least or calls >= most:
                break
            self._calls[index, name] = min(most, max(calls + 1, int(1.2 * calls * least / max(took, 1))))
        return calls, took
