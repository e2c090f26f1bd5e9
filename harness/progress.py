"""Progress of a run on stderr: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from harness.outcome import Outcome, Result

LOG_SECONDS = 15.0


class Progress:
    """Counts outcomes and shows them with the time left; `start` and `tick` fit `harness.run.Options`."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Show nothing when `quiet`."""
        self._quiet = quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._counts: Counter[Outcome] = Counter()
        self._total = self._done = self._begun_with = 0
        self._begun = self._logged = time.monotonic()

    def start(self, subject: str, total: int, done: int) -> None:
        """Begin with a subject that has `total` instances, `done` of which are known from a record."""
        self.stop()
        self._counts.clear()
        self._total, self._done, self._begun_with = total, done, done
        self._begun = self._logged = time.monotonic()
        if self._quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichBar

        self._bar = RichBar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[counts]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(subject, total=total, completed=done, counts="")
        self._bar.start()

    def tick(self, subject: str, result: Result | None) -> None:
        """Take note of a result; None: time passed."""
        if result is not None:
            self._counts[result.outcome] += 1
            self._done += 1
        if self._bar is not None and self._task is not None and result is not None:
            self._bar.update(self._task, completed=self._done, counts=self._text())
        elif not self._quiet and self._bar is None and time.monotonic() - self._logged > LOG_SECONDS:
            self._logged = time.monotonic()
            speed = (self._done - self._begun_with) / (self._logged - self._begun)
            left = f", about {(self._total - self._done) / speed:.0f} s left" if speed else ""
            print(f"{subject}: {self._done} of {self._total}: {self._text()}{left}", file=sys.stderr, flush=True)  # noqa: T201 - progress in a log

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _text(self) -> str:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._counts.items()))
