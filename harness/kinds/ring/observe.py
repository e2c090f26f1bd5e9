"""From a subject's answer to what it means: which token each column holds, and which columns each query sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from harness.baseline import affine as naive_affine
from harness.kinds.base import Notes, StopInstance
from harness.kinds.ring.tokens import read_ids
from harness.subjects.protocol import AffineArrays, AffineStorage, PlainArrays, RowsApart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.subjects.protocol import Answer, Arrays, RingSpec

Single: TypeAlias = PlainArrays | AffineArrays


@dataclass(frozen=True)
class View:
    """An answer, read: `key_ids` and `value_ids` [rows, columns] (-1: no token), `sees` [rows, queries, columns].

    `keys[b]` and `values[b]` are what row b has, [1, kv_heads, columns, ...].
    """

    keys: list[Single]
    values: list[Single]
    output: NDArray[Any] | None
    key_ids: NDArray[np.int64]
    value_ids: NDArray[np.int64]
    sees: NDArray[np.bool_]


def parts(arrays: Single) -> tuple[NDArray[Any], ...]:
    """Return the arrays that storage consists of, each [rows, kv_heads, columns, ...]."""
    if isinstance(arrays, PlainArrays):
        return (arrays.data,)
    return (arrays.packed, arrays.scales, arrays.biases)


def decoded(arrays: Single) -> NDArray[np.float64]:
    """Return float64 values [rows, kv_heads, columns, dim]; affine: scale * code + bias."""
    if isinstance(arrays, PlainArrays):
        return arrays.data.astype(np.float64)
    return naive_affine.dequantize(arrays.packed, arrays.scales, arrays.biases, arrays.group_size, arrays.bits)


def read_answer(
    answer: Answer,
    spec: RingSpec,
    storages: Sequence[AffineStorage | None],
    group: int | None,
    queries: int,
    where: str,
    notes: Notes,
) -> View:
    """Check the shapes of an answer and read it; raises StopInstance after noting a finding when they are wrong.

    `storages` says how each row is stored by now, `group` the group size for which the tokens are marked.
    """
    columns = _columns(pieces(answer.keys)[0])
    read = []
    for name, arrays, dim in (("keys", answer.keys, spec.head_dim), ("values", answer.values, spec.value_dim)):
        rows = _Rows(name, spec, storages, columns, dim, where, notes)
        read.append(rows.read(arrays, group))
    (keys, key_ids), (values, value_ids) = read
    sees = _sees(answer, len(storages), queries, columns, where, notes)
    return View(keys, values, answer.output, key_ids, value_ids, sees)


def pieces(arrays: Arrays) -> tuple[Single, ...]:
    """Return the parts of a batch whose rows are stored alike."""
    return arrays.parts if isinstance(arrays, RowsApart) else (arrays,)


def _columns(arrays: Single) -> int:
    shape = parts(arrays)[0].shape
    return shape[2] if len(shape) == 4 else -1


def _head(arrays: Single) -> NDArray[np.float64]:
    # Head 0 tells the id; that every head holds the same token is what `stored` checks bit by bit.
    return decoded(_picked(arrays, (slice(None), 0)))


def _picked(arrays: Single, index: Any) -> Single:
    if isinstance(arrays, PlainArrays):
        return PlainArrays(arrays.data[index])
    planes = (arrays.packed[index], arrays.scales[index], arrays.biases[index])
    return AffineArrays(*planes, arrays.group_size, arrays.bits)


@dataclass(frozen=True)
class _Rows:
    """How keys or values must look."""

    name: str
    spec: RingSpec
    storages: Sequence[AffineStorage | None]
    columns: int
    dim: int
    where: str
    notes: Notes

    def read(self, arrays: Arrays, group: int | None) -> tuple[list[Single], NDArray[np.int64]]:
        """Return the arrays of each row, and the ids in its columns."""
        found: list[Single] = []
        ids = []
        whole = not isinstance(arrays, RowsApart)
        for piece in pieces(arrays):
            array = parts(piece)[0]
            count = len(self.storages) if whole or not isinstance(array, np.ndarray) else array.shape[:1][0]
            self._check(piece, count, len(found))
            found += [_picked(piece, slice(row, row + 1)) for row in range(count)]
            ids.append(read_ids(_head(piece), group))
        if len(found) != len(self.storages):
            self._stop("shape", self.name, f"{len(self.storages)} rows", f"{len(found)} rows")
        return found, np.concatenate(ids)

    def _check(self, arrays: Single, count: int, first: int) -> None:
        name, spec = self.name, self.spec
        lead = (count, spec.kv_heads, self.columns)
        if isinstance(arrays, PlainArrays):
            wanted = [(name, arrays.data, (*lead, self.dim), spec.dtype)]
            got = None
        else:
            words, groups = self.dim * arrays.bits // 32, self.dim // arrays.group_size
            got = AffineStorage(arrays.bits, arrays.group_size)
            wanted = [
                (f"{name}.packed", arrays.packed, (*lead, words), "uint32"),
                (f"{name}.scales", arrays.scales, (*lead, groups), spec.dtype),
                (f"{name}.biases", arrays.biases, (*lead, groups), spec.dtype),
            ]
        for row, asked in enumerate(self.storages[first : first + count], start=first):
            if got != asked:
                label = name if len(set(self.storages)) == 1 else f"{name} of row {row}"
                self._stop("storage", label, _storage_text(asked), _storage_text(got))
        plane: str
        array: Any
        for plane, array, shape, dtype in wanted:
            if not isinstance(array, np.ndarray):
                self._stop("shape", plane, "a NumPy array", type(array).__name__)
            if array.shape != shape:
                expected = f"{list(shape)} = [rows, kv_heads, columns, dim]"
                if self.columns < 0:
                    expected = f"4 axes [rows={count}, kv_heads={spec.kv_heads}, columns, dim={self.dim}]"
                self._stop("shape", plane, expected, str(list(array.shape)))
            if array.dtype.name != dtype:
                self._stop("dtype", plane, dtype, array.dtype.name)

    def _stop(self, check: str, label: str, expected: str, actual: str) -> NoReturn:
        self.notes.found(check, f"{self.where}: {label}", expected, actual)
        raise StopInstance


def _storage_text(storage: AffineStorage | None) -> str:
    return f"affine planes of {storage.bits} bits, group size {storage.group_size}" if storage else "plain arrays"


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
