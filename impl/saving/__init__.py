"""Caches in files: every cache of this package to a safetensors file and back, with everything that it remembers."""

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
