"""Runs Metal kernel text on the machine at hand, with the call of `mx.fast.metal_kernel`."""

from impl.metal.backend import Backend
from impl.metal.batch import compile_all
from impl.metal.cpu import CpuBackend
from impl.metal.drop_in import metal_text
from impl.metal.errors import (
    CompileError,
    LaunchError,
    MetalTextError,
    MetalTextWarning,
    NotCoveredError,
    ToolchainError,
)
from impl.metal.kernel import MetalKernel, metal_kernel
from impl.metal.native import Finding, Report

__all__ = [
    "Backend",
    "CompileError",
    "CpuBackend",
    "Finding",
    "LaunchError",
    "MetalKernel",
    "MetalTextError",
    "MetalTextWarning",
    "NotCoveredError",
    "Report",
    "ToolchainError",
    "compile_all",
    "metal_kernel",
    "metal_text",
]
