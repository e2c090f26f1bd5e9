"""Caches in files: every cache of this package to a safetensors file and back, with everything that it remembers.

Metadata of the file: ``format`` (``impl-cache``), ``version`` (``1``) and ``cache``, a JSON object. That has ``kind``
(``solo``, ``batched``, ``speculative``, ``aligned-row``, ``aligned-group``, ``affine-layout``,
``speculative-affine-layout``, ``transitioning``, ``recurrent``) and what a cache of this kind remembers; a ring has
``position`` (the fields of BatchedRotatingState, ``max_size`` null for a full cache) and ``storage`` (null, or
``group_size`` and ``bits``). Tensors are named by their place in it: ``keys``, ``group.rows.1.ring.values.scales``.
Planes are the columns in use, in physical order. An open prefill and an open round travel along.
"""

from impl.saving.caches import load_cache, save_cache
from impl.saving.errors import (
    NotASavedCacheError,
    NotSafetensorsError,
    SavedCacheError,
    SavedKindError,
    SavedShapeError,
    SavedStateError,
    SavedTensorsError,
    SavedVersionError,
    TruncatedFileError,
)

__all__ = [
    "NotASavedCacheError",
    "NotSafetensorsError",
    "SavedCacheError",
    "SavedKindError",
    "SavedShapeError",
    "SavedStateError",
    "SavedTensorsError",
    "SavedVersionError",
    "TruncatedFileError",
    "load_cache",
    "save_cache",
]
