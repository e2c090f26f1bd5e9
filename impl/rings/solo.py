"""Rings of one request, plain and affine."""

from __future__ import annotations

from typing import NoReturn, Self

import mlx.core as mx

from impl.affine import AffinePlanes
from impl.errors import AlreadyAffineError, RingShapeError
from impl.rings.contents import RingContents, checked_planes, quantized_contents, row_contents
from impl.rings.position import BatchedRotatingState
from impl.rings.ring import RotatingRing
from impl.rings.storage import AffineStorage, P, PlainStorage, RowStorage


class SoloRing(RotatingRing[P]):
    """Ring of one request.

    ``offset`` and ``ring_index`` say everything about it: a buffer with fewer tokens than were seen and a cursor
    before its end is rotated. So spare columns are kept only while no token has left, or after the wrap.
    """

    def __init__(self, storage: RowStorage[P], max_size: int, keep: int = 0) -> None:
        super().__init__(storage, BatchedRotatingState(max_size, (0,), (0,)), keep)
        self._minimum_reusable_offset = 0

    @property
    def offset(self) -> int:
        """Tokens seen, which is the position of the next one."""
        return self._contents.position.offsets[0]

    @property
    def minimum_reusable_offset(self) -> int:
        """Shortest prefix, in tokens, that may be reused: up to there precision changed."""
        return self._minimum_reusable_offset

    @minimum_reusable_offset.setter
    def minimum_reusable_offset(self, tokens: int) -> None:
        if tokens < 0:
            raise RingShapeError(f"minimum_reusable_offset={tokens}; give 0 or more")
        self._minimum_reusable_offset = tokens

    def restore_state(self, keys: P | None, values: P | None, offset: int, ring_index: int) -> None:
        """Take over planes ``[1, kv_heads, columns, head_dim]`` in physical order, as another ring held them.

        Raises RingShapeError when they cannot be what a ring of this size holds at ``offset``.
        """
        planes = checked_planes(self._storage, keys, values, rows=1)
        length = 0 if planes is None else self._storage.width(planes[0])
        rotated = ring_index < min(offset, length)
        possible = ring_index in (length, offset) or (rotated and length == self.max_size)
        if not possible or not 0 <= ring_index <= min(offset, length):
            raise RingShapeError(
                f"offset={offset} and ring_index={ring_index} do not belong to {length} columns of a ring of "
                f"{self.max_size}; pass the numbers that were saved with the planes"
            )
        position = BatchedRotatingState(self.max_size, (offset,), (0,), ring_index, offset, rotated)
        self._contents = RingContents(position, planes if position.active_length else None)

    def extract(self, limit: int | None = None) -> Self:
        """Copy with the newest ``limit`` tokens (all that are held, when None); the offset stays.

        Fewer than ``min(max_size - 1, offset)`` tokens make a lossy ring: later queries see the kept and the new
        tokens only. Raises RingShapeError for a limit below 1.
        """
        return self.with_contents(row_contents(self._storage, self._contents, 0, limit))

    def _growth_columns(self) -> int:
        # Spare columns behind a ring that lost tokens would be taken for the old part of a rotated one.
        return super()._growth_columns() if self.ring_index == self.offset else 1


class RotatingKVCache(SoloRing[mx.array]):
    """Plain ring of one request."""

    def __init__(self, max_size: int, keep: int = 0) -> None:
        super().__init__(PlainStorage(), max_size, keep)

    def signature(self) -> str:
        """Name of everything that two rings must share to hold rows of one batch."""
        return f"kv:rotating-plain:{self.max_size}"

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> RotatingQuantizedKVCache:
        """Affine ring with every stored column quantized where it lies; this ring stays as it is.

        Raises AffineError when a head_dim is not a multiple of ``group_size``.
        """
        ring = RotatingQuantizedKVCache(self.max_size, group_size, bits)
        ring.minimum_reusable_offset = self.minimum_reusable_offset
        return ring.with_contents(quantized_contents(AffineStorage(group_size, bits), self._contents))


class RotatingQuantizedKVCache(SoloRing[AffinePlanes]):
    """Affine ring of one request: a token is quantized when it comes, and its bits never change again."""

    def __init__(self, max_size: int, group_size: int = 64, bits: int = 4, keep: int = 0) -> None:
        super().__init__(AffineStorage(group_size, bits), max_size, keep)
        self.group_size = group_size
        self.bits = bits

    def signature(self) -> str:
        """Name of everything that two rings must share to hold rows of one batch."""
        return f"kv:rotating-affine:{self.max_size}:{self.group_size}:{self.bits}"

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> NoReturn:
        """Raise AlreadyAffineError: quantizing twice would change the stored tokens."""
        raise AlreadyAffineError(
            f"the ring is already affine ({self.group_size}, {self.bits}); to get ({group_size}, {bits}), "
            "fill a plain ring and quantize that"
        )
