"""Progress of a measurement on stderr: a bar in a terminal, a line now and then in a log; what is timed, time left."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from harness.timing.driver import Watcher

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

LOG_SECONDS = 15.0


class TimingProgress:
    """Shows steps while its block lasts; `watcher` is for `measure`. Notes are shown at the end, each once."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Show nothing but notes when `quiet`."""
        self._quiet = quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._begun = self._logged = time.monotonic()
        self.notes: dict[str, None] = {}
        self.watcher = Watcher(self._step, self._note)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away, and show the notes."""
        if self._bar is not None:
            self._bar.stop()
        for text in self.notes:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - what a reader of the table misses there

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _step(self, what: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if sys.stderr.isatty():
            self._draw(what, done, total)
        elif time.monotonic() - self._logged > LOG_SECONDS:
            self._logged = time.monotonic()
            left = (self._logged - self._begun) / max(1, done) * (total - done)
            print(f"timing {what}: {done} of {total}, about {left:.0f} s left", file=sys.stderr, flush=True)  # noqa: T201 - progress in a log

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichBar

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = RichBar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total, description=what)
