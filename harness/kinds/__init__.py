"""Kinds: one package each, saying what its cases may contain, how an instance is run and what is timed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.kinds.base import Kind

KIND_NAMES = ("affine", "attention", "donor", "kernel", "recurrent", "ring", "trellis")


def get_kind(name: str) -> Kind:
    """Return the kind called `name`; importing it late keeps start-up short. Raises KeyError for an unknown name."""
    if name not in KIND_NAMES:
        raise KeyError(name)
    kind: Kind = import_module(f"harness.kinds.{name}").KIND
    return kind
