"""Loads checked kernels and their runtime into this process, and launches them, one at a time."""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from impl.metal import native
from impl.metal.checks.table import PRIVATE, THREADGROUP
from impl.metal.native import _load, _Request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from impl.metal.checks.memory import Block

_lock = threading.Lock()
_DONE, _INTERRUPTED, _TIME_LIMIT, _OUT_OF_MEMORY, _CANNOT_LAUNCH, _FAULT = range(6)


class _Memory(ctypes.Structure):
    """`Memory` of runtime/regions.h."""

    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("valid", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("element_bytes", ctypes.c_uint32),
        ("initialized", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


class Found(ctypes.Structure):
    """`Found` of runtime/faults.h: a fault at a place, with the circumstances of its first time."""

    fault: int
    site: int
    other_site: int
    detail: int
    region: int
    bytes: int
    offset: int
    value: float
    group: int
    other_group: int
    thread: int
    other_thread: int
    count: int
    _fields_ = [
        ("fault", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("detail", ctypes.c_uint32),
        ("region", ctypes.c_int32),
        ("bytes", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("value", ctypes.c_double),
        ("group", ctypes.c_uint32),
        ("other_group", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32),
        ("count", ctypes.c_uint64),
    ]


class _CheckRequest(ctypes.Structure):
    """`msl_check_request` of runtime/checked.cpp."""

    _fields_ = [
        ("launch", ctypes.c_void_p),
        ("memories", ctypes.c_void_p),
        ("poison", ctypes.c_void_p),
        ("site_flags", ctypes.c_void_p),
        ("memory_count", ctypes.c_uint32),
        ("site_count", ctypes.c_uint32),
        ("probe", ctypes.c_uint32 * 3),
        ("found", ctypes.c_void_p),
        ("found_count", ctypes.c_uint32),
        ("here", ctypes.c_uint32),
        ("atomics_in_conflict", ctypes.c_uint32),
        ("fences", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Region:
    """A memory that faults speak of. elements: how many it holds, of `element_bytes` each."""

    name: str
    kind: int
    bytes: int
    element_bytes: int


@dataclass(frozen=True)
class Launched:
    """One launch. status: `done`, `time limit`, `crashed` or `out of memory`; here: the place that was passed last.

    unwritten: for each output the elements that were not written as a whole. events: the counts of `native.Report`.
    """

    status: str
    found: tuple[Found, ...]
    here: int
    report: native.Report
    sites: tuple[int, ...]
    unwritten: dict[str, NDArray[np.intp]]
    atomics_in_conflict: bool
    fences: bool
    fault_signal: int = 0


class Runtime:
    """The runtime of checked kernels, loaded."""

    def __init__(self, path: Path) -> None:
        """Load it; its functions are then there for the kernels."""
        _load("libm.so.6", ctypes.RTLD_GLOBAL)
        library = _load(str(path), ctypes.RTLD_GLOBAL)
        self.launch = library.msl_checked_launch
        self.launch.restype = ctypes.c_uint32
        self.launch.argtypes = [ctypes.c_void_p]
        self._reserve = library.msl_check_reserve
        self._reserve.restype = ctypes.c_uint64
        self._reserve.argtypes = [ctypes.c_uint64]
        self._release = library.msl_check_release
        self._release.restype = None
        self._release.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        self.unwritten = library.msl_check_unwritten
        self.unwritten.restype = None
        self.unwritten.argtypes = [ctypes.c_uint32, ctypes.c_void_p]

    def reserve(self, size: int) -> int:
        """Return the address of `size` bytes with nothing near them, or 0."""
        return int(self._reserve(size))

    def release(self, begin: int, size: int) -> None:
        """Give back what `reserve(size)` returned."""
        self._release(begin, size)


@functools.cache
def _runtime(path: Path) -> Runtime:
    return Runtime(path)


_first: list[Runtime] = []


def runtime(path: Path) -> Runtime:
    """Return the runtime: a process has one, because kernels find its functions by name."""
    with _lock:
        if not _first:
            _first.append(_runtime(path))
        return _first[0]


@functools.cache
def loaded(path: Path) -> Kernel:
    """Return the checked kernel compiled to `path`, loaded once a process; the runtime must be there."""
    return Kernel(path)


class Kernel:
    """A checked kernel in this process."""

    def __init__(self, path: Path) -> None:
        """Load it and read its table."""
        library = _load(str(path))
        told = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "msl_check_table"))))
        self.places: list[tuple[str, int, int]] = [tuple(place) for place in told["places"]]
        names = told["variables"]
        count = len(names)
        addresses = (ctypes.c_uint64 * count).in_dll(library, "msl_check_addresses")
        sizes = (ctypes.c_uint64 * count).in_dll(library, "msl_check_sizes")
        elements = (ctypes.c_uint64 * count).in_dll(library, "msl_check_elements")
        self._addresses = list(addresses)
        self.fresh: list[tuple[str, int]] = [tuple(variable) for variable in told["fresh"]]
        self.variables = [Region(name, kind, sizes[i], max(elements[i], 1)) for i, (name, kind) in enumerate(names)]
        self.threadgroup_bytes = sum(v.bytes for v in self.variables if v.kind == THREADGROUP)
        self._flags = (ctypes.c_uint32 * (len(self.places) + 1))()
        for number in told["used"]:
            self._flags[number] = 1
        self._entries = {
            name: ctypes.cast(library[name], ctypes.c_void_p).value or 0
            for name in ("msl_run_thread", "msl_run_group", "msl_poison")
        }
        self._places = ctypes.addressof(ctypes.c_int32.in_dll(library, "msl_places"))
        self._library = library

    def launch(
        self, blocks: Sequence[Block], launch: native.Launch, runtime: Runtime, probe: tuple[int, int, int] = (0, 0, 0)
    ) -> Launched:
        """Run over the grid. Raises KeyboardInterrupt on Ctrl-C.

        probe: `Probe` of runtime/faults.h: a fault, its place, and the byte that stands there instead of nothing.
        """
        request = _Request()
        request.grid[:] = launch.grid
        request.threadgroup[:] = launch.threadgroup
        request.order = native.ORDERS[launch.order]
        request.flush_denormals = launch.flush_denormals
        request.workers = 1
        request.places = self._places
        request.seed = launch.seed
        request.time_limit_ns = int(launch.time_limit_s * 1e9)
        pointers = (ctypes.c_uint64 * max(len(blocks), 1))(*(block.pointer for block in blocks))
        request.buffers = ctypes.addressof(pointers)
        entries = [ctypes.c_void_p(self._entries[name]) for name in ("msl_run_thread", "msl_run_group")]
        request.run_thread, request.run_group = (ctypes.addressof(entry) for entry in entries)
        memories = (_Memory * (len(blocks) + len(self.variables)))()
        for memory, block in zip(memories, blocks, strict=False):
            memory.begin, memory.bytes, memory.kind = block.begin, block.bytes, block.kind
            memory.valid = 0 if block.valid is None else block.valid.__array_interface__["data"][0]
            memory.element_bytes, memory.initialized = block.element_bytes, block.initialized
        for i, variable in enumerate(self.variables):
            memory = memories[len(blocks) + i]
            memory.begin = 0 if variable.kind == PRIVATE else self._addresses[i]
            memory.bytes, memory.kind, memory.element_bytes = variable.bytes, variable.kind, variable.element_bytes
        check = _CheckRequest()
        check.launch = ctypes.addressof(request)
        check.memories = ctypes.addressof(memories)
        check.poison = self._entries["msl_poison"]
        check.site_flags = ctypes.addressof(self._flags)
        check.memory_count = len(memories)
        check.probe[:] = probe
        check.site_count = len(self._flags)
        with _lock:
            status = runtime.launch(ctypes.byref(check))
            if status == _INTERRUPTED:
                raise KeyboardInterrupt
            raw = ctypes.string_at(check.found, check.found_count * ctypes.sizeof(Found)) if check.found_count else b""
            unwritten = {}
            for number, block in enumerate(blocks):
                if status == _DONE and block in blocks_to_write(blocks):
                    marks = np.zeros(block.bytes // block.element_bytes, np.uint8)
                    runtime.unwritten(number, marks.__array_interface__["data"][0])
                    unwritten[block.name] = np.flatnonzero(marks)
        found = (Found * check.found_count).from_buffer_copy(raw) if raw else ()
        names = {_DONE: "done", _TIME_LIMIT: "time limit", _FAULT: "crashed"}
        counts = zip(request.count, request.site, strict=True)
        report = native.Report(*(self._event(count, site) for count, site in counts))
        return Launched(
            names.get(status, "out of memory"),
            tuple(found),
            check.here,
            report,
            tuple(request.site),
            unwritten,
            bool(check.atomics_in_conflict),
            bool(check.fences),
            request.fault_signal,
        )

    def _event(self, count: int, site: int) -> native.Finding:
        _, line, column = self.places[site - 1] if 0 < site <= len(self.places) else ("", 0, 0)
        return native.Finding(count, line, column)


def blocks_to_write(blocks: Sequence[Block]) -> list[Block]:
    """Return the outputs that begin without values."""
    return [block for block in blocks if not block.initialized]
