"""Compiled things on disk, found by a digest of all that went into them.

A file is written beside its place and renamed, so that readers and other writers see all of it or nothing. Each ends
in a digest of its bytes: a file that was cut off or changed is treated as absent, and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from impl.metal.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DIRECTORY_VARIABLE = "METAL_ASSAY_CACHE"
SIZE_VARIABLE = "METAL_ASSAY_CACHE_MIB"
_DEFAULT_MIB = 512
_DIGEST_BYTES = 32
_FORMAT = "1"


def directory() -> Path:
    """Return the folder of the cache: METAL_ASSAY_CACHE, else metal-assay in XDG_CACHE_HOME, else in ~/.cache."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "metal-assay"


def digest(parts: Iterable[str | bytes]) -> str:
    """Return a name for what `parts` make; the border between two parts counts."""
    state = hashlib.blake2b(_FORMAT.encode(), digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def obtain(name: str, build: Callable[[], bytes]) -> Path:
    """Return the path of the intact entry `name`, built if it is not there.

    Two processes that build the same entry at once both succeed; the later rename wins, with the same content.
    """
    path = directory() / name
    if read(path) is None:
        keep(path, build())
    return path


def read(path: Path) -> bytes | None:
    """Return the content of the intact entry at `path`, and note that it was used; None without one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, seal = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not content or _seal(content) != seal:
        return None
    with contextlib.suppress(OSError):  # a cache that may only be read works all the same
        os.utime(path)
    return content


def keep(path: Path, data: bytes) -> None:
    """Put `data` at `path` as an entry, and make room in its folder."""
    write(path, data + _seal(data))
    prune(folder=path.parent)


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step. Raises ToolchainError when the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    except OSError as error:
        raise ToolchainError(
            f"compiled kernels cannot be kept in {path.parent} ({error.strerror}); "
            f"let {DIRECTORY_VARIABLE} name another folder"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def prune(limit_bytes: int | None = None, folder: Path | None = None) -> int:
    """Delete the entries that were not used for the longest until the rest fits; return how many went.

    The limit is METAL_ASSAY_CACHE_MIB, 512 unless set. A file in use stays usable: only its name goes.
    """
    if limit_bytes is None:
        wanted = os.environ.get(SIZE_VARIABLE) or str(_DEFAULT_MIB)
        if not wanted.isdecimal():
            raise ToolchainError(f"{SIZE_VARIABLE}={wanted!r} is not a whole number of MiB")
        limit_bytes = int(wanted) << 20
    entries = []
    for entry in (folder or directory()).iterdir():
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue  # another process prunes too
        if entry.is_file():
            entries.append((status.st_mtime_ns, status.st_size, entry))
    total = sum(size for _, size, _ in entries)
    gone = 0
    for _, size, entry in sorted(entries):
        if total <= limit_bytes:
            break
        entry.unlink(missing_ok=True)
        total -= size
        gone += 1
    return gone


def _seal(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
