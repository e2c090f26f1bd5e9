"""Checks of Metal kernels in this process: what `impl.metal.checks` finds, as faults of the harness."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.outcome import KernelChecks, KernelFault, KernelPlace
from harness.subjects.reference.kernel_watch import WatchingBackend
from impl.metal.backend import default_backend
from impl.metal.drop_in import metal_text
from impl.metal.errors import ToolchainError
from impl.metal.toolchain import find_toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.checking import CheckSettings
    from impl.metal.backend import Backend
    from impl.metal.checks.finding import Checked

DOES_NOT_COMPILE = "does not compile"
_DANGEROUS = {DOES_NOT_COMPILE, "out-of-bounds read", "out-of-bounds write", "crashed", "time limit"}
_DIAGNOSTIC = re.compile(r"^(source|header):(\d+):(\d+): (?:fatal )?error: (.*)$", re.MULTILINE)


class Collector:
    """Takes what every checked launch says, each fault once; threads share one."""

    def __init__(self, settings: CheckSettings) -> None:
        """Know nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._kernels: dict[str, None] = {}
        self._orders: dict[str, None] = {}
        self._skipped: dict[str, None] = {}
        self._faults: dict[object, KernelFault] = {}
        self._launches = 0

    @cached_property
    def backend(self) -> Backend:
        """What checks each launch and tells this collector."""
        return WatchingBackend(self.take, self._settings)

    def take(self, checked: Checked) -> None:
        """Note what the checks of one launch say."""
        with self._lock:
            self._kernels[checked.kernel] = None
            self._orders.update(dict.fromkeys(checked.orders))
            self._skipped.update(dict.fromkeys(checked.skipped))
            self._launches += 1
            for one in checked.findings:
                places = tuple(KernelPlace(p.file, p.line, p.column, p.text) for p in one.places)
                self._note(KernelFault(one.kernel, str(one.fault), one.message, places, one.count))

    def refused(self, kernel: str, error: str, lines: dict[str, list[str]]) -> None:
        """Note a text that does not compile; `lines` holds the text by `source` and `header`."""
        found = [(file, int(line), int(column), what) for file, line, column, what in _DIAGNOSTIC.findall(error)]
        with self._lock:
            self._kernels[kernel] = None
            for file, line, column, what in found:
                text = lines[file][line - 1] if line <= len(lines[file]) else ""
                self._note(KernelFault(kernel, DOES_NOT_COMPILE, what, (KernelPlace(file, line, column, text),)))
            if not found:
                self._note(
                    KernelFault(kernel, DOES_NOT_COMPILE, error.partition(" does not compile:")[2].strip() or error)
                )

    def lacks(self, kernel: str, why: str) -> None:
        """Note a kernel that uses what is not there."""
        with self._lock:
            self._kernels[kernel] = None
            self._skipped[why] = None

    def _note(self, fault: KernelFault) -> None:
        # Without a place the words tell faults apart, whatever the sizes of a launch were.
        where = tuple((p.file, p.line) for p in fault.places) or re.sub(r"\d+", "", fault.message)
        key = (fault.kernel, fault.fault, where)
        before = self._faults.get(key)
        self._faults[key] = fault if before is None else replace(before, count=before.count + fault.count)

    def harmless(self, kernel: str) -> bool:
        """Whether nothing is known of this kernel that could end a process which launches it unwatched."""
        with self._lock:
            return not any(fault.kernel == kernel and fault.fault in _DANGEROUS for fault in self._faults.values())

    def drain(self) -> KernelChecks:
        """Return what is known, and begin anew."""
        with self._lock:
            known = KernelChecks(
                tuple(self._kernels),
                self._launches,
                tuple(self._orders),
                tuple(self._skipped),
                tuple(self._faults.values()),
            )
            self._clear()
        return known


_active: Collector | None = None


def active() -> Collector | None:
    """Return the collector of this process, None where kernels are not checked."""
    return _active


@contextmanager
def checked_kernels(settings: CheckSettings, *, every_package: bool) -> Iterator[Collector]:
    """Check the kernels of `impl.metal.metal_kernel`, and with `every_package` all others too, until the block ends.

    Raises UsageError where there is no compiler.
    """
    global _active  # noqa: PLW0603 - one a process, as mx.fast.metal_kernel is
    try:
        find_toolchain(None)
    except ToolchainError as error:
        raise UsageError(f"kernels can't be checked here: {error}") from None
    collector = Collector(settings)
    with ExitStack() as stack:
        stack.enter_context(default_backend(collector.backend))
        if every_package:
            stack.enter_context(metal_text(collector.backend))
        before, _active = _active, collector
        try:
            yield collector
        finally:
            _active = before
