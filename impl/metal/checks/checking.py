"""Runs one call of a kernel with checks, in several lane orders."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from impl.metal.checks.differences import difference
from impl.metal.checks.finding import Checked, Fault, Finding
from impl.metal.checks.memory import Block, Blocks
from impl.metal.checks.native import Kernel, Launched, Region, Runtime, loaded, runtime
from impl.metal.checks.objects import checked_object, checked_runtime
from impl.metal.checks.probes import IF_NEEDED, Probes, bits
from impl.metal.checks.report import Words, merged
from impl.metal.cpu import CpuBackend, CpuRunner
from impl.metal.errors import CompileError, LaunchError
from impl.metal.signature import buffers, input_types
from impl.metal.toolchain import find_toolchain
from impl.metal.translation import translation_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import mlx.core as mx

    from impl.metal import native as plain
    from impl.metal.backend import Call
    from impl.metal.signature import Text

SEEDS = (1, 2)
TIME_LIMIT_S = 60.0
_MOST_THREADGROUP_BYTES = 32768


@dataclass(frozen=True)
class CheckingBackend:
    """Runs Metal text on this processor with checks, and hands what they say of each launch to `found`.

    seeds: of the random lane orders that are run beside forward and reverse. time_limit_s: for all orders of a launch
    together. The outputs are those of the forward order. clang, flush_denormals: as in CpuBackend.
    """

    found: Callable[[Checked], object]
    seeds: tuple[int, ...] = field(default=SEEDS, kw_only=True)
    time_limit_s: float = field(default=TIME_LIMIT_S, kw_only=True)
    clang: str | None = field(default=None, kw_only=True)
    flush_denormals: bool = field(default=True, kw_only=True)

    @property
    def name(self) -> str:
        """Its name in reports and messages."""
        return "cpu with checks"

    def runner(self, text: Text) -> CheckingRunner:
        """Return what runs `text`; nothing is compiled before the first call."""
        return CheckingRunner(self, text)


class CheckingRunner:
    """One kernel's text, with what was compiled of it so far."""

    def __init__(self, backend: CheckingBackend, text: Text) -> None:
        """Compile nothing yet."""
        self._backend = backend
        self._text = text
        self._kernels: dict[object, tuple[Kernel, Runtime]] = {}

    def compile(self, call: Call) -> None:
        """Compile for calls like this one, and run nothing. Raises as `run` does."""
        self._kernel(call)

    def run(self, call: Call) -> tuple[list[mx.array], plain.Report]:
        """Return the outputs of the forward order, and what was noticed; `found` is told before.

        Raises CompileError, NotCoveredError, ToolchainError, and LaunchError for a grid that no GPU takes.
        """
        outputs, checked, report = self.check(call)
        self._backend.found(checked)
        return outputs, report

    def check(self, call: Call) -> tuple[list[mx.array], Checked, plain.Report]:
        """Return the outputs of the forward order, what the checks say, and the forward order's report."""
        plain_backend = CpuBackend(lane_order="forward", threads=1, time_limit_s=0.0)
        # Refuses what every launch on this processor refuses.
        launch = CpuRunner(plain_backend, self._text)._launch(call)  # noqa: SLF001
        kernel, checked_runtime = self._kernel(call)
        blocks = Blocks(self._text, call, checked_runtime)
        try:
            return _Check(self._backend, self._text, call, kernel, checked_runtime, blocks).run(launch)
        finally:
            blocks.release()

    def _kernel(self, call: Call) -> tuple[Kernel, Runtime]:
        types = input_types(call.inputs)
        key = (types, tuple(call.output_dtypes), call.template, *map(type, (value for _, value in call.template)))
        if key not in self._kernels:
            toolchain = find_toolchain(self._backend.clang)
            unit = translation_unit(self._text, types, call.output_dtypes, call.template)
            count = len(buffers(self._text, types, call.output_dtypes))
            path = checked_object(unit, count, self._text.math_mode, toolchain, self._text.name)
            made = runtime(checked_runtime(toolchain))
            kernel = loaded(path)
            if kernel.threadgroup_bytes > _MOST_THREADGROUP_BYTES:
                raise CompileError(
                    f"kernel {self._text.name!r} has {kernel.threadgroup_bytes} bytes of threadgroup variables; "
                    f"the most is {_MOST_THREADGROUP_BYTES}"
                )
            self._kernels[key] = kernel, made
        return self._kernels[key]


