"""Tokens as vectors whose stored bits are known, so that a column of a cache can be read back as a token number."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import mlx.core as mx
import numpy as np

from impl.affine import AffinePlanes

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS, HEADS, KEY_DIM, VALUE_DIM, GROUP = 1024, 2, 64, 32, 32
DTYPES = (mx.float32, mx.float16, mx.bfloat16)
PAD: Final = -1
Planes = mx.array | AffinePlanes


class Table:
    """Vectors of every token, and their stored bits when each is encoded alone."""

    def __init__(self, dtype: mx.Dtype, bits: int | None) -> None:
        rng = np.random.default_rng(5)
        draw = [rng.standard_normal((TOKENS, HEADS, 1, dim)).astype(np.float32) for dim in (KEY_DIM, VALUE_DIM)]
        self.vectors = [mx.array(x).astype(dtype) for x in draw]
        keys, values = (
            columns_of(x if bits is None else AffinePlanes(*mx.quantize(x, GROUP, bits), GROUP, bits))
            for x in self.vectors
        )
        self.value_of = [column for [column] in values]
        self.token_of = {column: token for token, [column] in enumerate(keys)}
        assert len(self.token_of) == TOKENS

    def block(self, ids: Sequence[Sequence[int]]) -> tuple[mx.array, mx.array]:
        """Keys and values ``[rows, heads, tokens, dim]`` of token ids; padding holds numbers nobody may see."""
        index = mx.array(np.array(ids, dtype=np.int32))
        real = (index >= 0)[:, None, :, None]
        keys, values = (
            mx.where(real, x[mx.maximum(index, 0), :, 0].swapaxes(1, 2), mx.array(77.0, dtype=x.dtype))
            for x in self.vectors
        )
        return keys, values

    def read(self, keys: Planes, values: Planes) -> list[list[int]]:
        """Token ids ``[rows][columns]``; PAD where a column is no token bit for bit."""
        key_rows, value_rows = columns_of(keys), columns_of(values)
        ids = [[self.token_of.get(column, PAD) for column in row] for row in key_rows]
        return [
            [i if i != PAD and self.value_of[i] == value else PAD for i, value in zip(row, held, strict=True)]
            for row, held in zip(ids, value_rows, strict=True)
        ]


@cache
def table(dtype: mx.Dtype, bits: int | None) -> Table:
    """Table of one storage, made once."""
    return Table(dtype, bits)


def columns_of(planes: Planes) -> list[list[bytes]]:
    """List the stored bytes ``[rows][columns]``, every array and head of a column in one."""
    arrays = planes.parts if isinstance(planes, AffinePlanes) else (planes,)
    raw = [np.array(x.view(mx.uint16 if x.itemsize == 2 else mx.uint32)) for x in arrays]
    rows, _, columns, _ = raw[0].shape
    return [[b"".join([x[row, :, column].tobytes() for x in raw]) for column in range(columns)] for row in range(rows)]
