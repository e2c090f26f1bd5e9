"""What each token looks like in storage when it is alone: the yardstick for `stored`, and the input of `attention`.

Affine planes are compared with what the subject's own encoder makes of the token alone, in a fresh cache; the encoder
itself is judged by kind `affine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as naive_affine
from harness.kinds.ring.observe import parts, pieces
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from harness.kinds.ring.tokens import Tokens
    from harness.subjects.protocol import RingSpec, Subject


@dataclass
class Plane:
    """Keys or values of every id: storage arrays [ids, kv_heads, ...], float64 values and magnitudes of their terms.

    The magnitude of a plain value is |value|; of an affine one |scale * code| + |bias|, which is what arithmetic on
    the planes rounds.
    """

    stored: tuple[NDArray[Any], ...]
    values: NDArray[np.float64]
    magnitudes: NDArray[np.float64]


class Alone:
    """Every token as it is stored alone. `keys` and `values` are valid for ids that `need` was called with."""

    def __init__(self, subject: Subject, spec: RingSpec, tokens: Tokens) -> None:
        """Prepare plain tables at once; affine ones are filled by `need`."""
        self._subject, self._spec, self._tokens = subject, spec, tokens
        self._known: set[int] = set()
        if spec.storage is None:
            self.keys, self.values = _plain(tokens.keys), _plain(tokens.values)
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
        if new:
            self._known.update(new)
            for plane in (self.keys, self.values):
                packed, scales, biases = (part[new] for part in plane.stored)
                plane.values[new] = naive_affine.dequantize(packed, scales, biases, storage.group_size, storage.bits)
                offsets = np.repeat(biases.astype(np.float64), storage.group_size, axis=-1)
                plane.magnitudes[new] = np.abs(plane.values[new] - offsets) + np.abs(offsets)


def _plain(table: NDArray[Any]) -> Plane:
    values = table.astype(np.float64)
    return Plane((table,), values, np.abs(values))


def _empty(ids: int, spec: RingSpec, dim: int, dtype: np.dtype[Any]) -> Plane:
    storage = spec.storage
    assert storage is not None  # noqa: S101 - the caller branched on it
    lead = (ids, spec.kv_heads)
    planes = (
        np.zeros((*lead, dim * storage.bits // 32), np.uint32),
        np.zeros((*lead, dim // storage.group_size), dtype),
        np.zeros((*lead, dim // storage.group_size), dtype),
    )
    return Plane(planes, np.zeros((*lead, dim)), np.zeros((*lead, dim)))
