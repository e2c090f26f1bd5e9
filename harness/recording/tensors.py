"""Safetensors in NumPy: arrays with bfloat16 among them, to bytes and back, every length checked."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# The package `safetensors` has no bfloat16 in NumPy, and nothing else of it is needed.
_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "BOOL": np.dtype(np.bool_),
    **{f"{sign}{bits}": np.dtype(f"{sign.lower()}{bits // 8}") for sign in "IU" for bits in (8, 16, 32, 64)},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_HEADER_BYTES = 100_000_000


def pack(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file; raises TypeError for a dtype that the format has not."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    parts, end = [], 0
    for name, array in tensors.items():
        if array.dtype not in _NAMES:
            raise TypeError(f"safetensors has no {array.dtype}")
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + len(data)],
        }
        parts.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def unpack(data: bytes, file: object) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return tensors and metadata; raises RecordingError naming `file` when it is cut off or no safetensors file."""
    header, start = _header(data, file)
    try:
        metadata = {str(key): str(value) for key, value in (header.pop("__metadata__", None) or {}).items()}
        places = [
            (name, _DTYPES[entry["dtype"]], tuple(entry["shape"]), *entry["data_offsets"])
            for name, entry in header.items()
        ]
        needed = start + max((end for *_, end in places), default=0)
        if len(data) < needed:
            raise RecordingError(f"{file}: is cut off: it has {len(data)} bytes, and its tensors need {needed}")
        tensors = {}
        for name, dtype, shape, begin, end in places:
            if not 0 <= begin <= end or end - begin != math.prod(shape) * dtype.itemsize:
                raise RecordingError(
                    f"{file}: tensor {name}: {dtype.name} {list(shape)} does not fit in {end - begin} bytes"
                )
            tensors[name] = np.frombuffer(data, dtype, math.prod(shape), start + begin).reshape(shape).copy()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{file}: its header is not that of a safetensors file ({error!r})") from None
    return tensors, metadata


def _header(data: bytes, file: object) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        raise RecordingError(f"{file}: is cut off: it has {len(data)} bytes, fewer than the length of a header")
    (length,) = struct.unpack("<Q", data[:8])
    text = data[8 : 8 + length]
    if length > _MOST_HEADER_BYTES or not text.startswith(b"{"):
        raise RecordingError(f"{file}: does not begin as a safetensors file")
    if len(text) < length:
        raise RecordingError(f"{file}: is cut off: it has {len(data)} bytes, and its header {length}")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise RecordingError(f"{file}: its header is not JSON; the file is damaged") from None
    return header, 8 + length
