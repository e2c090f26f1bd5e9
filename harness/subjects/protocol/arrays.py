"""Arrays that travel between the harness and a subject: plain, or affine planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PlainArrays:
    """Keys or values as they are: `data` [rows, kv_heads, columns, head_dim]."""

    data: NDArray[np.generic]


@dataclass(frozen=True)
class AffineArrays:
    """Affine-quantized planes: `packed` uint32 [..., head_dim * bits / 32], `scales`, `biases` [..., head_dim / group].

    For keys and values the leading axes are [rows, kv_heads, columns].
    """

    packed: NDArray[np.uint32]
    scales: NDArray[np.generic]
    biases: NDArray[np.generic]
    group_size: int
    bits: int


@dataclass(frozen=True)
class RowsApart:
    """Keys or values of a batch whose rows are not all stored alike: each part holds the next rows of the batch."""

    parts: tuple[PlainArrays | AffineArrays, ...]


Arrays = PlainArrays | AffineArrays | RowsApart


@dataclass(frozen=True)
class AffineStorage:
    """Storage by groups of `group_size` channels with `bits` bits a channel."""

    bits: int
    group_size: int
