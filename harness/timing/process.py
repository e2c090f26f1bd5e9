"""The parent's side of an arm's process: starting it, asking it, and watching its time, memory and output."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from harness.errors import SubjectMissingError

if TYPE_CHECKING:
    from harness.timing.plan import ArmLimits, ArmSpec

_BOOT = (
    "import json, sys; first, own, last = json.loads(sys.argv[1]); sys.path[:] = first + (own or sys.path) + last; "
    "from harness.timing.arm import main; main(int(sys.argv[2]), sys.argv[3])"
)
START_SECONDS = 120.0
# Seldom: who looks takes time from what is measured.
WATCH_SECONDS = 0.25
MOST_OUTPUT_BYTES = 16 << 20
SHOWN_OUTPUT_CHARS = 2000


class ArmError(Exception):
    """The process of an arm is gone: how, and while doing what."""


class ArmProcess:
    """One process of an arm. Requests are answered in order; one that is gone raises ArmError ever after."""

    def __init__(self, spec: ArmSpec, limits: ArmLimits) -> None:
        """Start it; `hello` waits until it is ready."""
        self.spec, self.limits = spec, limits
        self.dead = ""
        self._output = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed in `stop`
        self._buffer = b""
        self._doing, self._deadline = "", 0.0
        own, theirs = socket.socketpair()
        # Another interpreter finds its own packages, and this harness behind them.
        here = str(Path(__file__).parents[2])
        path = [list(spec.paths), sys.path, []] if spec.python is None else [list(spec.paths), None, [here]]
        self.process = subprocess.Popen(  # noqa: S603 - a Python of the caller's choice, with arguments of our own
            [spec.python or sys.executable, "-c", _BOOT, json.dumps(path), str(theirs.fileno()), spec.subject],
            env={**os.environ, **dict(spec.environment)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            # Ctrl-C is for the parent, which ends its arms itself.
            start_new_session=True,
        )
        theirs.close()
        self._socket = own
        self._watched = psutil.Process(self.process.pid)
        self._ask("loading", START_SECONDS)

    def hello(self) -> dict[str, Any]:
        """Wait for the subject to load; raises SubjectMissingError with what it said."""
        name = self.spec.arm.name
        try:
            answer = self.answer()
        except ArmError as error:
            raise SubjectMissingError(f"{name}: {error}\n{self._said()}".rstrip()) from None
        if "failed" in answer:
            raise SubjectMissingError(f"{name}: {answer['failed']}\n{self._said()}".rstrip())
        return answer

    def request(self, doing: str, do: str, seconds: float | None = None, **arguments: Any) -> None:
        """Send a request; `answer` waits for what comes back."""
        if self.dead:
            return
        # `answer` finds out how it died.
        with suppress(OSError):
            self._socket.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._ask(doing, seconds or self.limits.seconds)

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last request; raises ArmError where none can come any more."""
        if self.dead:
            raise ArmError(self.dead)
        while b"\n" not in self._buffer:
            self._watch()
            if not select.select([self._socket], [], [], WATCH_SECONDS)[0]:
                continue
            try:
                part = self._socket.recv(1 << 16)
            except OSError:
                part = b""
            if not part:
                self._fail(self._how_it_died())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End it and release everything."""
        self._socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._output.close()

    def _ask(self, doing: str, seconds: float) -> None:
        self._doing, self._deadline, self._seconds = doing, time.monotonic() + seconds, seconds

    def _watch(self) -> None:
        if time.monotonic() > self._deadline:
            self._fail(f"gave no answer within {self._seconds:.0f} s")
        try:
            used = self._watched.memory_info().rss >> 20
        except psutil.Error:
            used = 0
        if used > self.limits.memory_mib:
            self._fail(f"used more than {self.limits.memory_mib} MiB of memory")
        if os.fstat(self._output.fileno()).st_size > MOST_OUTPUT_BYTES:
            self._fail(f"printed more than {MOST_OUTPUT_BYTES >> 20} MiB")

    def _fail(self, how: str) -> None:
        self.dead = f"{how} while {self._doing}"
        self.process.kill()
        raise ArmError(self.dead)

    def _how_it_died(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _said(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, size - SHOWN_OUTPUT_CHARS))
        return self._output.read().decode("utf-8", "replace").strip("\n")
