"""`--metal-text`: in a worker, `mx.fast.metal_kernel` of every package runs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impl.metal.backend import choose
from impl.metal.drop_in import metal_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def metal_text_here() -> tuple[AbstractContextManager[None], str]:
    """Return `impl.metal.metal_text()`, and words for the record that say what runs the text."""
    backend = choose(None)
    return metal_text(), "" if backend is None else f", Metal text on {backend.name}"
