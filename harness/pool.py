"""The parent's side of workers: starting them, feeding them, and watching their time, memory and output."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import IO, TYPE_CHECKING

import psutil

from harness.errors import SubjectMissingError
from harness.outcome import Outcome, Result
from harness.worker import Hello, Job, NoSubject

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.recording.replay import Recorded

# The worker finds the same packages as its parent, and nothing of the folder it is started in.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from harness.worker import main; main(int(sys.argv[2]), sys.argv[3])"
)
START_SECONDS = 120.0
MOST_OUTPUT_BYTES = 16 << 20
SHOWN_OUTPUT_CHARS = 4000
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Limits:
    """What one instance may use: wall-clock seconds, resident memory of its worker in MiB, and threads of OpenBLAS.

    The arrays of cases are small: a second thread only spins, on a core that another worker needs. 0 leaves the number
    to OpenBLAS, as timings want it.
    """

    seconds: float = 30.0
    memory_mib: int = 2048
    blas_threads: int = 1


def _environment(blas_threads: int) -> dict[str, str]:
    # NumPy's OpenBLAS and MLX's read it once, when they are loaded. Who set it had a reason.
    chosen = {"OPENBLAS_NUM_THREADS": str(blas_threads)} if blas_threads else {}
    return {**chosen, **os.environ}


class Worker:
    """One worker process and the job it has in hand."""

    def __init__(self, subject: str, limits: Limits) -> None:
        """Start the process; `wait_ready` tells whether its subject loads."""
        self.subject, self.limits = subject, limits
        self.instance: Instance | None = None
        self.jobs_done = 0
        self._deadline = 0.0
        self._started = 0.0
        self._out = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed in `stop`
        self._err = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed in `stop`
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(  # noqa: S603 - this Python, with arguments of our own
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno()), subject],
            env=_environment(limits.blas_threads),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            pass_fds=[theirs.fileno()],
            # Ctrl-C is for the parent, which ends its workers itself.
            start_new_session=True,
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self._watched = psutil.Process(self.process.pid)

    def wait_ready(self) -> Hello:
        """Wait for the subject to load; raises SubjectMissingError with what it said."""
        try:
            if not self.connection.poll(START_SECONDS):
                raise SubjectMissingError(f"subject '{self.subject}' did not load within {START_SECONDS:.0f} s")
            message = self.connection.recv()
        except (EOFError, ConnectionError):
            how = self._how_it_died()
            raise SubjectMissingError(
                f"subject '{self.subject}': {how} while loading\n{self._read(self._err)}".rstrip()
            ) from None
        if isinstance(message, NoSubject):
            raise SubjectMissingError(f"{message.message}\n{message.details}".rstrip())
        assert isinstance(message, Hello)  # noqa: S101 - the protocol has no third message here
        self._clear()
        return message

    def give(
        self, instance: Instance, *, benchmark: bool, observe: bool = False, against: Recorded | None = None
    ) -> None:
        """Send one instance."""
        self.instance = instance
        own = instance.case.limits
        self._started = time.monotonic()
        seconds = own.seconds or self.limits.seconds
        self._deadline = self._started + seconds * (10 if benchmark else 1)
        self.connection.send(Job(instance, benchmark, observe, against))

    def result(self) -> Result | None:
        """Return the result of the instance in hand, None while it runs. A worker that died or was killed is `dead`."""
        assert self.instance is not None  # noqa: S101 - only busy workers are asked
        try:
            if self.connection.poll(0):
                result: Result = self.connection.recv()
                return self._finish(result)
        except (EOFError, ConnectionError):
            return self._errored(f"the worker {self._how_it_died()}")
        own = self.instance.case.limits
        if time.monotonic() > self._deadline:
            self.kill()
            return self._errored(f"no answer within {own.seconds or self.limits.seconds:g} s (the time limit)")
        memory_mib = own.memory_mib or self.limits.memory_mib
        try:
            used = self._watched.memory_info().rss >> 20
        except psutil.Error:
            used = 0
        if used > memory_mib:
            self.kill()
            return self._errored(f"used more than {memory_mib} MiB of memory (the limit)")
        if os.fstat(self._out.fileno()).st_size + os.fstat(self._err.fileno()).st_size > MOST_OUTPUT_BYTES:
            self.kill()
            return self._errored(f"printed more than {MOST_OUTPUT_BYTES >> 20} MiB")
        return None

    def take(self) -> Instance:
        """Return the instance in hand, whose result is known now, and be free for another."""
        instance = self.instance
        assert instance is not None  # noqa: S101 - only busy workers are asked
        self.instance = None
        return instance

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let an idle worker leave, end a busy one, and release everything."""
        self.connection.close()
        if self.instance is not None:
            self.process.kill()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._out.close()
        self._err.close()

    def _finish(self, result: Result) -> Result:
        printed = self._read(self._out)
        said = self._read(self._err)
        self._clear()
        self.jobs_done += 1
        output = "\n".join(filter(None, (result.output, said)))[-SHOWN_OUTPUT_CHARS:]
        if printed and not result.outcome.is_bad:
            # A program whose answers travel over stdout would be broken by this; stderr is free for it.
            first = printed.strip().splitlines()[0][:80] if printed.strip() else "whitespace"
            reason = f"printed to stdout: {first!r}; a subject may print to stderr only"
            return replace(result, outcome=Outcome.ERRORED, reason=reason, output=printed)
        return replace(result, output=output if result.outcome.is_bad else "")

    def _errored(self, reason: str) -> Result:
        output = "\n".join(filter(None, (self._read(self._out), self._read(self._err))))
        return Result(Outcome.ERRORED, reason, seconds=time.monotonic() - self._started, output=output)

    def _how_it_died(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its connection"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended by itself with exit code {code}"

    def _read(self, file: IO[bytes]) -> str:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - SHOWN_OUTPUT_CHARS))
        return file.read().decode("utf-8", "replace").strip("\n")

    def _clear(self) -> None:
        self._out.truncate(0)
        self._err.truncate(0)
