"""What solo and batched rings have in common: updates, masks, trims, sizes."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final, Generic, Self

from impl.errors import RingShapeError, SinksUnsupportedError
from impl.rings.contents import (
    RingContents,
    append_block,
    cut_newest,
    physical_planes,
    temporal_planes,
    write_token,
)
from impl.rings.masks import make_ring_mask
from impl.rings.storage import COLUMNS, P, RowStorage

if TYPE_CHECKING:
    import mlx.core as mx

    from impl.affine import AffinePlanes
    from impl.attention import Mask
    from impl.rings.position import BatchedRotatingState

GROWTH_COLUMNS: Final = 256


class RotatingRing(Generic[P]):
    """A ring of tokens: it grows to ``max_size`` columns and then keeps the newest ones.

    Every operation makes new contents first and takes them over in one assignment at its end. So an operation that
    raises leaves the ring as it was, and arrays or snapshots handed out earlier never change.
    """

    def __init__(self, storage: RowStorage[P], position: BatchedRotatingState, keep: int = 0) -> None:
        if position.max_size < 1:
            raise RingShapeError(f"max_size={position.max_size}; a ring keeps at least 1 column")
        if keep:
            raise SinksUnsupportedError(f"keep={keep}: these rings have no attention sinks; use keep=0")
        self._storage: RowStorage[P] = storage
        self._contents: RingContents[P] = RingContents(position)

    @property
    def max_size(self) -> int:
        """Columns that a wrapped ring keeps."""
        return self._contents.position.max_size

    @property
    def storage(self) -> RowStorage[P]:
        """How tokens are stored."""
        return self._storage

    @property
    def contents(self) -> RingContents[P]:
        """Position and planes as held; to be borrowed, never assigned into."""
        return self._contents

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._contents.position

    @property
    def ring_index(self) -> int:
        """Next physical column to write."""
        return self._contents.position.ring_index

    @property
    def keys(self) -> P | None:
        """Key planes in physical order, spare columns included; None when nothing is held."""
        planes = self._contents.planes
        return None if planes is None else self._storage.share(planes[0])

    @property
    def values(self) -> P | None:
        """Value planes in physical order, spare columns included; None when nothing is held."""
        planes = self._contents.planes
        return None if planes is None else self._storage.share(planes[1])

    def temporal_view(self) -> tuple[P, P] | None:
        """Keys and values, oldest column first, without spare columns; None when nothing is held."""
        planes = temporal_planes(self._storage, self._contents)
        return None if planes is None else (self._storage.share(planes[0]), self._storage.share(planes[1]))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[P, P]:
        """Store a block ``[rows, kv_heads, tokens, head_dim]`` and give every column that a query of it may need.

        One token is written in place, and the columns come in physical order; a longer block, or any chunk of an
        open prefill, goes behind the newest ``max_size - 1`` columns, in temporal order. Either way the columns are
        those of the mask made just before. Affine rings quantize the block and answer with planes.

        Raises RingShapeError when the block does not fit what the ring holds, AffineError when it cannot be quantized.
        """
        before, storage = self._contents, self._storage
        tokens = self._check_block(keys, values)
        block = storage.encode(keys), storage.encode(values)
        if tokens == 1 and not before.position.has_pending_padding:
            after = write_token(storage, before, block, self._growth_columns)
        else:
            after = append_block(storage, before, block)
        # Never the held objects themselves: the caller may assign into what it gets.
        fetched = physical_planes(storage, after.planes or block, after.position.active_length)
        self._contents = after
        return fetched

    def make_mask(self, tokens: int, window: int | None = None, *, return_array: bool = False) -> Mask:
        """Mask for the next ``tokens`` tokens, to be made before their update; see make_ring_mask."""
        return make_ring_mask(self._contents.position, tokens, window, return_array=return_array)

    def is_trimmable(self) -> bool:
        """Whether every token ever written is held, so that any number of them can be trimmed."""
        position = self._contents.position
        return (
            not position.has_pending_padding
            and position.total_offset < position.max_size
            and not any(position.lost_history(row) for row in range(position.batch_size))
        )

    def trim(self, tokens: int) -> int:
        """Remove the newest ``tokens`` tokens of every row as if they had never come, and return their number.

        Raises HistoryLostError when older tokens that would be visible again are gone, PendingPrefillError in an open
        prefill, RingShapeError for a negative number.
        """
        self._contents.position.require_trim(tokens)
        if tokens:
            self._contents = cut_newest(self._storage, self._contents, tokens)
        return tokens

    def state(self) -> list[mx.array]:
        """Every array held, those of the keys first."""
        return [array[...] for part in self._contents.planes or () for array in self._storage.arrays(part)]

    def copy(self) -> Self:
        """Independent ring with the same contents; data are copied only when one of the two is written."""
        return copy(self)

    def with_contents(self, contents: RingContents[P]) -> Self:
        """Ring of the same kind that holds ``contents``."""
        ring = copy(self)
        ring._contents = contents  # noqa: SLF001 -- our own copy, not yet seen by anybody
        return ring

    @property
    def nbytes(self) -> int:
        """Bytes held, spare columns included."""
        return sum(self._storage.nbytes(part) for part in self._contents.planes or ())

    def bytes_per_token(self) -> float:
        """Bytes per row and column of the buffer; 0 when nothing is held."""
        planes = self._contents.planes
        if planes is None:
            return 0.0
        return self.nbytes / (self._storage.width(planes[0]) * self._contents.position.batch_size)

    def projected_bytes(self, tokens: int) -> float:
        """Bytes that one row will hold after ``tokens`` tokens."""
        return self.bytes_per_token() * min(tokens, self.max_size)

    def _growth_columns(self) -> int:
        """Columns to grow by when one more token finds the buffer full; never past ``max_size``."""
        position = self._contents.position
        return min(GROWTH_COLUMNS, position.max_size - position.active_length)

    def _check_block(self, keys: mx.array, values: mx.array) -> int:
        """Tokens of a block that fits what is held; raises RingShapeError when it does not."""
        shape, value_shape, planes = keys.shape, values.shape, self._contents.planes
        if planes is not None and len(shape) == 4:
            # Every decoded token comes through here: whether it fits is one comparison, why not is asked afterwards.
            (rows, heads, _, key_dim), tokens = planes[0].shape, shape[COLUMNS]
            if (
                shape == (rows, heads, tokens, key_dim)
                and value_shape == (rows, heads, tokens, planes[1].shape[3])
                and (keys.dtype, values.dtype, tokens > 0) == (planes[0].dtype, planes[1].dtype, True)
            ):
                return tokens
        if len(shape) != 4 or len(value_shape) != 4 or shape[:3] != value_shape[:3] or not shape[COLUMNS]:
            raise RingShapeError(
                f"keys {shape} and values {value_shape}; both must be [rows, kv_heads, tokens, head_dim], "
                "alike but for head_dim, with at least 1 token"
            )
        rows = self._contents.position.batch_size
        if shape[0] != rows:
            raise RingShapeError(f"a block of {shape[0]} rows for a ring of {rows}; give one row per request")
        if planes is not None:
            _check_alike("keys", shape, keys.dtype, planes[0])
            _check_alike("values", value_shape, values.dtype, planes[1])
        return shape[COLUMNS]


def _check_alike(name: str, shape: tuple[int, ...], dtype: mx.Dtype, held: mx.array | AffinePlanes) -> None:
    held_shape, held_dtype = held.shape, held.dtype
    if shape[1] != held_shape[1] or shape[3] != held_shape[3] or dtype != held_dtype:
        raise RingShapeError(
            f"{name} of {shape[1]} heads x {shape[3]} {dtype}, but the ring holds {held_shape[1]} x {held_shape[3]} "
            f"{held_dtype}; convert the block, nothing is cast silently"
        )
