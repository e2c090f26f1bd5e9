"""Running instances on subjects: workers side by side, every result recorded as it comes."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from harness.checking import CheckSettings
from harness.errors import NothingRanError, RecordError
from harness.fingerprint import fingerprint
from harness.known import Entry, apply_known
from harness.outcome import Observed
from harness.pool import POLL_SECONDS, Limits, Worker
from harness.record import Record, RecordWriter, read_record
from harness.subjects.registry import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.case.expand import Instance
    from harness.outcome import Outcome, Result
    from harness.recording.replay import Recorded
    from harness.worker import Hello


@dataclass
class SubjectRun:
    """What came of one subject: results by instance id in the order of the instances, and what was left out."""

    subject: str
    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""
    results: dict[str, Result] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    against: Path | None = None
    resumed: int = 0

    def counts(self) -> Counter[Outcome]:
        """Count outcomes."""
        return Counter(result.outcome for result in self.results.values())


@dataclass
class Run:
    """A whole run."""

    subjects: list[SubjectRun]
    instances: list[Instance]
    seconds: float
    record: Path | None = None

    @property
    def exit_code(self) -> int:
        """0 when nothing failed, 1 otherwise, 4 when nothing ran."""
        outcomes = [result.outcome for subject in self.subjects for result in subject.results.values()]
        if not outcomes:
            return NothingRanError.exit_code
        return int(any(outcome.is_bad for outcome in outcomes))


@dataclass(frozen=True)
class Recordings:
    """The recorded instances of a folder by id, for a comparison."""

    folder: Path
    by_id: Mapping[str, Recorded]


@dataclass(frozen=True)
class Options:
    """How to run. `known` gives a subject's known failures; `tick` is called after every result and while waiting.

    `opened` is called with versions and devices once all subjects are loaded, `observe` with what every instance was
    observed to do; `against` has the recorded instances to compare with instead of the baseline.
    """

    jobs: int = 1
    limits: Limits = field(default_factory=Limits)
    benchmark: bool = False
    record: Path | None = None
    resume: Path | None = None
    opened: Callable[[dict[str, Any]], None] = lambda _header: None
    observe: Callable[[Instance, Result], None] | None = None
    against: Recordings | None = None
    known: Callable[[str, dict[str, str]], list[Entry]] = lambda _subject, _versions: []
    start: Callable[[str, int, int], None] = lambda _subject, _total, _done: None
    tick: Callable[[str, Result | None], None] = lambda _subject, _result: None


def run(instances: Sequence[Instance], subjects: Sequence[str] = ("reference",), options: Options | None = None) -> Run:
    """Run every instance on every subject, in worker processes.

    Raises UsageError for a name that can't be a subject, SubjectMissingError when one can't be loaded, and RecordError
    when the record to resume belongs to other versions. KeyboardInterrupt passes through, after the workers have been
    ended and the record closed.
    """
    for name in subjects:
        check_name(name)
    options = options or Options()
    begun = time.monotonic()
    ready = {name: _Session(name, options.limits) for name in subjects}
    try:
        header = {
            "versions": {name: session.hello.versions for name, session in ready.items()},
            "devices": {name: session.hello.device for name, session in ready.items()},
            "fingerprint": fingerprint(),
            "benchmark": options.benchmark,
            "checks": CheckSettings.asked_for() is not None,
        }
        options.opened(header)
        writer, earlier = _open_record(options, header)
        finished = False
        try:
            runs = [session.run(instances, options, writer, earlier) for session in ready.values()]
            finished = True
        finally:
            if writer is not None:
                totals: Counter[str] = Counter()
                if finished:
                    totals.update(str(r.outcome) for part in runs for r in part.results.values())
                writer.close({"counts": dict(totals)} if finished else None)
    finally:
        for session in ready.values():
            session.stop()
    return Run(runs, list(instances), time.monotonic() - begun, writer.path if writer else None)


def _open_record(options: Options, header: dict[str, Any]) -> tuple[RecordWriter | None, Record | None]:
    if options.resume is None:
        return (RecordWriter.create(options.record, header) if options.record else None), None
    earlier = read_record(options.resume)
    for name, versions in header["versions"].items():
        before = earlier.header.get("versions", {}).get(name)
        if before is None:
            names = ", ".join(earlier.header.get("versions", {}))
            raise RecordError(f"{options.resume}: has no subject '{name}' (it has {names}); start a new record")
        if before != versions:
            raise RecordError(
                f"{options.resume}: was made with {_versions(before)}, and this is {_versions(versions)}; "
                "start a new record"
            )
    for option in ("benchmark", "checks"):
        if earlier.header.get(option, False) != header[option]:
            how = "without" if header[option] else "with"
            raise RecordError(f"{options.resume}: was made {how} --{option}")
    return RecordWriter.resume(options.resume), earlier


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "no versions"


class _Session:
    """The workers of one subject."""

    def __init__(self, subject: str, limits: Limits) -> None:
        self.subject, self.limits = subject, limits
        first = Worker(subject, limits)
        self.workers = [first]
        try:
            self.hello: Hello = first.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def run(
        self, instances: Sequence[Instance], options: Options, writer: RecordWriter | None, earlier: Record | None
    ) -> SubjectRun:
        folder = None if options.against is None else options.against.folder
        part = SubjectRun(self.subject, self.hello.versions, self.hello.device, against=folder)
        wanted = [instance for instance in instances if self._takes(instance, part)]
        entries = options.known(self.subject, self.hello.versions)
        results: dict[str, Result] = {}
        if earlier is not None:
            for instance in wanted:
                if earlier.holds(self.subject, instance):
                    results[instance.id] = earlier.results[self.subject, instance.id]
            part.resumed = len(results)
        options.start(self.subject, len(wanted), len(results))
        todo = deque(instance for instance in wanted if instance.id not in results)
        for instance, plain in self._work(todo, options):
            if options.observe is not None:
                options.observe(instance, plain)
            result = apply_known(entries, instance.id, plain)
            if isinstance(result, Observed):
                # Kept in a file by now, and too large to be kept twice.
                result = replace(result, file=b"")
            results[instance.id] = result
            if writer is not None:
                writer.result(self.subject, instance, result)
            options.tick(self.subject, result)
        part.results = {instance.id: results[instance.id] for instance in wanted}
        return part

    def _takes(self, instance: Instance, part: SubjectRun) -> bool:
        """Whether there is such an instance for this subject: it has the kind, and what the case requires."""
        if instance.kind not in self.hello.kinds:
            part.left_out[f"kind {instance.kind}"] = part.left_out.get(f"kind {instance.kind}", 0) + 1
            return False
        missing = [word for word in instance.case.requires if word not in self.hello.capabilities]
        for word in missing[:1]:
            part.left_out[word] = part.left_out.get(word, 0) + 1
        return not missing

    def _work(self, todo: deque[Instance], options: Options) -> Iterable[tuple[Instance, Result]]:
        # Timings would disturb each other.
        jobs = 1 if options.benchmark else max(1, min(options.jobs, len(todo)))
        self.workers += [Worker(self.subject, self.limits) for _ in range(jobs - len(self.workers))]
        for worker in self.workers[1:]:
            worker.wait_ready()
        busy: list[Worker] = []
        idle = list(self.workers)
        tried: set[str] = set()
        while todo or busy:
            while todo and idle:
                worker = idle.pop()
                if worker.dead:
                    worker = self._replace(worker)
                instance = todo.popleft()
                worker.give(
                    instance,
                    benchmark=options.benchmark,
                    observe=options.observe is not None,
                    against=None if options.against is None else options.against.by_id[instance.id],
                )
                busy.append(worker)
            wait([worker.connection for worker in busy], timeout=POLL_SECONDS)
            for worker in list(busy):
                result = worker.result()
                if result is None:
                    continue
                instance = worker.take()
                busy.remove(worker)
                if not worker.dead:
                    idle.append(worker)
                    yield instance, result
                    continue
                idle.append(self._replace(worker))
                if worker.jobs_done and instance.id not in tried:
                    # An earlier instance may have left the damage or the leak behind: only a worker that ran
                    # nothing else can tell.
                    tried.add(instance.id)
                    todo.appendleft(instance)
                else:
                    yield instance, result
            options.tick(self.subject, None)

    def _replace(self, dead: Worker) -> Worker:
        fresh = Worker(self.subject, self.limits)
        self.workers[self.workers.index(dead)] = fresh
        dead.stop()
        fresh.wait_ready()
        return fresh


__all__ = ["Options", "Run", "SubjectRun", "run"]
