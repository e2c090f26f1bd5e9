"""Affine rows of one batch in one ring: aligned rows packed without moving a column, rounds, per-row reuse floors."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Self

from impl.errors import MergeError
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows
from impl.rings.batched import BatchedRotatingQuantCache
from impl.rings.contents import RingContents, settled
from impl.rings.donor import DonorAttention, capture_rotating_donor_attention
from impl.rings.merge import check_same_shape
from impl.rings.positions import combined_position
from impl.rings.rounds import SpeculativeRows
from impl.rings.storage import ROWS
from impl.rings.transaction import rollback_rotating_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from impl.affine import AffinePlanes
    from impl.attention import Mask
    from impl.rings.position import BatchedRotatingState
    from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache

    Solo = RotatingKVCache | RotatingQuantizedKVCache


class RotatingAffineLayout(SpeculativeRows):
    """Batch of affine rows; a token is quantized when it comes, and its bits never change again.

    Rows come in whole: from aligned rows, whose columns stay where they are, or merged from other caches. Its masks
    are always arrays, like those of the rows before they were packed.
    """

    def __init__(self, max_size: int, group_size: int = 64, bits: int = 4) -> None:
        self._ring = BatchedRotatingQuantCache(max_size, group_size, bits)
        self._minimum: tuple[int, ...] = ()
        self.group_size = group_size
        self.bits = bits

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._ring.position

    @property
    def quantized_attention(self) -> BatchedRotatingQuantCache | None:
        """Ring that answers with affine planes, to be borrowed; None without rows."""
        return self._ring if self._ring.batch_size else None

    @property
    def minimum_reusable_offsets(self) -> tuple[int, ...]:
        """Shortest prefix of each row, in tokens, that may be reused: up to there precision changed."""
        return self._minimum

    def signature(self) -> str:
        """Name of everything that two layouts must share to hold rows of one batch."""
        return self._ring.signature()

    def make_empty_batch(self) -> Self:
        """Make a layout of the same kind, size and precision, without rows."""
        return type(self)(self.max_size, self.group_size, self.bits)

    def copy(self) -> Self:
        """Independent layout with the same contents."""
        layout = copy(self)
        layout._ring = self._ring.copy()  # noqa: SLF001 -- our own copy, not yet seen by anybody
        return layout

    def adopt_aligned_rows(self, rows: Sequence[AlignedRotatingCache]) -> None:
        """Replace the contents by aligned affine rows, in the columns and bits they have: their masks go on to hold.

        Rows may be in an open prefill if all are. The rows stay as they are. Raises MergeError for a plain row, another
        precision or size, or rows that do not stand in the same columns; RoundError in an open round.
        """
        self._require_no_round("adopt rows")
        rings = [row.inner for row in rows]
        if any(ring.signature() != self.signature() for ring in rings):
            raise MergeError(
                f"rows {sorted({ring.signature() for ring in rings})} cannot be packed as {self.signature()}; "
                "call to_quantized on each with this group size and bits first"
            )
        position = combined_position(self.max_size, rows)
        held = [ring.contents.planes for ring in rings if isinstance(ring, BatchedRotatingQuantCache)]
        planes = [pair for pair in held if pair is not None]
        if len(planes) not in (0, len(rows)):
            raise MergeError("rows with columns and rows without any cannot be packed; align them first")
        check_same_shape(planes)
        self._take(rows, RingContents(position, self._stacked(planes) if planes else None))

    def _stacked(self, planes: Sequence[tuple[AffinePlanes, AffinePlanes]]) -> tuple[AffinePlanes, AffinePlanes]:
        # Spare columns behind the last may differ, and none of them is needed.
        storage = self._ring.storage
        columns = min(storage.width(keys) for keys, _ in planes)
        keys, values = (
            storage.concatenate([storage.columns(part, 0, columns) for part in parts], ROWS)
            for parts in zip(*planes, strict=True)
        )
        return keys, values

    def _take(self, rows: Sequence[AlignedRotatingCache], contents: RingContents[AffinePlanes]) -> None:
        ring = self._ring.with_contents(settled(self._ring.storage, contents))
        self._ring, self._minimum = ring, tuple(row.minimum_reusable_offset for row in rows)

    def merge_rows(self, sources: Sequence[RotatingAffineLayout | AlignedRotatingCache | Solo]) -> None:
        """Replace the contents by the rows of layouts, aligned rows and solo rings, which stay as they are.

        Each row brings its newest ``max_size`` tokens and its reuse floor; no source makes an empty batch. Raises
        RoundError when a round is open here or in a source, MergeError for plain rows and rows that cannot share a
        batch.
        """
        self._require_no_round("merge rows")
        self.adopt_aligned_rows(align_rotating_rows([row for source in sources for row in solo_rows(source)]))

    def extract_row(self, row: int, limit: int | None = None) -> RotatingQuantizedKVCache:
        """Solo ring with the newest ``limit`` tokens of one row (all that are held, when None), copied.

        Raises RoundError in an open round, RowIndexError, or RingShapeError for a limit below 1.
        """
        self._require_no_round("extract a row")
        solo = self._ring.extract_row(row, limit)
        solo.minimum_reusable_offset = self._minimum[row]
        return solo

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order, in an open round too; raises RowIndexError."""
        self._ring.filter_rows(rows)
        self._minimum = tuple(self._minimum[row] for row in rows)
        self._filter_round(rows)

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Announce a padded prefill, see prefill.prepared; without rows it makes one row per length.

        Raises RoundError in an open round.
        """
        self._require_no_round("prepare a prefill")
        self._ring.prepare_prefill(lengths, left_padding, right_padding, force=force)
        self._minimum = self._minimum or (0,) * self._ring.batch_size

    def finalize_prefill(self) -> None:
        """Close a padded prefill; nothing when none is open."""
        self._ring.finalize_prefill()

    def make_mask(self, tokens: int, window: int | None = None, *, return_array: bool = True) -> Mask:
        """Mask for the next ``tokens`` tokens, to be made before their update; see make_ring_mask."""
        return self._ring.make_mask(tokens, window, return_array=return_array)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[AffinePlanes, AffinePlanes]:
        """Store a block ``[rows, kv_heads, tokens, head_dim]``; see RotatingRing.update_and_fetch."""
        return self._ring.update_and_fetch(keys, values)

    def _roll_back(self, before: tuple[int, ...], keep: int | Sequence[int]) -> None:
        self._ring = rollback_rotating_ring(self._ring, before, keep)

    def is_trimmable(self) -> bool:
        """Whether every token ever written is held, so that any number of them can be trimmed."""
        return self._ring.is_trimmable()

    def trim(self, tokens: int) -> int:
        """Remove the newest ``tokens`` tokens of every row; as RotatingRing.trim, but RoundError in an open round."""
        self._require_no_round("trim")
        return self._ring.trim(tokens)

    def state(self) -> list[mx.array]:
        """Every array held, those of the keys first."""
        return self._ring.state()

    @property
    def nbytes(self) -> int:
        """Bytes held, spare columns included."""
        return self._ring.nbytes

    def bytes_per_token(self) -> float:
        """Bytes per row and column of the buffer; 0 when nothing is held."""
        return self._ring.bytes_per_token()

    def capture_donor_attention(self) -> DonorAttention:
        """Lend the rows to query-only layers; see capture_rotating_donor_attention."""
        return capture_rotating_donor_attention(self._ring)


class SpeculativeRotatingAffineLayout(RotatingAffineLayout):
    """Layout for verified drafts: cheap masks where they say the same, extracted rows of the newest window only."""

    def make_mask(self, tokens: int, window: int | None = None, *, return_array: bool = False) -> Mask:
        """Mask for the next ``tokens`` tokens; None or ``"causal"`` when that says the same as the array."""
        return super().make_mask(tokens, window, return_array=return_array)

    def extract_row(self, row: int, limit: int | None = None) -> RotatingQuantizedKVCache:
        """Solo ring with the newest ``limit`` tokens of one row, copied; ``max_size`` when None, and at most."""
        return super().extract_row(row, self.max_size if limit is None else min(limit, self.max_size))


def solo_rows(source: RotatingAffineLayout | AlignedRotatingCache | Solo) -> list[Solo]:
    """Rows of a cache as solo rings; raises RoundError in an open round."""
    if isinstance(source, RotatingAffineLayout):
        return [source.extract_row(row) for row in range(source.batch_size or 0)]
    return [source.extract() if isinstance(source, AlignedRotatingCache) else source]
