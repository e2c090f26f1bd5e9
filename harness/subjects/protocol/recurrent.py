"""Kind `recurrent`: caches of layers that carry a state instead of keys and values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecurrentSpec:
    """The recurrent cache that a case asks for."""

    rows: int


class Recurrent:
    """One recurrent cache under test (kind `recurrent`)."""
