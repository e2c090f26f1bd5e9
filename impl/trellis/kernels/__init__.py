"""Metal texts of this package, as files beside this one."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def kernel_text(name: str) -> str:
    """Return the text of `name`.metal."""
    return (files(__name__) / f"{name}.metal").read_text(encoding="utf-8")
