"""Rows of one batch that are stored apart: every row its own ring and precision, all of one physical geometry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.errors import AlreadyAffineError, MergeError, RingShapeError
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.contents import RingContents, both, settled, temporal_planes
from impl.rings.donor import DonorAttention, capture_rotating_donor_attention
from impl.rings.merge import check_same_shape
from impl.rings.position import BatchedRotatingState
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache, SoloRing
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.attention import Mask, Tensor
    from impl.rings.storage import P

    Solo = RotatingKVCache | RotatingQuantizedKVCache


class AlignedRotatingCache:
    """One request in the columns of its group: a batch of one row, plain or affine.

    Its siblings write, drop and move the same columns at the same time, so one mask serves all of them, also while
    some are plain and others affine.
    """

    def __init__(
        self, inner: BatchedRotatingCache | BatchedRotatingQuantCache, minimum_reusable_offset: int = 0
    ) -> None:
        if inner.batch_size != 1:
            raise RingShapeError(f"a batch of {inner.batch_size} is not one row; extract its rows and align them")
        self._inner = inner
        self.minimum_reusable_offset = minimum_reusable_offset

    @property
    def minimum_reusable_offset(self) -> int:
        """Shortest prefix, in tokens, that may be reused: up to there precision changed."""
        return self._minimum_reusable_offset

    @minimum_reusable_offset.setter
    def minimum_reusable_offset(self, tokens: int) -> None:
        if tokens < 0:
            raise RingShapeError(f"minimum_reusable_offset={tokens}; give 0 or more")
        self._minimum_reusable_offset = tokens

    @property
    def inner(self) -> BatchedRotatingCache | BatchedRotatingQuantCache:
        """Ring of the one row; to be borrowed."""
        return self._inner

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._inner.position

    @property
    def max_size(self) -> int:
        """Columns that a wrapped ring keeps."""
        return self._inner.max_size

    @property
    def offset(self) -> int:
        """Position after the last real token; negative while left padding is still to come."""
        return self._inner.position.valid_offset(0)

    @property
    def affine_conversion(self) -> AlignedRotatingCache | None:
        """What can become affine: the row itself while it is plain."""
        return self if isinstance(self._inner, BatchedRotatingCache) else None

    @property
    def quantized_attention(self) -> BatchedRotatingQuantCache | None:
        """Ring that answers with affine planes, None while the row is plain."""
        return self._inner if isinstance(self._inner, BatchedRotatingQuantCache) else None

    @property
    def nbytes(self) -> int:
        """Bytes held, spare columns included."""
        return self._inner.nbytes

    def bytes_per_token(self) -> float:
        """Bytes per column of the buffer; 0 when nothing is held."""
        return self._inner.bytes_per_token()

    def signature(self) -> str:
        """Name of everything that two rows must share to be stored in one batch."""
        return self._inner.signature()

    def state(self) -> list[mx.array]:
        """Every array held, those of the keys first."""
        return self._inner.state()

    def copy(self) -> AlignedRotatingCache:
        """Independent row with the same contents."""
        return AlignedRotatingCache(self._inner.copy(), self.minimum_reusable_offset)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Tensor, Tensor]:
        """Store a block ``[1, kv_heads, tokens, head_dim]``; see RotatingRing.update_and_fetch."""
        return self._inner.update_and_fetch(keys, values)

    def make_mask(self, tokens: int, window: int | None = None, *, return_array: bool = False) -> Mask:
        """Mask for the next ``tokens`` tokens, to be made before their update."""
        return self._inner.make_mask(tokens, window, return_array=return_array)

    def is_trimmable(self) -> bool:
        """Whether any number of tokens can be trimmed."""
        return self._inner.is_trimmable()

    def trim(self, tokens: int) -> int:
        """Remove the newest ``tokens`` tokens; see RotatingRing.trim. Siblings must be trimmed alike."""
        return self._inner.trim(tokens)

    def prepare_prefill(
        self, length: int, left_padding: int = 0, right_padding: int = 0, *, force: bool = False
    ) -> None:
        """Announce a padded prefill; see prefill.prepared.

        ``force`` must be set when any sibling has right padding: all rows have to take the same path.
        """
        self._inner.prepare_prefill([length], [left_padding], [right_padding], force=force)

    def finalize_prefill(self) -> None:
        """Close a padded prefill."""
        self._inner.finalize_prefill()

    def rollback(self, before: int, keep: int, *, preserve_columns: bool) -> None:
        """Keep the first ``keep`` tokens since offset ``before``; see rotating_rollback_plan.

        ``preserve_columns`` must be set when siblings keep other numbers: a single row cannot see that.
        """
        if isinstance(self._inner, BatchedRotatingCache):
            self._inner = rollback_rotating_ring(self._inner, [before], keep, preserve_columns=preserve_columns)
        else:
            self._inner = rollback_rotating_ring(self._inner, [before], keep, preserve_columns=preserve_columns)

    def capture_donor_attention(self) -> DonorAttention:
        """Lend the row to query-only layers; see capture_rotating_donor_attention."""
        return capture_rotating_donor_attention(self._inner)

    def extract(self, limit: int | None = None) -> Solo:
        """Solo ring of the same precision with the newest ``limit`` tokens (all that are held, when None), copied."""
        row = self._inner.extract_row(0, limit)
        row.minimum_reusable_offset = self.minimum_reusable_offset
        return row

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> AlignedRotatingCache:
        """Affine row with every column quantized where it lies, so masks stay; this row stays as it is.

        Raises AlreadyAffineError for an affine row, AffineError when a head_dim is not a multiple of ``group_size``.
        """
        if not isinstance(self._inner, BatchedRotatingCache):
            raise AlreadyAffineError("the row is already affine; quantizing twice would change its stored tokens")
        return AlignedRotatingCache(self._inner.to_quantized(group_size, bits), self.minimum_reusable_offset)


def rotating_source_position(row: SoloRing[Any]) -> BatchedRotatingState:
    """Position state of a solo ring as the only row of a batch, from its offset, cursor and buffer alone.

    The buffer is read as it lies, rotated or larger than the window: nothing is reordered or decoded.
    """
    planes = row.contents.planes
    columns = 0 if planes is None else row.storage.width(planes[0])
    rotated = row.ring_index < min(row.offset, columns)
    return BatchedRotatingState(row.max_size, (row.offset,), (0,), row.ring_index, row.offset, rotated)


def align_rotating_rows(rows: Sequence[Solo]) -> list[AlignedRotatingCache]:
    """Rows with the columns of one group: each its newest ``max_size`` tokens behind padding, the last column common.

    A row keeps its precision, bit for bit, and its ``minimum_reusable_offset``; a row that holds nothing gets zeros.
    How many tokens a row holds is asked of its columns: after a rollback it may hold one fewer than its offset
    promises. The solo rings stay as they are. Raises MergeError for other caches, and for rows that differ in
    ``max_size``, heads, head_dim or type; AffineError when an empty affine row cannot have the head_dim of the others.
    """
    others = sorted({type(row).__name__ for row in rows if not isinstance(row, SoloRing)})
    if others:
        raise MergeError(f"cannot align {others}; extract solo rings from them first")
    sizes = sorted({row.max_size for row in rows})
    if len(sizes) > 1:
        raise MergeError(f"rings of max_size {sizes} cannot share columns; group them by max_size first")
    held = [row.contents.planes for row in rows]
    check_same_shape(held)
    model = next((planes for planes in held if planes is not None), None)
    width = max((_length(row) for row in rows), default=0)
    return [_aligned(row, width, model) for row in rows]


def _length(row: Solo) -> int:
    return min(rotating_source_position(row).stored(0), row.max_size)


def _aligned(row: Solo, width: int, model: tuple[Tensor, Tensor] | None) -> AlignedRotatingCache:
    pad = width - _length(row)
    position = BatchedRotatingState(row.max_size, (row.offset,), (pad,), width, width)
    inner: BatchedRotatingCache | BatchedRotatingQuantCache
    if isinstance(row, RotatingKVCache):
        inner = BatchedRotatingCache(row.max_size).with_contents(_contents(row, position, model))
    else:
        ring = BatchedRotatingQuantCache(row.max_size, row.group_size, row.bits)
        inner = ring.with_contents(_contents(row, position, model))
    return AlignedRotatingCache(inner, row.minimum_reusable_offset)


def _contents(row: SoloRing[P], position: BatchedRotatingState, model: tuple[Tensor, Tensor] | None) -> RingContents[P]:
    storage, source = row.storage, rotating_source_position(row)
    width, pad = position.active_length, position.left_pad[0]
    if model is None or not width:
        return RingContents(position)
    borrowed = RingContents(source, row.contents.planes)
    newest = temporal_planes(storage, borrowed, source.active_length - (width - pad))
    if newest is None:
        keys, values = (mx.zeros((1, part.shape[1], width, part.shape[3]), dtype=part.dtype) for part in model)
        planes = storage.encode(keys), storage.encode(values)
    else:
        planes = both(newest, lambda part: storage.pad_left(part, pad) if pad else storage.share(part))
    return settled(storage, RingContents(position, planes))
