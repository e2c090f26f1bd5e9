"""The worker: a fresh process that loads one subject and runs the instances it is sent, one at a time.

Whatever subject code does (crash, hang, print, eat memory) happens here and not in the process that keeps the record.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import platform
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from harness.checking import CheckSettings, with_checks

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.recording.replay import Recorded
    from harness.subjects.reference.kernel_checks import Collector

# Set by `--metal-text`, and inherited: `mx.fast.metal_kernel` of every package runs on this machine.
METAL_TEXT_VARIABLE = "METAL_ASSAY_METAL_TEXT"


@dataclass(frozen=True)
class Hello:
    """A worker's first message: the subject as it presents itself, and the device that MLX chose."""

    name: str
    kinds: frozenset[str]
    capabilities: frozenset[str]
    versions: dict[str, str]
    device: str


@dataclass(frozen=True)
class NoSubject:
    """A worker's first message when the subject can't be loaded."""

    message: str
    details: str = ""


@dataclass(frozen=True)
class Job:
    """One instance to run."""

    instance: Instance
    benchmark: bool = False
    observe: bool = False
    against: Recorded | None = None


def main(descriptor: int, subject_name: str) -> None:
    """Serve jobs over the socket `descriptor` until the other end closes it."""
    faulthandler.enable()
    threading.Thread(target=leave_with_parent, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as connection, ExitStack() as stack:
        from harness.errors import AssayError

        try:
            from harness.subjects.registry import load_subject

            device = mlx_device()
            collector = _checked_kernels(stack)
            if collector is not None:
                device += ", kernels checked"
            elif os.environ.get(METAL_TEXT_VARIABLE) == "1":
                # Before the subject: packages ask for Metal while they are imported.
                from harness.subjects.reference.metal_text import metal_text_here

                context, words = metal_text_here()
                stack.enter_context(context)
                device += words
            subject = load_subject(subject_name)
            hello = Hello(
                subject.name or subject_name, subject.kinds(), subject.capabilities, subject.versions(), device
            )
        except AssayError as error:
            connection.send(NoSubject(str(error)))
            return
        except BaseException as error:  # noqa: BLE001 - subject code may even call sys.exit
            message = f"subject '{subject_name}' can't be loaded: {type(error).__name__}: {error}"
            connection.send(NoSubject(message, traceback.format_exc()))
            return
        from harness.execute import execute

        _flush()
        connection.send(hello)
        while True:
            try:
                job: Job = connection.recv()
            except EOFError:
                return
            result = execute(job.instance, subject, benchmark=job.benchmark, observe=job.observe, against=job.against)
            if collector is not None:
                result = with_checks(result, collector.drain())
            _flush()
            connection.send(result)


def _checked_kernels(stack: ExitStack) -> Collector | None:
    """Let every kernel be checked while it runs, if that was asked for."""
    settings = CheckSettings.asked_for()
    if settings is None:
        return None
    from harness.subjects.reference.kernel_checks import checked_kernels

    return stack.enter_context(checked_kernels(settings, every_package=os.environ.get(METAL_TEXT_VARIABLE) == "1"))


def mlx_device() -> str:
    """Return the device that MLX chose, or what is missing."""
    try:
        import mlx.core as mx

        return str(mx.default_device())
    except ImportError as error:
        return f"none ({mlx_advice(error)})"


def mlx_advice(error: ImportError) -> str:
    """Say what is missing when MLX does not import."""
    if platform.system() == "Linux":
        return f"MLX does not import: {error}; on Linux install one of metal-assay[cpu], [cuda12], [cuda13]"
    return f"MLX does not import: {error}"


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # What C code printed waits in its own buffer.
    ctypes.CDLL(None).fflush(None)


def leave_with_parent(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a job."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
