"""The `cuda` backend: launches, and what MLX's launch of CUDA kernels does not give by itself."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from impl.metal import arrays, cache
from impl.metal.cuda import ptx
from impl.metal.cuda.entry import entry
from impl.metal.cuda.lowering import ENTRY_NAME
from impl.metal.errors import LaunchError, MetalTextError
from impl.metal.native import Report
from impl.metal.signature import buffers, input_types
from impl.metal.translation import translation_unit

if TYPE_CHECKING:
    from pathlib import Path

    from impl.metal.backend import Call
    from impl.metal.signature import Text

_MOST_THREADS = 1024  # of a threadgroup, on Apple's GPUs since the M1 and on NVIDIA's
_MOST_GROUPS = 2**31 - 1
_MOST_GRID = 2**31 - 1  # MLX takes the grid in threads, as ints
_ENTRY = re.compile(rf"(\.visible \.entry ){ENTRY_NAME}(\((?:[^()]*)\))", re.DOTALL)


@dataclass(frozen=True)
class CudaBackend:
    """Runs Metal text on an NVIDIA GPU, by MLX's CUDA build; without a GPU it compiles.

    target: what to compile for, such as `sm_90`; the GPU's own unless given. cache: the folder for the compiled
    kernels. poison: fill threadgroup variables, and outputs that are all floats, with NaN before the kernel runs, so
    that unwritten memory shows; costs a little time. clang: the compiler to use.

    What is left out comes from METAL_ASSAY_TARGET, METAL_ASSAY_CACHE and METAL_ASSAY_CLANG.
    """

    target: str | None = None
    cache: Path | None = None
    poison: bool = True
    clang: str | None = None

    @property
    def name(self) -> str:
        """Its name in METAL_ASSAY_BACKEND."""
        return "cuda"

    def runner(self, text: Text) -> CudaRunner:
        """Return what runs `text`."""
        return CudaRunner(self, text)


class CudaRunner:
    """One kernel's text, with what was compiled of it so far."""

    def __init__(self, backend: CudaBackend, text: Text) -> None:
        """Compile nothing yet."""
        self._backend = backend
        self._text = text
        self._made: dict[object, str] = {}

    def compile(self, call: Call) -> None:
        """Compile for calls like this one into the cache, and run nothing; needs no GPU. Raises as `run` does."""
        self._ptx(call)

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        """Return the outputs, which MLX computes when they are evaluated, as on Metal.

        Raises CompileError, NotCoveredError, ToolchainError, and LaunchError for a grid that no GPU takes.
        """
        launch = blocks(call.grid, call.threadgroup)
        if not mx.cuda.is_available():
            raise LaunchError("no CUDA on this machine: MLX's CUDA build and an NVIDIA GPU run this kernel")
        size = math.prod(call.threadgroup)
        name, source = _named(self._text.name, self._ptx(call), size)
        outputs: list[mx.array] = mx.fast.precompiled_cuda_kernel(
            name=name,
            compiled_source=source,
            inputs=self._arguments(call),
            output_shapes=[tuple(shape) for shape in call.output_shapes],
            output_dtypes=call.output_dtypes,
            scalars=[*call.grid, *call.threadgroup],
            grid=launch,
            threadgroup=(size, 1, 1),
            init_value=self._begin(call),
            ensure_row_contiguous=self._text.ensure_row_contiguous,
            stream=call.stream,
        )
        return outputs, Report()

    def _arguments(self, call: Call) -> list[mx.array]:
        given = []
        for buffer in buffers(self._text, input_types(call.inputs), call.output_dtypes):
            if buffer.role == "output":
                continue
            x = call.inputs[buffer.position]
            if buffer.role == "input":
                given.append(x)
            elif buffer.role == "shape":
                given.append(_numbers(x.shape, mx.int32))
            elif buffer.role == "ndim":
                given.append(_numbers((x.ndim,), mx.int32))
            else:
                given.append(_numbers(self._strides(x), mx.int64))
        return given

    def _strides(self, x: mx.array) -> tuple[int, ...]:
        if not self._text.ensure_row_contiguous:
            try:
                return arrays.memory(x).strides
            except MetalTextError:
                raise MetalTextError(
                    f"kernel {self._text.name!r} reads the strides of inputs that may lie in any way, and inside "
                    "mx.compile or mx.vmap they are not known yet; call it without the transformation"
                ) from None
        strides = [1]
        for size in reversed(x.shape[1:]):
            strides.insert(0, strides[0] * size)
        return tuple(strides)

    def _begin(self, call: Call) -> float | None:
        if call.init_value is not None or not self._backend.poison:
            return call.init_value
        floats = all(mx.issubdtype(dtype, mx.inexact) for dtype in call.output_dtypes)
        return math.nan if floats else None

    def _ptx(self, call: Call) -> str:
        types = input_types(call.inputs)
        key = (types, tuple(call.output_dtypes), call.template, *map(type, (value for _, value in call.template)))
        if key not in self._made:
            self._made[key] = ptx.ptx(
                translation_unit(self._text, types, call.output_dtypes, call.template, entry),
                self._text.math_mode,
                self._text.name,
                target=ptx.target(self._backend.target),
                poison=self._backend.poison,
                clang=self._backend.clang,
                folder=self._backend.cache or cache.directory(),
            )
        return self._made[key]


def blocks(grid: tuple[int, int, int], threadgroup: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the threads to launch in x and y for a Metal grid, in blocks of one row each; entry.h finds them again.

    CUDA grids are small in y and z, so that all groups stand in one row as long as they fit. Raises ValueError and
    LaunchError for what Metal refuses, and LaunchError for more groups than can be counted.
    """
    size = math.prod(threadgroup)
    if size > _MOST_THREADS:
        # MLX's words.
        raise ValueError(
            f"Thread group size ({size}) is greater than  the maximum allowed threads per threadgroup "
            f"({_MOST_THREADS})."
        )
    if min(*grid, *threadgroup) < 1:
        raise LaunchError(f"grid {grid} and threadgroup {threadgroup} must be positive in all dimensions")
    groups = math.prod(-(-all_threads // each) for all_threads, each in zip(grid, threadgroup, strict=True))
    if groups > _MOST_GROUPS:
        raise LaunchError(
            f"grid {grid} in threadgroups {threadgroup} makes {groups} groups; the most is {_MOST_GROUPS}"
        )
    rows = -(-groups * size // _MOST_GRID)
    row = -(-groups // rows)
    return row * size, rows, 1


@functools.lru_cache(256)
def _named(name: str, text: str, size: int) -> tuple[str, bytes]:
    """Return a name that only this PTX has, because MLX finds kernels by it, and the PTX for groups of `size`."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    unique = f"metal_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}_{size}"
    # The number of registers that a thread may have follows from the size of a block.
    made, count = _ENTRY.subn(rf"\g<1>{unique}\g<2>\n.maxntid {size}, 1, 1", text)
    if count != 1:
        raise MetalTextError(f"kernel {name!r}: its PTX has {count} entries")
    return unique, made.encode()


@functools.lru_cache(1024)
def _numbers(values: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    return mx.array(values, dtype=dtype)