def check_call(
    text: Text, call: Call, *, seeds: Sequence[int] = SEEDS, time_limit_s: float = TIME_LIMIT_S
) -> tuple[list[mx.array], Checked]:
    """Run one call with checks; return the outputs of the forward order, and what the checks say.

    Raises CompileError, NotCoveredError, ToolchainError, and LaunchError for a grid that no GPU takes.
    """
    backend = CheckingBackend(lambda _: None, seeds=tuple(seeds), time_limit_s=time_limit_s)
    outputs, checked, _ = CheckingRunner(backend, text).check(call)
    return outputs, checked


class _Check:
    """The launches of one call."""

    def __init__(
        self, backend: CheckingBackend, text: Text, call: Call, kernel: Kernel, loaded_runtime: Runtime, blocks: Blocks
    ) -> None:
        self._backend = backend
        self._text = text
        self._call = call
        self._kernel = kernel
        self._runtime = loaded_runtime
        self._blocks = blocks
        regions = [Region(b.name, b.kind, b.bytes, b.element_bytes) for b in blocks.all]
        self._words = Words(text, call, kernel.places, [*regions, *kernel.variables])
        self._probes = Probes(kernel, blocks)
        self._began = time.monotonic()
        self._findings: list[Finding] = []
        self._skipped: list[str] = []

    def run(self, launch: plain.Launch) -> tuple[list[mx.array], Checked, plain.Report]:
        orders: list[str] = []
        outputs: list[list[mx.array]] = []
        launched: list[Launched] = []
        first_took_s = 0.0
        for name, order, seed in self._orders():
            left_s = self._left_s()
            if orders and left_s <= 0:
                self._skipped.append(self._no_time(name))
                continue
            how = replace(launch, order=order, seed=seed)
            began = time.monotonic()
            one = self._launch(how)
            took_s = time.monotonic() - began
            if not orders:
                first_took_s = took_s
            elif one.status == "time limit" and left_s < 1 + 10 * first_took_s:
                # The orders before took the time: no sign of a loop that does not end in this one.
                self._skipped.append(self._no_time(name))
                continue
            orders.append(name)
            outputs.append(self._blocks.take_outputs())
            launched.append(one)
            self._take(one, how, took_s)
            if one.status != "done":
                break
        self._compare(orders, outputs, launched)
        if any(one.fences for one in launched):
            self._skipped.append("races: the kernel orders memory with atomic_thread_fence, which is not followed")
        checked = Checked(self._text.name, merged(self._findings), tuple(orders), tuple(self._skipped))
        return outputs[0], checked, launched[0].report

    def _no_time(self, order: str) -> str:
        return f"order {order}: the limit of {self._backend.time_limit_s:g} s is over; give a higher one"

    def _left_s(self) -> float:
        return self._backend.time_limit_s - (time.monotonic() - self._began)

    def _launch(
        self, how: plain.Launch, probe: tuple[int, int, int] = (0, 0, 0), limit_s: float = float("inf")
    ) -> Launched:
        self._blocks.fill_outputs()
        limited = replace(
            how, time_limit_s=max(min(self._left_s(), limit_s), 0.01), flush_denormals=self._backend.flush_denormals
        )
        return self._kernel.launch(self._blocks.all, limited, self._runtime, probe)

    def _orders(self) -> list[tuple[str, str, int]]:
        random = [(f"random {seed}", "random", seed) for seed in self._backend.seeds]
        return [("forward", "forward", 0), ("reverse", "reverse", 0), *random]

    def _take(self, one: Launched, how: plain.Launch, took_s: float) -> None:
        name = self._text.name
        if one.status == "out of memory":
            raise LaunchError(f"no memory to check kernel {name!r}")
        self._findings += [self._words.finding(f) for f in one.found if f.fault not in IF_NEEDED]
        for event, site, what in (
            (one.report.divergent_barriers, one.sites[1], "threads of one threadgroup wait at different barriers"),
            (one.report.barriers_after_return, one.sites[2], "some threads return without reaching this barrier"),
        ):
            if event.count:
                self._findings.append(
                    Finding(name, Fault.DIVERGENT_BARRIER, what, self._words.place(site), event.count)
                )
        if one.status == "time limit":
            limit = f"the kernel did not end within {self._backend.time_limit_s:g} s; it was last seen here"
            self._findings.append(Finding(name, Fault.TIME_LIMIT, limit, self._words.place(one.here)))
        elif one.status == "crashed":
            what = signal.Signals(one.fault_signal).name if one.fault_signal else "a fault"
            crash = f"the kernel ended with {what} after this place: a wild address, or more variables than fit a stack"
            self._findings.append(Finding(name, Fault.CRASHED, crash, self._words.place(one.here)))
        else:
            self._probe(one, how, took_s)
        for block in self._blocks.outputs():
            missing = one.unwritten.get(block.name)
            if missing is not None and len(missing):
                self._findings.append(self._unwritten(block, missing))

    def _probe(self, one: Launched, how: plain.Launch, took_s: float) -> None:
        """Report what was found where nothing is, if it matters."""
        before = bits(self._blocks)
        # A loop may take its length from such a value.
        limit_s = 5.0 + 10 * took_s

        def launch(probe: tuple[int, int, int]) -> Launched | None:
            return self._launch(how, probe, limit_s) if self._left_s() > 0 else None

        for found in one.found:
            if found.fault in IF_NEEDED and self._probes.needed(found, before, launch):
                self._findings.append(self._words.finding(found))
        if how.order == "forward":
            for variable, site in self._probes.variables(before, launch):
                what = f"{variable} is used without ever having been given a value: outputs depend on what it holds"
                self._findings.append(Finding(self._text.name, Fault.UNINITIALIZED_READ, what, self._words.place(site)))

    def _unwritten(self, block: Block, missing: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Finding:
        shape = tuple(self._call.output_shapes[block.position])
        ends = np.flatnonzero(np.diff(missing) != 1)
        begins, lasts = missing[np.r_[0, ends + 1]], missing[np.r_[ends, len(missing) - 1]]
        ranges = [f"{a}" if a == b else f"{a} to {b}" for a, b in list(zip(begins, lasts, strict=True))[:3]]
        more = f" and {len(begins) - 3} more ranges" if len(begins) > 3 else ""
        total = block.bytes // block.element_bytes
        first = ", ".join(str(i) for i in np.unravel_index(missing[0], shape)) if shape else "0"
        message = (
            f"{len(missing)} of {total} elements of {block.name} are written by no thread, the first is "
            f"{block.name}[{first}] (flat: {', '.join(ranges)}{more}); if that is meant, give init_value"
        )
        return Finding(self._text.name, Fault.UNWRITTEN_OUTPUT, message, (), len(missing))

    def _compare(self, orders: list[str], outputs: list[list[mx.array]], launched: list[Launched]) -> None:
        # Each of these explains a difference, or makes it the author's wish.
        if self._findings or any(one.atomics_in_conflict or one.fences for one in launched):
            return
        for order, made in zip(orders[1:], outputs[1:], strict=True):
            for name, first, other in zip(self._text.output_names, outputs[0], made, strict=True):
                apart = difference(first, other)
                if apart:
                    message = f"{name}{apart} (forward, {order})"
                    self._findings.append(Finding(self._text.name, Fault.ORDER_DEPENDENT, message))
                    return
