"""What each token looks like in storage when it is alone: the yardstick for `stored`, and the input of `attention`.

Affine planes are compared with what the subject's own encoder makes of the token alone, in a fresh cache; the encoder
itself is judged by kind `affine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from harness.baseline import affine as naive_affine
from harness.kinds.ring.observe import parts, pieces
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from harness.kinds.ring.observe import Single, View
    from harness.kinds.ring.tokens import Tokens
    from harness.subjects.protocol import AffineStorage, RingSpec, Subject


@dataclass
class Plane:
    """Keys or values of every id as they are stored: one array [ids, kv_heads, dim], or packed, scales and biases."""

    stored: tuple[NDArray[Any], ...]
    storage: AffineStorage | None

    def decoded(
        self, ids: Sequence[int] | NDArray[np.int64], heads: int | slice = slice(None)
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return float64 values [ids, kv_heads, dim] (of one head: [ids, dim]) and the magnitudes of their terms.

        The magnitude of a plain value is |value|; of an affine one |scale * code| + |bias|, which is what arithmetic
        on the planes rounds.
        """
        parts = [part[ids, heads] for part in self.stored]
        if self.storage is None:
            plain = parts[0].astype(np.float64)
            return plain, np.abs(plain)
        packed, scales, biases = parts
        values = naive_affine.dequantize(packed, scales, biases, self.storage.group_size, self.storage.bits)
        offsets = np.repeat(biases.astype(np.float64), self.storage.group_size, axis=-1)
        return values, np.abs(values - offsets) + np.abs(offsets)


class Yardstick(Protocol):
    """What the tokens of a row are: `keys` and `values` are valid for ids that `need` was called with."""

    keys: Plane
    values: Plane

    @property
    def affine(self) -> bool:
        """Whether tokens are stored as affine planes."""

    def need(self, ids: Iterable[int]) -> None:
        """See to it that these ids are there."""


class Alone:
    """Every token as it is stored alone. `keys` and `values` are valid for ids that `need` was called with."""

    def __init__(self, subject: Subject, spec: RingSpec, tokens: Tokens) -> None:
        """Prepare plain tables at once; affine ones are filled by `need`."""
        self._subject, self._spec, self._tokens = subject, spec, tokens
        self._known: set[int] = set()
        if spec.storage is None:
            self.keys, self.values = Plane((tokens.keys,), None), Plane((tokens.values,), None)
        else:
            self.keys = _empty(len(tokens.keys), spec, spec.head_dim, tokens.keys.dtype)
            self.values = _empty(len(tokens.values), spec, spec.value_dim, tokens.values.dtype)

    @property
    def affine(self) -> bool:
        """Whether tokens are stored as affine planes."""
        return self._spec.storage is not None

    def need(self, ids: Iterable[int]) -> None:
        """Encode the ids that were not needed before, each in a fresh cache of one row."""
        storage = self._spec.storage
        if storage is None:
            return
        new = sorted(set(ids) - self._known)
        for token in new:
            with subject_call(f"a fresh cache fed token {token} alone"):
                ring = self._subject.ring(replace(self._spec, rows=1))
                keys, values, _ = self._tokens.block(np.array([[token]]))
                answer = ring.append(keys, values, None)
            for plane, arrays in ((self.keys, answer.keys), (self.values, answer.values)):
                for table, part in zip(plane.stored, parts(pieces(arrays)[0]), strict=True):
                    table[token] = part[0, :, -1]
        self._known.update(new)


class Shown:
    """The tokens of one row as an answer shows them, right or not: what attention over that answer had to work with."""

    def __init__(self, view: View, row: int, last_id: int, storage: AffineStorage | None) -> None:
        """Sort the columns that are seen by the ids they hold, up to `last_id`; what is hidden may hold anything."""
        columns = np.flatnonzero(view.sees[row].any(axis=0) & (view.key_ids[row] > 0))
        self.affine = storage is not None

        def plane(arrays: Single, ids: NDArray[np.int64]) -> Plane:
            tables = []
            for part in parts(arrays):
                table = np.zeros((last_id + 1, part.shape[1], part.shape[3]), part.dtype)
                table[ids[columns]] = np.moveaxis(part[0][:, columns], 0, 1)
                tables.append(table)
            return Plane(tuple(tables), storage)

        self.keys = plane(view.keys[row], view.key_ids[row])
        self.values = plane(view.values[row], view.value_ids[row])

    def need(self, ids: Iterable[int]) -> None:
        """Do nothing: what is visible is there."""


def _empty(ids: int, spec: RingSpec, dim: int, dtype: np.dtype[Any]) -> Plane:
    storage = spec.storage
    assert storage is not None  # noqa: S101 - the caller branched on it
    lead = (ids, spec.kv_heads)
    planes = (
        np.zeros((*lead, dim * storage.bits // 32), np.uint32),
        np.zeros((*lead, dim // storage.group_size), dtype),
        np.zeros((*lead, dim // storage.group_size), dtype),
    )
    return Plane(planes, storage)
