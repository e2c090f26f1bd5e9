"""The `cpu` backend: compiles the text for this processor and runs it over the grid."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from impl.metal import arrays, compiler, native
from impl.metal.errors import CompileError, LaunchError, MetalTextWarning
from impl.metal.signature import buffers, input_types
from impl.metal.toolchain import cores, find_toolchain
from impl.metal.translation import translation_unit

if TYPE_CHECKING:
    import mlx.core as mx

    from impl.metal.backend import Call
    from impl.metal.signature import Text

LANE_SEED_VARIABLE = "METAL_ASSAY_LANE_SEED"
THREADS_VARIABLE = "METAL_ASSAY_THREADS"
TIME_LIMIT_VARIABLE = "METAL_ASSAY_TIME_LIMIT"

# Of Apple GPUs since the M1.
_MOST_THREADS = 1024
_MOST_THREADGROUP_BYTES = 32768
# 64 workers of 1024 stacks would need more mappings than Linux grants a process.
_MOST_STACKS = 16384


@dataclass(frozen=True)
class CpuBackend:
    """Runs Metal text on this processor.

    lane_order: `forward`, `reverse` or `random`, the order in which threads get their turn; with `random`, lane_seed
    chooses it. threads: operating system threads, each with threadgroups of its own; 0 for one a core.
    time_limit_s: 0 for none. flush_denormals: as GPUs do with float. clang: the compiler to use.

    What is left out comes from METAL_ASSAY_LANE_SEED (a number, `forward` or `reverse`), METAL_ASSAY_THREADS,
    METAL_ASSAY_TIME_LIMIT (seconds) and METAL_ASSAY_CLANG.
    """

    lane_order: str | None = None
    lane_seed: int = 0
    threads: int | None = None
    time_limit_s: float | None = None
    flush_denormals: bool = True
    clang: str | None = None

    @property
    def name(self) -> str:
        """Its name in METAL_ASSAY_BACKEND."""
        return "cpu"

    def runner(self, text: Text) -> CpuRunner:
        """Return what runs `text`."""
        if self.lane_order is not None and self.lane_order not in native.ORDERS:
            raise LaunchError(f"lane_order {self.lane_order!r} is none of {', '.join(native.ORDERS)}")
        return CpuRunner(self, text)


class CpuRunner:
    """One kernel's text, with what was compiled of it so far."""

    def __init__(self, backend: CpuBackend, text: Text) -> None:
        """Compile nothing yet."""
        self._backend = backend
        self._text = text
        self._loaded: dict[object, native.LoadedKernel] = {}
        self._warned = False

    def compile(self, call: Call) -> None:
        """Compile for calls like this one, and run nothing. Raises as `run` does."""
        self._kernel(call)

    def run(self, call: Call) -> tuple[list[mx.array], native.Report]:
        """Return the outputs, evaluated, and what was noticed.

        Raises CompileError, NotCoveredError, ToolchainError, and LaunchError for a grid that no GPU takes.
        """
        launch = self._launch(call)
        given = [arrays.row_contiguous(x) if self._text.ensure_row_contiguous else x for x in call.inputs]
        memories = [arrays.memory(x) for x in given]
        kernel = self._kernel(call)
        made, targets = arrays.outputs(call.output_shapes, call.output_dtypes, call.init_value)
        owners: list[object] = [memories, targets]  # alive until the launch is over
        addresses = []
        for buffer in buffers(self._text, input_types(given), call.output_dtypes):
            if buffer.role == "output":
                addresses.append(targets[buffer.position].address)
            elif buffer.role == "input":
                addresses.append(memories[buffer.position].address)
            else:
                extra = _extra(memories[buffer.position], buffer.role)
                owners.append(extra)
                addresses.append(extra.__array_interface__["data"][0])
        report = kernel.launch(addresses, launch)
        del owners
        self._warn(report)
        return made, report

    def _kernel(self, call: Call) -> native.LoadedKernel:
        types = input_types(call.inputs)
        key = (types, tuple(call.output_dtypes), call.template, *map(type, (value for _, value in call.template)))
        if key not in self._loaded:
            toolchain = find_toolchain(self._backend.clang)
            unit = translation_unit(self._text, types, call.output_dtypes, call.template)
            path = compiler.shared_object(unit, self._text.math_mode, toolchain, self._text.name)
            loaded = native.loaded_kernel(path, compiler.runtime_library(toolchain))
            if loaded.threadgroup_bytes > _MOST_THREADGROUP_BYTES:
                raise CompileError(
                    f"kernel {self._text.name!r} has {loaded.threadgroup_bytes} bytes of threadgroup variables; "
                    f"the most is {_MOST_THREADGROUP_BYTES}"
                )
            self._loaded[key] = loaded
        return self._loaded[key]

    def _launch(self, call: Call) -> native.Launch:
        size = call.threadgroup[0] * call.threadgroup[1] * call.threadgroup[2]
        if size > _MOST_THREADS:
            # MLX's words.
            raise ValueError(
                f"Thread group size ({size}) is greater than  the maximum allowed threads per threadgroup "
                f"({_MOST_THREADS})."
            )
        if min(*call.grid, *call.threadgroup) < 1:
            raise LaunchError(f"grid {call.grid} and threadgroup {call.threadgroup} must be positive in all dimensions")
        order, seed = self._lane_order()
        threads = self._backend.threads or _number(THREADS_VARIABLE) or cores()
        limit = self._backend.time_limit_s
        return native.Launch(
            grid=call.grid,
            threadgroup=call.threadgroup,
            order=order,
            seed=seed,
            flush_denormals=self._backend.flush_denormals,
            workers=int(max(1, min(threads, _MOST_STACKS // size, 256))),
            time_limit_s=_number(TIME_LIMIT_VARIABLE) if limit is None else limit,
        )

    def _lane_order(self) -> tuple[str, int]:
        if self._backend.lane_order is not None:
            return self._backend.lane_order, self._backend.lane_seed
        wanted = os.environ.get(LANE_SEED_VARIABLE, "")
        if wanted in native.ORDERS:
            return wanted, 0
        return ("random", int(_number(LANE_SEED_VARIABLE))) if wanted else ("forward", 0)

    def _warn(self, report: native.Report) -> None:
        # Once a kernel: its author has to know, and a loop of calls must stay readable.
        if self._warned:
            return
        for finding, what in (
            (report.divergent_barriers, "threads of one threadgroup waited at different barriers"),
            (report.barriers_after_return, "a barrier was reached by some threads after others had returned"),
        ):
            if finding.count:
                self._warned = True
                message = f"kernel {self._text.name!r}, source:{finding.line}:{finding.column}: {what}"
                warnings.warn(f"{message}; this is undefined in Metal", MetalTextWarning, stacklevel=4)


def _extra(memory: arrays.Memory, role: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    if role == "shape":
        return np.array(memory.shape, np.int32)
    if role == "strides":
        return np.array(memory.strides, np.int64)
    return np.array([len(memory.shape)], np.int32)


def _number(variable: str) -> float:
    text = os.environ.get(variable, "")
    if not text:
        return 0
    try:
        return float(text)
    except ValueError:
        raise LaunchError(f"{variable}={text!r} is not a number") from None
