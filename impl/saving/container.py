"""The file around a saved thing: safetensors, whose metadata says format, version and the description as JSON."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class FileSort:
    """A sort of file: its `format` and `version`, the `key` of its description, and what it is in words."""

    format: str
    version: int
    key: str
    words: str


CACHE: Final = FileSort(FORMAT, VERSION, "cache", "cache of save_cache")
# The format's own limit for its JSON header; a longer one is a file of another sort.
_MOST_HEADER_BYTES: Final = 100_000_000


def write(path: Path, description: dict[str, Any], tensors: dict[str, mx.array], sort: FileSort = CACHE) -> None:
    """Write a file whole, or leave what was there before; raises OSError when it can't be written.

    It is not forced to disk: a machine that dies may lose it, which ``read`` notices, with what was there before.
    """
    metadata = {"format": sort.format, "version": str(sort.version)}
    metadata[sort.key] = json.dumps(description, separators=(",", ":"))
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


def read(path: Path, sort: FileSort = CACHE) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Return description and tensors, all of them in memory.

    Raises NotSafetensorsError, TruncatedFileError, NotASavedCacheError, SavedVersionError, or OSError when the file
    can't be read.
    """
    metadata = _metadata(path)
    if metadata.get("format") != sort.format:
        raise NotASavedCacheError(f"{path}: a safetensors file, but no {sort.words}: its metadata don't say so")
    if metadata.get("version") != str(sort.version):
        written = metadata.get("version")
        raise SavedVersionError(
            f"{path}: was written in version {written} of the format, and this release reads {sort.version}"
        )
    try:
        description = json.loads(metadata.get(sort.key, ""))
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
