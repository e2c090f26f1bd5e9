"""Loads compiled kernels and the runtime into this process, and launches them."""

from __future__ import annotations

import ctypes
import functools
import signal
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from impl.metal.errors import LaunchError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_loaded_runtime: list[ctypes._NamedFuncPointer] = []
_runtime_lock = threading.Lock()

ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_DONE, _INTERRUPTED, _TIME_LIMIT, _OUT_OF_MEMORY, _CANNOT_LAUNCH, _FAULT = 0, 1, 2, 3, 4, 5
_FINDINGS = ("divergent_simd", "divergent_barriers", "barriers_after_return", "inactive_reads")


class _Request(ctypes.Structure):
    """`msl_launch_request` of the runtime."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("threadgroup", ctypes.c_uint32 * 3),
        ("order", ctypes.c_uint32),
        ("flush_denormals", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("waits", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("time_limit_ns", ctypes.c_uint64),
        ("buffers", ctypes.c_void_p),
        ("run_thread", ctypes.c_void_p),
        ("run_group", ctypes.c_void_p),
        ("poison", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("count", ctypes.c_uint64 * len(_FINDINGS)),
        ("site", ctypes.c_uint32 * len(_FINDINGS)),
        ("fault_signal", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Finding:
    """How often something happened in a launch, and the line and column of the body where it did first."""

    count: int = 0
    line: int = 0
    column: int = 0


@dataclass(frozen=True)
class Report:
    """What a launch did that its author may want to know.

    divergent_simd: simd operations at which only a part of the running lanes met (legal; the others have no say).
    divergent_barriers: barriers at which threads of a threadgroup stood at different places (undefined in Metal).
    barriers_after_return: barriers that threads never reached because they had returned (undefined in Metal).
    inactive_reads: shuffles that read a lane which took no part (undefined in Metal; NaN bytes here).
    """

    divergent_simd: Finding = Finding()
    divergent_barriers: Finding = Finding()
    barriers_after_return: Finding = Finding()
    inactive_reads: Finding = Finding()


@dataclass(frozen=True)
class Launch:
    """How a kernel is run."""

    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    order: str
    seed: int
    flush_denormals: bool
    workers: int
    time_limit_s: float


@functools.cache
def loaded_kernel(path: Path, runtime: Path) -> LoadedKernel:
    """Return the kernel compiled to `path`, loaded once a process: packages make the same kernel again and again."""
    return LoadedKernel(path, runtime)


class LoadedKernel:
    """A compiled kernel in this process, with a copy of its threadgroup variables for each worker."""

    def __init__(self, path: Path, runtime: Path) -> None:
        """Load the shared object at `path`; `runtime` is the runtime's."""
        self._launch = _runtime(runtime)
        self._path = path
        self._copies = [_load(str(path))]
        first = self._copies[0]
        first.msl_threadgroup_bytes.restype = ctypes.c_uint64
        self.threadgroup_bytes: int = first.msl_threadgroup_bytes()
        self._waits: int = first.msl_waits()
        self._places = ctypes.addressof(ctypes.c_int32.in_dll(first, "msl_places"))
        self._entries: dict[int, tuple[ctypes.Array[ctypes.c_void_p], ...]] = {}
        self._lock = threading.Lock()

    def launch(self, buffers: Sequence[int], launch: Launch) -> Report:
        """Run over the grid with the addresses `buffers`.

        Raises KeyboardInterrupt on Ctrl-C, and LaunchError at the time limit or without memory for the threads.
        """
        request = _Request()
        request.grid[:] = launch.grid
        request.threadgroup[:] = launch.threadgroup
        request.order = ORDERS[launch.order]
        request.flush_denormals = launch.flush_denormals
        request.workers = launch.workers
        request.waits = self._waits
        request.places = self._places
        request.seed = launch.seed
        request.time_limit_ns = int(launch.time_limit_s * 1e9)
        addresses = (ctypes.c_uint64 * max(len(buffers), 1))(*buffers)
        request.buffers = ctypes.addressof(addresses)
        # Threadgroup variables belong to the loaded copies: one launch at a time may use them.
        with self._lock:
            entries = self._for_workers(launch.workers)
            request.run_thread, request.run_group, request.poison = (ctypes.addressof(array) for array in entries)
            status = self._launch(ctypes.byref(request))
        _raise_for(status, launch, request)
        found = zip(request.count, request.site, strict=True)
        return Report(*(Finding(count, site >> 10, site & 1023) for count, site in found))

    def _for_workers(self, workers: int) -> tuple[ctypes.Array[ctypes.c_void_p], ...]:
        if workers not in self._entries:
            while self.threadgroup_bytes and len(self._copies) < workers:
                self._copies.append(_load_again(self._path))
            copies = [self._copies[i % len(self._copies)] for i in range(workers)]
            self._entries[workers] = tuple(
                (ctypes.c_void_p * workers)(*(ctypes.cast(copy[name], ctypes.c_void_p).value for copy in copies))
                for name in ("msl_run_thread", "msl_run_group", "msl_poison")
            )
        return self._entries[workers]


def _raise_for(status: int, launch: Launch, request: _Request) -> None:
    if status == _DONE:
        return
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    if status == _TIME_LIMIT:
        raise LaunchError(f"the kernel did not end within {launch.time_limit_s:g} s")
    if status == _OUT_OF_MEMORY:
        raise LaunchError(f"no memory for the stacks of {launch.workers} threadgroups of {launch.threadgroup} threads")
    if status == _FAULT and request.fault_signal == signal.SIGFPE:
        raise LaunchError("the kernel divided an integer by zero, or the smallest integer by -1 (undefined in Metal)")
    if status == _FAULT:
        raise LaunchError(
            f"the kernel touched memory that is not its own, at {request.fault_address:#x}: an index out of bounds, "
            "or more variables than a thread has room for"
        )
    raise LaunchError("too many kernels run at the same time, or the system has no timer left for their time limits")


def _runtime(path: Path) -> ctypes._NamedFuncPointer:
    # Kernels find libm's and the runtime's functions among the global ones. So a process has one runtime, even when
    # two compilers made two: the first serves the kernels of both.
    with _runtime_lock:
        if not _loaded_runtime:
            _load("libm.so.6", ctypes.RTLD_GLOBAL)
            launch = _load(str(path), ctypes.RTLD_GLOBAL).msl_launch
            launch.restype = ctypes.c_uint32
            launch.argtypes = [ctypes.c_void_p]
            _loaded_runtime.append(launch)
        return _loaded_runtime[0]


def _load(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name, mode=mode)
    except OSError as error:
        raise ToolchainError(f"a compiled kernel does not load into this process (glibc is needed): {error}") from None


def _load_again(path: Path) -> ctypes.CDLL:
    # The loader takes an equal name or an equal file for the same library: each copy is a new file under a name that
    # was never used, gone from the disk as soon as it is loaded.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".copy-") as copy:
        copy.write(path.read_bytes())
        copy.flush()
        return _load(copy.name)
