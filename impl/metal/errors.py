"""The errors of running Metal text; every message says what to write instead where that is known."""

from __future__ import annotations


class MetalTextError(Exception):
    """Base of everything that running Metal text raises, beside MLX's own ValueError and RuntimeError."""


class ToolchainError(MetalTextError):
    """No usable compiler on this machine."""


class CompileError(MetalTextError):
    """The text does not compile, or holds something that Metal refuses."""


class NotCoveredError(MetalTextError):
    """The text is fine as Metal, and uses something that this backend does not have."""


class LaunchError(MetalTextError):
    """The grid, the threadgroup or the inputs do not fit."""


class TracedError(MetalTextError):
    """The inputs have no values yet, because MLX traces the function."""


class MetalTextWarning(UserWarning):
    """The kernel did something that is undefined in Metal, and went on."""
