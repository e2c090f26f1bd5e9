"""Which machine part runs Metal text: MLX's own Metal, or this processor. A backend is anything with these methods."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from impl.metal.errors import MetalTextError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.metal.native import Report
    from impl.metal.signature import TemplateArgument, Text

BACKEND_VARIABLE = "METAL_ASSAY_BACKEND"
METAL = "metal"
CPU = "cpu"

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


def choose(wanted: str | Backend | None) -> Backend | None:
    """Return the backend to use, or None for MLX's own Metal.

    `wanted`, else METAL_ASSAY_BACKEND, else Metal where MLX has it, else the CPU. Raises MetalTextError for a name
    that is none.
    """
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    name = wanted or os.environ.get(BACKEND_VARIABLE) or (METAL if _metal_is_available() else CPU)
    if name == METAL:
        if not _metal_is_available():
            raise MetalTextError(f"no Metal on this machine; write backend={CPU!r}, or leave it out")
        return None
    if name == CPU:
        from impl.metal.cpu import CpuBackend  # noqa: PLC0415 - a Mac that uses Metal needs none of it

        return CpuBackend()
    raise MetalTextError(f"no backend {name!r} (from backend= or {BACKEND_VARIABLE}); there are {METAL!r} and {CPU!r}")
