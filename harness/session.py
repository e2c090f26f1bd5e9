"""Workers kept open for callers that run one instance at a time, as pytest does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.known import Entry, apply_known
from harness.outcome import Outcome, Result
from harness.pool import POLL_SECONDS, Limits, Worker

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.worker import Hello


class Session:
    """One worker a subject, started when first needed, replaced when it dies."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Start nothing yet."""
        self._limits = limits or Limits()
        self._workers: dict[str, tuple[Worker, Hello]] = {}
        self._known: dict[Path, list[Entry]] = {}

    def run(self, instance: Instance, subject: str, *, benchmark: bool = False) -> Result:
        """Run one instance; raises SubjectMissingError when the subject can't be loaded."""
        worker, hello = self._worker(subject)
        lacking = [word for word in instance.case.requires if word not in hello.capabilities]
        if instance.kind not in hello.kinds or lacking:
            what = f"kind {instance.kind}" if instance.kind not in hello.kinds else lacking[0]
            return Result(Outcome.UNSUPPORTED, f"{subject} does not offer {what}")
        result = self._once(worker, instance, benchmark=benchmark)
        if worker.dead:
            # An earlier instance may have left the damage behind: only a worker that ran nothing else can tell.
            first = worker.jobs_done == 0
            worker.stop()
            del self._workers[subject]
            if not first:
                return self.run(instance, subject, benchmark=benchmark)
        return apply_known(self._entries(instance, subject, hello), instance.id, result)

    def stop(self) -> None:
        """End every worker."""
        for worker, _ in self._workers.values():
            worker.stop()
        self._workers.clear()

    def _once(self, worker: Worker, instance: Instance, *, benchmark: bool) -> Result:
        worker.give(instance, benchmark=benchmark)
        while True:
            worker.connection.poll(POLL_SECONDS)
            result = worker.result()
            if result is not None:
                worker.take()
                return result

    def _worker(self, subject: str) -> tuple[Worker, Hello]:
        if subject not in self._workers:
            worker = Worker(subject, self._limits)
            try:
                self._workers[subject] = worker, worker.wait_ready()
            except BaseException:
                worker.stop()
                raise
        return self._workers[subject]

    def _entries(self, instance: Instance, subject: str, hello: Hello) -> list[Entry]:
        from harness.case.load import root_of
        from harness.known import known_path, load_known

        if ":" in subject:
            return []
        path = known_path(root_of(Path(instance.path)), subject)
        if path not in self._known:
            self._known[path] = load_known(path, hello.versions.get(subject), None) if path.is_file() else []
        return self._known[path]
