"""Kernels compiled for a device that is elsewhere, into a folder that travels to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from harness.checking import CheckSettings
from harness.errors import UsageError
from harness.subjects.reference.kernel import ReferenceKernels
from harness.subjects.reference.kernel_checks import Collector
from impl.metal import CompileError, NotCoveredError, ToolchainError
from impl.metal.cuda import CudaBackend
from impl.metal.cuda.ptx import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.outcome import KernelChecks
    from harness.subjects.protocol import KernelLaunch, KernelText


def compile_ahead(
    launches: Iterable[tuple[KernelText, KernelLaunch]], target: str, folder: Path, jobs: int
) -> KernelChecks:
    """Compile a kernel for each launch, and run nothing; return what does not compile, and what the device lacks.

    Raises UsageError for a target that is not known, and where there is no compiler.
    """
    if target not in TARGETS:
        raise UsageError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    kernels = ReferenceKernels(CudaBackend(target=target, cache=folder.absolute()))
    collector = Collector(CheckSettings())

    def one(given: tuple[KernelText, KernelLaunch]) -> None:
        text, launch = given
        try:
            kernels.prepare(text, launch)
        except CompileError as error:
            lines = {"source": text.source.splitlines(), "header": text.header.splitlines()}
            collector.refused(text.name, str(error), lines)
        except NotCoveredError as error:
            collector.lacks(text.name, str(error).splitlines()[0])

    try:
        # Compilers are processes of their own: threads are enough to keep all cores busy.
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, launches))
    except ToolchainError as error:
        raise UsageError(str(error)) from None
    return collector.drain()
