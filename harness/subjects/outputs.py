"""What a timed call returns: MLX or NumPy arrays, evaluated or not, alone or in the answers of the protocol.

The clock evaluates them itself, so a call that only promises its work is charged for it all the same.
"""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

# Numbers, masks in words and None stand beside arrays in answers.
_PLAIN = (type(None), str, int, float, bool)
# Several, because a call has more than one array in hand at a time.
POISONED_COPIES = 3
MOST_POISONED_BYTES = 64 << 20


class OutputError(TypeError):
    """A timed call returned something in which work could hide from the clock, or nothing at all."""


def force(output: object) -> None:
    """Evaluate everything in `output` and wait for the device; raises OutputError for what is no array of ours."""
    lazy: list[mx.array] = []
    if not _collect(output, lazy):
        raise OutputError("returned no array; a timed call returns what it computed, evaluated or not")
    if lazy:
        core = sys.modules["mlx.core"]
        core.eval(lazy)
        core.synchronize()


def take(output: Any) -> Any:
    """Return a copy of `output` with NumPy arrays in the place of all others."""
    return _mapped(output, _copied)


def poison(sample: Any) -> None:
    """Fill memory that the next outputs of the form of `sample`, as `take` returned it, are likely to lie in.

    An allocator hands out what was freed last: what a call does not write then holds the bytes 0xFF, NaN in every
    floating-point dtype, and no earlier answer.
    """
    core = sys.modules.get("mlx.core")
    arrays: list[np.ndarray[Any, Any]] = []
    _mapped(sample, arrays.append)
    for array in arrays:
        copies = min(POISONED_COPIES, MOST_POISONED_BYTES // max(1, array.nbytes))
        if core is not None:
            kept = [core.full((array.nbytes,), 255, core.uint8) for _ in range(copies)]
            core.eval(kept)
        bad = [np.full(array.nbytes, 255, np.uint8) for _ in range(copies)]
        del bad
    if core is not None:
        core.synchronize()


def _collect(output: object, lazy: list[mx.array]) -> bool:
    """Put the MLX arrays of `output` into `lazy`; return whether there is any array at all."""
    kind: Any = type(output)
    if kind is np.ndarray:
        return True
    core = sys.modules.get("mlx.core")
    if core is not None and kind is core.array:
        lazy.append(output)  # type: ignore[arg-type]  # it is one
        return True
    if kind in _PLAIN:
        return False
    if isinstance(output, list | tuple):
        return sum(_collect(each, lazy) for each in output) > 0
    if is_dataclass(output):
        return sum(_collect(getattr(output, name), lazy) for name in _names(kind)) > 0
    # A subclass of an array or a proxy may compute when it is looked at, which would be after the clock stopped.
    raise OutputError(f"returned a {kind.__name__}; a timed call returns arrays of MLX or NumPy themselves")


_NAMES: dict[Any, tuple[str, ...]] = {}


def _names(kind: Any) -> tuple[str, ...]:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))
    return _NAMES[kind]


def _mapped(output: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(output, _PLAIN):
        return output
    if isinstance(output, list | tuple):
        return tuple(_mapped(each, change) for each in output)
    if is_dataclass(output) and not isinstance(output, type):
        return replace(output, **{name: _mapped(getattr(output, name), change) for name in _names(type(output))})
    return change(output)


def _copied(array: Any) -> np.ndarray[Any, Any]:
    if type(array) is np.ndarray:
        return array.copy()
    from harness.subjects.arrays import to_numpy

    return to_numpy(array)
