"""Why a file is no cache that could be loaded: one class per reason."""

from __future__ import annotations

from impl.errors import ImplError


class SavedCacheError(ImplError, ValueError):
    """A file that can't be loaded as a cache, or a cache that can't be saved; nothing was changed."""


class NotSafetensorsError(SavedCacheError):
    """The file is no safetensors file."""


class TruncatedFileError(SavedCacheError):
    """The file ends before its last tensor does."""


class NotASavedCacheError(SavedCacheError):
    """A safetensors file of something else: it has no header of ours."""


class SavedVersionError(SavedCacheError):
    """The file was written in another version of the format."""


class SavedKindError(SavedCacheError):
    """A kind of cache that this release doesn't know, or another one than was asked for."""


class SavedTensorsError(SavedCacheError):
    """A tensor is missing, or there is one that belongs to nothing."""


class SavedShapeError(SavedCacheError):
    """A tensor of a shape or dtype that contradicts the header."""


class SavedStateError(SavedCacheError):
    """Numbers in the header that contradict each other, or that no cache can have."""
