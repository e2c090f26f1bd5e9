"""From a subject's answer to what it means: which token each column holds, and which columns each query sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as naive_affine
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring.tokens import read_ids
from harness.subjects.protocol import AffineArrays, PlainArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol import Answer, Arrays, RingSpec


@dataclass(frozen=True)
class View:
    """An answer, read: `key_ids` and `value_ids` [rows, columns] (-1: no token), `sees` [rows, queries, columns]."""

    answer: Answer
    key_ids: NDArray[np.int64]
    value_ids: NDArray[np.int64]
    sees: NDArray[np.bool_]


def parts(arrays: Arrays) -> tuple[NDArray[Any], ...]:
    """Return the arrays that storage consists of, each [rows, kv_heads, columns, ...]."""
    if isinstance(arrays, PlainArrays):
        return (arrays.data,)
    return (arrays.packed, arrays.scales, arrays.biases)


def decoded(arrays: Arrays) -> NDArray[np.float64]:
    """Return float64 values [rows, kv_heads, columns, dim]; affine: scale * code + bias."""
    if isinstance(arrays, PlainArrays):
        return arrays.data.astype(np.float64)
    return naive_affine.dequantize(arrays.packed, arrays.scales, arrays.biases, arrays.group_size, arrays.bits)


def read_answer(answer: Answer, spec: RingSpec, group: int | None, queries: int, where: str, notes: Notes) -> View:
    """Check the shapes of an answer and read it; raises StopInstance after noting a finding when they are wrong.

    `group` is the group size for which the tokens are marked.
    """
    rows, columns = spec.rows, _columns(answer.keys)
    for name, arrays, dim in (("keys", answer.keys, spec.head_dim), ("values", answer.values, spec.value_dim)):
        _check_arrays(name, arrays, spec, (rows, spec.kv_heads, columns), dim, where, notes)
    # Head 0 tells the id; that every head holds the same token is what `stored` checks bit by bit.
    key_ids = read_ids(_head(answer.keys), group)
    value_ids = read_ids(_head(answer.values), group)
    return View(answer, key_ids, value_ids, _sees(answer, rows, queries, columns, where, notes))


def _columns(arrays: Arrays) -> int:
    shape = parts(arrays)[0].shape
    return shape[2] if len(shape) == 4 else -1


def _head(arrays: Arrays) -> NDArray[np.float64]:
    if isinstance(arrays, PlainArrays):
        return decoded(PlainArrays(arrays.data[:, 0]))
    first = AffineArrays(arrays.packed[:, 0], arrays.scales[:, 0], arrays.biases[:, 0], arrays.group_size, arrays.bits)
    return decoded(first)


def _check_arrays(
    name: str, arrays: Arrays, spec: RingSpec, lead: tuple[int, ...], dim: int, where: str, notes: Notes
) -> None:
    if isinstance(arrays, PlainArrays):
        wanted = [(name, arrays.data, (*lead, dim), spec.dtype)]
        got_storage = None
    else:
        words, groups = dim * arrays.bits // 32, dim // arrays.group_size
        got_storage = (arrays.bits, arrays.group_size)
        wanted = [
            (f"{name}.packed", arrays.packed, (*lead, words), "uint32"),
            (f"{name}.scales", arrays.scales, (*lead, groups), spec.dtype),
            (f"{name}.biases", arrays.biases, (*lead, groups), spec.dtype),
        ]
    asked = (spec.storage.bits, spec.storage.group_size) if spec.storage else None
    if got_storage != asked:
        notes.found("storage", f"{where}: {name}", _storage_text(asked), _storage_text(got_storage))
        raise StopInstance
    label: str
    array: Any
    for label, array, shape, dtype in wanted:
        if not isinstance(array, np.ndarray):
            notes.found("shape", f"{where}: {label}", "a NumPy array", type(array).__name__)
            raise StopInstance
        if array.shape != shape:
            expected = f"{list(shape)} = [rows, kv_heads, columns, dim]"
            if lead[2] < 0:
                expected = f"4 axes [rows={lead[0]}, kv_heads={lead[1]}, columns, dim={dim}]"
            notes.found("shape", f"{where}: {label}", expected, str(list(array.shape)))
            raise StopInstance
        if array.dtype.name != dtype:
            notes.found("dtype", f"{where}: {label}", dtype, array.dtype.name)
            raise StopInstance


def _storage_text(storage: tuple[int, int] | None) -> str:
    return "plain arrays" if storage is None else f"affine planes of {storage[0]} bits, group size {storage[1]}"


def _sees(answer: Answer, rows: int, queries: int, columns: int, where: str, notes: Notes) -> NDArray[np.bool_]:
    mask = answer.mask
    if mask is None:
        return np.ones((rows, queries, columns), bool)
    if isinstance(mask, str):
        newest = np.arange(columns)[None, :] <= np.arange(columns - queries, columns)[:, None]
        return np.broadcast_to(newest, (rows, queries, columns))
    try:
        full = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, (rows, 1, queries, columns)))
        if full.ndim != 4 or full.shape[0] != rows or full.shape[2:] != (queries, columns):
            raise ValueError  # noqa: TRY301 - joins NumPy's own way of saying so
    except ValueError:
        expected = f"broadcastable to [rows={rows}, heads, queries={queries}, columns={columns}]"
        notes.found("shape", f"{where}: mask", expected, str(list(mask.shape)))
        raise StopInstance from None
    # An additive mask hides a column by a number so negative that its weight underflows to nothing.
    sees = full if full.dtype == bool else full.astype(np.float64) > -1e4
    if (sees != sees[:, :1]).any():
        notes.found("visible", f"{where}: mask", "the same for every head", "differs between heads")
        raise StopInstance
    return sees[:, 0]


def ranges(ids: list[int]) -> str:
    """Write sorted ids as `{1..7, 11}`."""
    out: list[str] = []
    start = last = None
    for value in [*ids, None]:
        if last is not None and value == last + 1:
            last = value
            continue
        if start is not None:
            out.append(str(start) if start == last else f"{start}..{last}" if last != start + 1 else f"{start}, {last}")
        start = last = value
    return "{" + ", ".join(out) + "}"
