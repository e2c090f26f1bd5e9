"""The process of an arm: it loads one subject, prepares instances, and makes visits as it is told, one at a time.

It speaks JSON lines over a socket of its own, so that an arm may be another interpreter with other packages, and
whatever a subject prints goes elsewhere.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
import traceback
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.kinds.base import Timed
    from harness.subjects.protocol import Subject
    from harness.timing.visit import Operation

# Elements that are sorted, and mapped on the device.
CANARY_SIZE = 1 << 14


@dataclass
class Arm:
    """What the process has in hand: its subject (None: it is the canary), the loaded instances, the operations."""

    subject: Subject | None
    instances: dict[str, Instance] = field(default_factory=dict)
    instance: Instance | None = None
    operations: list[Operation | None] = field(default_factory=list)
    _settled: bool = False

    def load(self, cases: list[tuple[str, list[str]]]) -> dict[str, Any]:
        """Load instances by the paths of their cases and their ids."""
        from harness.case.load import load_file

        for path, ids in cases:
            for instance in load_file(Path(path), wanted=lambda _ids, ids=ids: set(ids)):  # type: ignore[misc]
                self.instances[instance.id] = instance
        return {}

    def prepare(
        self, instance: str, digest: str, timed: list[tuple[str, bool]], salt: int, check: bool
    ) -> dict[str, Any]:
        """Check the subject, make its operations ready (operation, amortized), and say what each moves and does."""
        from harness.subjects.protocol import Refused, Unsupported
        from harness.timing.visit import Operation, WrongError

        self.instance, self.operations = None, [None] * len(timed)
        if self.subject is None:
            canary = Operation(_canary)
            self.operations = [canary] * len(timed)
            return {"operations": [{} for _ in timed]}
        asked = self.instances[instance]
        if asked.digest != digest:
            return {"errored": f"{asked.path} changed while it was timed"}
        lacking = _lacks(self.subject, asked)
        if lacking:
            return {"unsupported": lacking}
        if check and (bad := _bad(asked, self.subject)):
            return bad
        self.instance = asked
        answers: list[dict[str, Any]] = []
        for place, (operation, amortized) in enumerate(timed):
            try:
                made = Operation(partial(self._timed, operation, salt), amortized=amortized)
                work = made.timed.work
                answers.append({"moved_bytes": work.moved_bytes, "operations": work.operations})
            except (Unsupported, Refused) as why:
                answers.append({"unsupported": str(why)})
            except WrongError as why:
                answers.append({"wrong": str(why)})
            else:
                self.operations[place] = made
        self._tidy()
        return {"operations": answers}

    def _tidy(self) -> None:
        gc.collect()
        if not self._settled:
            # Packages are loaded now, and stay: no later collection need look at them.
            self._settled = True
            gc.freeze()

    def calibrate(self, index: int) -> dict[str, Any]:
        """Find how many calls make a visit."""
        operation = self._operation(index)
        calls, call_ns = operation.calibrate()
        return {"calls": calls, "call_ns": call_ns, "most_calls": operation.most_calls, "cores": operation.cores}

    def keep_to(self, cores: list[int]) -> dict[str, Any]:
        """Keep all threads to some cores, where the system lets them be kept (Linux)."""
        if hasattr(os, "sched_setaffinity"):
            for thread in Path("/proc/self/task").iterdir():
                # One may have ended since.
                with suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
        return {}

    def visit(self, index: int, calls: int, keep: bool = True) -> dict[str, Any]:
        """Make one visit; with `keep` some outputs are kept to be compared."""
        return {"took_ns": self._operation(index).visit(calls, keep=keep)}

    def renew(self) -> dict[str, Any]:
        """Compare what was kept, and prepare anew what can be recalled."""
        from harness.timing.visit import WrongError

        answers: list[dict[str, Any]] = []
        for place, operation in enumerate(self.operations):
            answers.append({})
            if operation is None or self.subject is None:
                continue
            try:
                operation.renew()
            except WrongError as why:
                answers[-1] = {"wrong": str(why)}
                self.operations[place] = None
        self._tidy()
        return {"operations": answers}

    def recall(self, index: int) -> dict[str, Any]:
        """See how much longer new inputs take than those seen before."""
        return {"remembers": self._operation(index).remembers()}

    def finish(self, check: bool) -> dict[str, Any]:
        """Compare what was kept, and the subject once more."""
        from harness.execute import execute
        from harness.outcome import Outcome
        from harness.timing.visit import WrongError

        answers: list[dict[str, Any]] = []
        for operation in self.operations:
            if operation is None or self.subject is None:
                answers.append({})
                continue
            try:
                operation.compare()
                answers.append({"compared": operation.compared})
            except WrongError as why:
                answers.append({"wrong": str(why)})
        self.operations = []
        if check and self.subject is not None and self.instance is not None:
            result = execute(self.instance, self.subject)
            if result.outcome is not Outcome.PASSED:
                return {"wrong": f"was right before timing, not after: {result.reason}"}
        return {"operations": answers}

    def _timed(self, operation: str, salt: int) -> Timed:
        from harness.kinds import get_kind

        assert self.instance is not None  # noqa: S101 - operations belong to one
        assert self.subject is not None  # noqa: S101 - and so to a subject
        return get_kind(self.instance.kind).timed(self.instance.case, self.subject, operation, salt)

    def _operation(self, index: int) -> Operation:
        operation = self.operations[index]
        assert operation is not None  # noqa: S101 - the driver asks for those that were prepared
        return operation


def main(descriptor: int, subject_name: str) -> None:
    """Serve requests over the socket `descriptor` until its other end closes; an empty name makes the canary."""
    from harness.worker import leave_with_parent

    threading.Thread(target=leave_with_parent, args=(os.getppid(),), daemon=True).start()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as stream, ExitStack() as stack:
        arm, hello = _hello(subject_name, stack)
        _send(stream, hello)
        if arm is None:
            return
        for line in stream:
            request = json.loads(line)
            try:
                answer = getattr(arm, request.pop("do"))(**request)
            except Exception as error:  # noqa: BLE001 - the driver gets the reason, and the arm goes on
                answer = _reason(error)
            sys.stdout.flush()
            _send(stream, answer)


def _hello(subject_name: str, stack: ExitStack) -> tuple[Arm | None, dict[str, Any]]:
    from harness.errors import AssayError
    from harness.timing.visit import least_visit_ns, overhead_ns
    from harness.worker import METAL_TEXT_VARIABLE, mlx_device

    try:
        words = mlx_device()
        if subject_name and os.environ.get(METAL_TEXT_VARIABLE) == "1":
            # Before the subject: packages ask for Metal while they are imported.
            from harness.subjects.reference.metal_text import metal_text_here

            context, more = metal_text_here()
            stack.enter_context(context)
            words += more
        subject = None
        if subject_name:
            from harness.subjects.registry import load_subject

            subject = load_subject(subject_name)
    except AssayError as error:
        return None, {"failed": str(error)}
    except BaseException as error:  # noqa: BLE001 - subject code may even call sys.exit
        return None, {"failed": f"can't be loaded: {type(error).__name__}: {error}"}
    versions = {} if subject is None else subject.versions()
    hello = {"versions": versions, "device": words, "overhead_ns": overhead_ns(), "least_visit_ns": least_visit_ns()}
    return Arm(subject), hello


def _reason(error: Exception) -> dict[str, Any]:
    from harness.subjects.call import SubjectError
    from harness.timing.visit import WrongError

    if isinstance(error, WrongError):
        return {"wrong": str(error)}
    if isinstance(error, SubjectError):
        return {"errored": str(error)}
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {"errored": f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"}


class Writable(Protocol):
    """What answers are written to."""

    def write(self, data: bytes, /) -> object:
        """Write all of it."""

    def flush(self) -> None:
        """Send it on its way."""


def _send(stream: Writable, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _bad(instance: Instance, subject: Subject) -> dict[str, Any]:
    """Run the case; return why that is no good."""
    from harness.execute import execute
    from harness.outcome import Outcome

    result = execute(instance, subject)
    if result.outcome is Outcome.UNSUPPORTED:
        return {"unsupported": result.reason}
    return {} if result.outcome is Outcome.PASSED else {"wrong": f"{result.outcome} before timing: {result.reason}"}


def _lacks(subject: Subject, instance: Instance) -> str:
    if instance.kind not in subject.kinds():
        return f"does not offer kind {instance.kind}"
    missing = [word for word in instance.case.requires if word not in subject.capabilities]
    return f"does not offer {missing[0]}" if missing else ""


def _canary() -> Timed:
    """Return a fixed piece of work without products, whose threads would wait for each other on a busy machine."""
    import numpy as np

    from harness.kinds.base import Timed

    values = np.random.default_rng(0).standard_normal(CANARY_SIZE).astype(np.float32)
    core = sys.modules.get("mlx.core")
    if core is None:
        return Timed(lambda _number: np.sort(values), lambda *_: None, turns=1)
    there = core.array(values)
    core.eval(there)
    return Timed(lambda _number: (np.sort(values), core.sin(there) + core.exp(there)), lambda *_: None, turns=1)
