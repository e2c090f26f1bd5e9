"""Which machine part runs Metal text: MLX's own Metal, an NVIDIA GPU, or this processor; what each has to do."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx

from impl.metal.errors import MetalTextError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from impl.metal.native import Report
    from impl.metal.signature import TemplateArgument, Text

BACKEND_VARIABLE = "METAL_ASSAY_BACKEND"
METAL = "metal"
CPU = "cpu"
CUDA = "cuda"

# Taken now: `metal_text()` makes mx.metal.is_available answer for this package's own backends.
_metal_is_available = mx.metal.is_available


@dataclass(frozen=True)
class Call:
    """One call of a kernel, checked and converted."""

    inputs: tuple[mx.array, ...]
    template: tuple[tuple[str, TemplateArgument], ...]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    output_shapes: Sequence[Sequence[int]]
    output_dtypes: Sequence[mx.Dtype]
    init_value: float | None
    stream: Any = None


class Runner(Protocol):
    """A kernel's text on a backend."""

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        """Return the outputs of one call, and what was noticed."""

    def compile(self, call: Call) -> None:
        """Compile for calls like this one, and run nothing."""


class Backend(Protocol):
    """What runs the text of kernels."""

    @property
    def name(self) -> str:
        """Its name in METAL_ASSAY_BACKEND, reports and messages."""

    def runner(self, text: Text) -> Runner:
        """Return what runs `text`; nothing is compiled before the first call."""


_default: Backend | None = None


@contextmanager
def default_backend(backend: Backend | None) -> Iterator[None]:
    """Let kernels made until the block ends, in any thread, use `backend` where no other is named; None: as always."""
    global _default  # noqa: PLW0603 - one a process, as mx.fast.metal_kernel is
    before, _default = _default, backend
    try:
        yield
    finally:
        _default = before


def choose(wanted: str | Backend | None) -> Backend | None:
    """Return the backend to use, or None for MLX's own Metal.

    `wanted`, else that of `default_backend`, else METAL_ASSAY_BACKEND, else Metal where MLX has it, else the CPU.
    Raises MetalTextError for a name that is none.
    """
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    if wanted is None and _default is not None:
        return _default
    name = wanted or os.environ.get(BACKEND_VARIABLE) or _best()
    if name == METAL:
        if not _metal_is_available():
            raise MetalTextError(f"no Metal on this machine; write backend={CPU!r}, or leave it out")
        return None
    if name == CPU:
        from impl.metal.cpu import CpuBackend  # noqa: PLC0415 - a Mac that uses Metal needs none of it

        return CpuBackend()
    if name == CUDA:
        from impl.metal.cuda import CudaBackend  # noqa: PLC0415

        return CudaBackend()
    raise MetalTextError(
        f"no backend {name!r} (from backend= or {BACKEND_VARIABLE}); there are {METAL!r}, {CUDA!r} and {CPU!r}"
    )


def _best() -> str:
    return METAL if _metal_is_available() else CUDA if mx.cuda.is_available() else CPU
