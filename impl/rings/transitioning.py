"""Batches whose rows start plain and become affine one by one, each when it has a given number of tokens."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Self

from impl.affine import check_format, check_quantizable
from impl.errors import RingShapeError
from impl.rings.aligned import align_rotating_rows
from impl.rings.group import AlignedGroup
from impl.rings.layout import solo_rows
from impl.rings.masks import make_ring_mask
from impl.rings.position import check_rows
from impl.rings.rounds import SpeculativeRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from impl.attention import AttentionView, Mask
    from impl.rings.aligned import AlignedRotatingCache, Solo
    from impl.rings.donor import DonorAttention
    from impl.rings.layout import RotatingAffineLayout
    from impl.rings.position import BatchedRotatingState

    Source = Solo | AlignedRotatingCache | RotatingAffineLayout


class TransitioningKvRows(SpeculativeRows):
    """Batch of plain and affine rows that share their columns, and therefore one mask.

    A row becomes affine as soon as ``crossing_tokens`` of its tokens are committed. Padding does not count, nor do the
    tokens of an open round: what is rejected must not change how the rest is stored, so a round converts nothing.
    No column moves at a crossing. Once every row is affine, all are packed into one layout.
    """

    def __init__(self, max_size: int, group_size: int = 64, bits: int = 4, *, crossing_tokens: int) -> None:
        check_format(group_size, bits)
        self._group = AlignedGroup(max_size)
        self._crossings: tuple[int, ...] = ()
        self.group_size = group_size
        self.bits = bits
        self.crossing_tokens = _checked_crossings([crossing_tokens], 1)[0]

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._group.position

    @property
    def rows(self) -> tuple[AlignedRotatingCache, ...]:
        """Rows stored apart, to be borrowed; none once they are packed."""
        return self._group.rows

    @property
    def packed(self) -> RotatingAffineLayout | None:
        """Layout of all rows, to be borrowed; None while any row is plain."""
        return self._group.packed

    @property
    def row_crossing_tokens(self) -> tuple[int, ...]:
        """Number of committed tokens at which each row becomes affine."""
        return self._crossings

    @property
    def committed_offsets(self) -> tuple[int, ...]:
        """Tokens of each row that nothing takes back: without padding and without those of an open round."""
        position = self.position
        return self._before or tuple(max(0, position.valid_offset(row)) for row in range(position.batch_size))

    @property
    def minimum_reusable_offsets(self) -> tuple[int, ...]:
        """Shortest prefix of each row, in tokens, that may be reused: up to there precision changed."""
        return self._group.minimum_reusable_offsets

    def signature(self) -> str:
        """Name of everything that two groups must share to hold rows of one batch."""
        return f"kv:rotating-transitioning:{self.max_size}:{self.group_size}:{self.bits}"

    def make_empty_batch(self) -> Self:
        """Make a group of the same kind and numbers, without rows."""
        return type(self)(self.max_size, self.group_size, self.bits, crossing_tokens=self.crossing_tokens)

    def copy(self) -> Self:
        """Independent group with the same contents."""
        group = copy(self)
        group._group = self._group.copy()  # noqa: SLF001 -- our own copy, not yet seen by anybody
        return group

    def merge_rows(
        self, sources: Sequence[Source | TransitioningKvRows], crossing_tokens: Sequence[int] | None = None
    ) -> None:
        """Replace the contents by the rows of any such caches, aligned anew; the sources stay as they are.

        Each row brings its newest ``max_size`` tokens, its precision and its reuse floor. ``crossing_tokens`` gives one
        number per row; without it, rows of a group keep theirs and others get this group's. No source makes an empty
        group.

        Raises RoundError when a round is open here or in a source, MergeError for rows that cannot share a batch or
        are affine in another way, AffineError for rows that could not become affine, RingShapeError for
        ``crossing_tokens`` that do not belong to the rows.
        """
        self._require_no_round("merge rows")
        solos: list[Solo] = []
        crossings: list[int] = []
        for source in sources:
            if isinstance(source, TransitioningKvRows):
                solos += [source.extract_row(row) for row in range(source.batch_size or 0)]
                crossings += source.row_crossing_tokens
            else:
                solos += solo_rows(source)
                crossings += [self.crossing_tokens] * (len(solos) - len(crossings))
        chosen = _checked_crossings(crossings if crossing_tokens is None else crossing_tokens, len(solos))
        group = AlignedGroup(self.max_size, align_rotating_rows(solos))
        group.require_convertible(self.group_size, self.bits)
        self._take(group, chosen)

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order, in an open round too; raises RowIndexError."""
        check_rows(rows, len(self._crossings))
        group = self._group.copy() if rows else AlignedGroup(self.max_size)
        group.filter_rows(rows)
        self._take(group, [self._crossings[row] for row in rows])
        self._filter_round(rows)

    def extract_row(self, row: int, limit: int | None = None) -> Solo:
        """Solo ring of the row's precision with its newest ``limit`` tokens, copied; ``max_size`` if None, and at most.

        Raises RoundError in an open round, RowIndexError, or RingShapeError for a limit below 1.
        """
        self._require_no_round("extract a row")
        check_rows([row], len(self._crossings))
        return self._group.extract_row(row, self.max_size if limit is None else min(limit, self.max_size))

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Announce a padded prefill, see prefill.prepared; without rows it makes one plain row per length.

        Raises RoundError in an open round.
        """
        self._require_no_round("prepare a prefill")
        group = self._group.copy()
        group.prepare_prefill(lengths, left_padding, right_padding, force=force)
        self._take(group, self._crossings or [self.crossing_tokens] * len(lengths))

    def finalize_prefill(self) -> None:
        """Close a padded prefill; nothing when none is open."""
        group = self._group.copy()
        group.finalize_prefill()
        self._take(group)

    def make_mask(self, tokens: int, window: int | None = None, *, return_array: bool = False) -> Mask:
        """Mask of all rows for the next ``tokens`` tokens, to be made before their update; see make_ring_mask."""
        return make_ring_mask(self.position, tokens, window, return_array=return_array)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> AttentionView:
        """Store a block ``[rows, kv_heads, tokens, head_dim]``; give what to attend to, each row in its own precision.

        Rows cross after it, so the view still holds them as they were. Raises RingShapeError when the block does not
        fit, AffineError when it could not become affine: now, and not only when a row crosses.
        """
        rows = len(self._crossings)
        if not rows or keys.shape[:1] != (rows,) or values.shape[:1] != (rows,):
            raise RingShapeError(f"keys {keys.shape}, values {values.shape} for {rows} rows; give one row per request")
        for block in (keys, values):
            check_quantizable(block, self.group_size)
        group = self._group.copy()
        view = group.update_and_fetch(keys, values)
        self._take(group)
        return view

    def spec_round_begin(self) -> None:
        """Open a round. Raises RoundError when one is open, PendingPrefillError in an open prefill."""
        super().spec_round_begin()
        if self._group.packed is not None:
            self._group.packed.spec_round_begin()

    def spec_round_commit(self) -> None:
        """Keep every token of the open round; then rows may cross. Raises RoundError when none is open."""
        self._round()
        group = self._group.copy()
        if group.packed is not None:
            group.packed.spec_round_commit()
        self._take(group, closes_round=True)
        super().spec_round_commit()

    def _roll_back(self, before: tuple[int, ...], keep: int | Sequence[int]) -> None:
        group = self._group.copy()
        group.roll_back(before, keep)
        self._take(group, closes_round=True)

    def is_trimmable(self) -> bool:
        """Whether every token ever written is held, so that any number of them can be trimmed."""
        return self._group.is_trimmable()

    def trim(self, tokens: int) -> int:
        """Remove the newest ``tokens`` tokens of every row; as RotatingRing.trim, but RoundError in an open round."""
        self._require_no_round("trim")
        group = self._group.copy()
        group.trim(tokens)
        self._take(group)
        return tokens

    def state(self) -> list[mx.array]:
        """Every array held, row by row while they are apart."""
        return self._group.state()

    @property
    def nbytes(self) -> int:
        """Bytes held, spare columns included."""
        return self._group.nbytes

    def bytes_per_token(self) -> float:
        """Bytes per row and column of the buffers, the mean over rows; 0 when nothing is held."""
        return self._group.bytes_per_token()

    def capture_donor_attention(self) -> DonorAttention:
        """Lend the rows to query-only layers, each in its own precision, tokens of an open round included.

        Raises RingError when nothing is held.
        """
        return self._group.capture_donor_attention()

    def _take(self, group: AlignedGroup, crossings: Sequence[int] | None = None, *, closes_round: bool = False) -> None:
        crossings = self._crossings if crossings is None else tuple(crossings)
        if self._before is None or closes_round:
            # Every token is committed now, and the offset of a row leaves padding out.
            due = [
                index
                for index, row in enumerate(group.rows)
                if row.affine_conversion is not None and max(0, row.offset) >= crossings[index]
            ]
            group.convert(due, self.group_size, self.bits)
        self._group, self._crossings = group, crossings


def _checked_crossings(crossings: Sequence[int], rows: int) -> tuple[int, ...]:
    if len(crossings) != rows or any(tokens < 0 for tokens in crossings):
        raise RingShapeError(f"crossing_tokens {list(crossings)} for {rows} rows; give one per row, 0 or more")
    return tuple(crossings)
