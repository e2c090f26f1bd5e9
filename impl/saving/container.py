"""The file around a saved cache: safetensors, whose metadata says format, version and the description as JSON."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import mlx.core as mx

from impl.saving.errors import (
    NotASavedCacheError,
    NotSafetensorsError,
    SavedVersionError,
    TruncatedFileError,
)

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = "impl-cache"
VERSION: Final = 1
# The format's own limit for its JSON header; a longer one is a file of another sort.
_MOST_HEADER_BYTES: Final = 100_000_000


def write(path: Path, description: dict[str, Any], tensors: dict[str, mx.array]) -> None:
    """Write a file whole, or leave what was there before; raises OSError when it can't be written.

    It is not forced to disk: a machine that dies may lose it, which ``read`` notices, with what was there before.
    """
    metadata = {"format": FORMAT, "version": str(VERSION), "cache": json.dumps(description, separators=(",", ":"))}
    # Beside its target, because only within a file system a rename is one step; MLX insists on the suffix.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.safetensors")
    try:
        try:
            mx.save_safetensors(str(temporary), tensors, metadata)
        except RuntimeError as error:
            raise OSError(f"{path}: can't be written: {error}") from error
        _metadata(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Return description and tensors, all of them in memory.

    Raises NotSafetensorsError, TruncatedFileError, NotASavedCacheError, SavedVersionError, or OSError when the file
    can't be read.
    """
    metadata = _metadata(path)
    if metadata.get("format") != FORMAT:
        raise NotASavedCacheError(f"{path}: a safetensors file, but no cache of save_cache: its metadata don't say so")
    if metadata.get("version") != str(VERSION):
        raise SavedVersionError(
            f"{path}: was written in version {metadata.get('version')} of the format, and this release reads {VERSION}"
        )
    try:
        description = json.loads(metadata.get("cache", ""))
        if not isinstance(description, dict):
            raise ValueError  # noqa: TRY301, TRY004 - joins the parser's own way of saying so
    except (ValueError, RecursionError):
        raise NotASavedCacheError(f"{path}: the description in its metadata is no JSON object") from None
    try:
        tensors = mx.load(str(path), format="safetensors")
    except RuntimeError as error:
        raise NotSafetensorsError(f"{path}: MLX can't read it: {error}") from None
    assert isinstance(tensors, dict)  # noqa: S101 - what a safetensors file gives
    # MLX reads at evaluation: what happens to the file later must not matter.
    mx.eval(tensors)
    return description, tensors


def _metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file that is there to its last byte."""
    size = path.stat().st_size
    with path.open("rb") as file:
        lead = file.read(8)
        if len(lead) < 8:
            raise TruncatedFileError(f"{path}: ends after {size} bytes, within the length of its header")
        (length,) = struct.unpack("<Q", lead)
        text = file.read(min(length, _MOST_HEADER_BYTES))
    if not text.startswith(b"{") or length > _MOST_HEADER_BYTES:
        raise NotSafetensorsError(f"{path}: does not begin as a safetensors file")
    if len(text) < length:
        raise TruncatedFileError(f"{path}: ends after {size} bytes, within its header of {length}")
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", None) or {}
        ends = [entry["data_offsets"][1] for entry in header.values()]
        expected = 8 + length + max(ends, default=0)
        metadata = {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError):
        raise NotSafetensorsError(f"{path}: its header is not that of a safetensors file") from None
    if size < expected:
        raise TruncatedFileError(f"{path}: ends after {size} bytes, and its tensors need {expected}")
    if size > expected:
        raise NotSafetensorsError(f"{path}: has {size - expected} bytes behind its last tensor")
    return metadata
