"""Saving and loading: which kind of cache a file holds, and who reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from impl.recurrent import RecurrentCache
from impl.rings.aligned import AlignedRotatingCache
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.group import AlignedGroup
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transitioning import TransitioningKvRows
from impl.saving import container, recurrent, rings, rows
from impl.saving.errors import SavedCacheError, SavedKindError, SavedTensorsError
from impl.saving.parts import Draft, Part

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

Cache = (
    RotatingKVCache
    | RotatingQuantizedKVCache
    | BatchedRotatingCache
    | BatchedRotatingQuantCache
    | AlignedRotatingCache
    | AlignedGroup
    | RotatingAffineLayout
    | TransitioningKvRows
    | RecurrentCache
)
CacheT = TypeVar("CacheT", bound=Cache)


@dataclass(frozen=True, slots=True)
class _Kind:
    classes: tuple[type, ...]
    describe: Callable[[Any, Draft], dict[str, Any]]
    read: Callable[[Part], Cache]


_KINDS: Final = {
    "solo": _Kind((RotatingKVCache, RotatingQuantizedKVCache), rings.describe_solo, rings.read_solo),
    "batched": _Kind((BatchedRotatingCache, BatchedRotatingQuantCache), rings.describe_batched, rings.read_batched),
    "speculative": _Kind((SpeculativeRotatingKVCache,), rings.describe_speculative, rings.read_speculative),
    "aligned-row": _Kind((AlignedRotatingCache,), rows.describe_aligned, rows.read_aligned),
    "aligned-group": _Kind((AlignedGroup,), rows.describe_group, rows.read_group),
    "affine-layout": _Kind((RotatingAffineLayout,), rows.describe_layout, rows.read_layout),
    "speculative-affine-layout": _Kind(
        (SpeculativeRotatingAffineLayout,), rows.describe_layout, rows.read_speculative_layout
    ),
    "transitioning": _Kind((TransitioningKvRows,), rows.describe_transitioning, rows.read_transitioning),
    "recurrent": _Kind((RecurrentCache,), recurrent.describe_recurrent, recurrent.read_recurrent),
}


def save_cache(path: str | os.PathLike[str], cache: Cache) -> None:
    """Write a cache to a safetensors file, whole or not at all; what was there before is replaced.

    Everything that the cache remembers goes along: position state, an open prefill, an open round, reuse floors,
    crossing numbers. Spare columns of its buffers do not. Raises SavedKindError for a class that is not of this
    package, also one derived from a class that is (it may remember more), and OSError when the file can't be written.
    """
    # By the exact class: a subclass would come back as less than it was.
    name = next((name for name, kind in _KINDS.items() if type(cache) in kind.classes), None)
    if name is None:
        raise SavedKindError(f"a {type(cache).__name__} can't be saved; caches of these kinds can: {', '.join(_KINDS)}")
    tensors: dict[str, Any] = {}
    description = _KINDS[name].describe(cache, Draft(tensors))
    container.write(Path(path), {"kind": name, **description}, tensors)


@overload
def load_cache(path: str | os.PathLike[str]) -> Cache: ...
@overload
def load_cache(path: str | os.PathLike[str], kind: type[CacheT]) -> CacheT: ...
def load_cache(path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Read a cache that ``save_cache`` wrote; it goes on as if it had never been away. ``kind``: the class it must be.

    Raises a SavedCacheError, which names the file and what is wrong with it, for anything else, and OSError when the
    file can't be read. A file that was changed into another whole and consistent cache is not noticed.
    """
    description, tensors = container.read(Path(path))
    try:
        cache = _read(description, tensors)
    except SavedCacheError as error:
        raise type(error)(f"{path}: {error}") from None
    if kind is not None and type(cache) is not kind:
        raise SavedKindError(f"{path}: holds a {type(cache).__name__}, not a {kind.__name__}")
    return cache


def _read(description: dict[str, Any], tensors: dict[str, Any]) -> Cache:
    part = Part(description, tensors)
    name = part.text("kind")
    if name not in _KINDS:
        raise SavedKindError(f"holds a cache of kind '{name}', and this release knows {', '.join(_KINDS)}")
    cache = _KINDS[name].read(part)
    part.close()
    if tensors:
        raise SavedTensorsError(f"tensors {sorted(tensors)} belong to nothing in the file")
    return cache
