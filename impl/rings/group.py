"""Rows of one batch, apart in plain or affine storage or packed in one affine layout: every step for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impl.affine import AffinePlanes, check_quantizable
from impl.attention import AttentionView
from impl.errors import MergeError, RingError
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows
from impl.rings.donor import join_donors
from impl.rings.layout import SpeculativeRotatingAffineLayout
from impl.rings.positions import RotatingKvPositions
from impl.rings.prefill import prepared
from impl.rings.solo import RotatingKVCache
from impl.rings.transaction import rotating_rollback_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

    from impl.attention import Tensor
    from impl.rings.aligned import Solo
    from impl.rings.donor import DonorAttention
    from impl.rings.position import BatchedRotatingState


class AlignedGroup:
    """Aligned rows that take every step together, until they are packed and are one ring.

    To be changed in a copy that is then taken over: an error in the middle of a step leaves a part of the rows behind.
    """

    def __init__(
        self,
        max_size: int,
        rows: Sequence[AlignedRotatingCache] = (),
        packed: SpeculativeRotatingAffineLayout | None = None,
    ) -> None:
        self.rows = tuple(rows)
        self.packed = packed
        self._positions = RotatingKvPositions(max_size)
        self._positions.sync(self.rows)

    def copy(self) -> AlignedGroup:
        """Independent group with the same contents."""
        packed = None if self.packed is None else self.packed.copy()
        return AlignedGroup(self.position.max_size, [row.copy() for row in self.rows], packed)

    @property
    def position(self) -> BatchedRotatingState:
        """Snapshot of the position state."""
        return self._positions.position if self.packed is None else self.packed.position

    @property
    def positions(self) -> RotatingKvPositions:
        """Positions of the rows stored apart, which make their masks; to be borrowed."""
        return self._positions

    @property
    def minimum_reusable_offsets(self) -> tuple[int, ...]:
        """Shortest prefix of each row, in tokens, that may be reused."""
        if self.packed is not None:
            return self.packed.minimum_reusable_offsets
        return tuple(row.minimum_reusable_offset for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare columns included."""
        return sum(part.nbytes for part in self._parts())

    def state(self) -> list[mx.array]:
        """Every array held, row by row while they are apart."""
        return [array for part in self._parts() for array in part.state()]

    def bytes_per_token(self) -> float:
        """Bytes per row and column of the buffers, the mean over rows of different precision."""
        parts = self._parts()
        return sum(part.bytes_per_token() for part in parts) / len(parts) if parts else 0.0

    def is_trimmable(self) -> bool:
        """Whether any number of tokens can be trimmed."""
        return all(part.is_trimmable() for part in self._parts())

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> AttentionView:
        """Store a block ``[rows, kv_heads, tokens, head_dim]`` and give what its queries attend to."""
        if self.packed is not None:
            return AttentionView((self.packed.update_and_fetch(keys, values),))
        parts: list[tuple[Tensor, Tensor]] = []
        for index, row in enumerate(self.rows):
            parts.append(row.update_and_fetch(keys[index : index + 1], values[index : index + 1]))
        self._positions.sync(self.rows)
        return AttentionView(tuple(parts))

    def trim(self, tokens: int) -> None:
        """Remove the newest ``tokens`` tokens of every row."""
        # Asked of the group first: what one row can spare may be too much for another.
        self.position.require_trim(tokens)
        for part in self._parts():
            part.trim(tokens)
        self._positions.sync(self.rows)

    def roll_back(self, before: Sequence[int], keep: int | Sequence[int]) -> None:
        """Keep the first ``keep`` tokens (of each row) since the offsets ``before``."""
        if self.packed is not None:
            self.packed.spec_round_rollback(keep)
            return
        plan = rotating_rollback_plan(self.position, before, keep)
        keeps = [keep] * len(self.rows) if isinstance(keep, int) else keep
        for row, start, kept in zip(self.rows, before, keeps, strict=True):
            row.rollback(start, kept, preserve_columns=plan.trim is None)
        self._positions.sync(self.rows)

    def filter_rows(self, rows: Sequence[int]) -> None:
        """Keep the given rows, in the given order."""
        if self.packed is not None:
            self.packed.filter_rows(rows)
        else:
            self._positions.filter_rows(rows)
            self.rows = tuple(self.rows[row] for row in rows)

    def prepare_prefill(
        self,
        lengths: Sequence[int],
        left_padding: Sequence[int] | None,
        right_padding: Sequence[int] | None,
        *,
        force: bool,
    ) -> None:
        """Announce a padded prefill; a group without rows gets one plain row per length."""
        # Padding of one row opens the prefill of all: a sibling without any must take the same path.
        force = prepared(self.position, lengths, left_padding, right_padding, force=force).has_pending_padding
        if self.packed is not None:
            self.packed.prepare_prefill(lengths, left_padding, right_padding, force=force)
            return
        if not self.rows:
            self.rows = tuple(align_rotating_rows([RotatingKVCache(self.position.max_size) for _ in lengths]))
        for index, row in enumerate(self.rows):
            left, right = (pads[index] if pads else 0 for pads in (left_padding, right_padding))
            row.prepare_prefill(lengths[index], left, right, force=force)
        self._positions.sync(self.rows)

    def finalize_prefill(self) -> None:
        """Close a padded prefill."""
        for part in self._parts():
            part.finalize_prefill()
        self._positions.sync(self.rows)

    def extract_row(self, row: int, limit: int) -> Solo:
        """Solo ring with the newest ``limit`` tokens of one row, in its precision, copied."""
        return self.rows[row].extract(limit) if self.packed is None else self.packed.extract_row(row, limit)

    def capture_donor_attention(self) -> DonorAttention:
        """Lend the rows to query-only layers; raises RingError when nothing is held."""
        parts = self._parts()
        if not parts:
            raise RingError("a group without rows has nothing to lend; merge rows first")
        return join_donors([part.capture_donor_attention() for part in parts])

    def require_convertible(self, group_size: int, bits: int) -> None:
        """Raise MergeError for a row that is affine in another way, AffineError for one that cannot become affine."""
        for row in self.rows:
            ring = row.quantized_attention
            if ring is not None and (ring.group_size, ring.bits) != (group_size, bits):
                raise MergeError(
                    f"a row {ring.signature()} cannot join rows of group_size {group_size} and {bits} bits; "
                    "use one group size and bits"
                )
            for part in row.inner.contents.planes or ():
                if not isinstance(part, AffinePlanes):
                    check_quantizable(part, group_size)

    def convert(self, rows: Sequence[int], group_size: int, bits: int) -> None:
        """Make the given plain rows affine, where their columns lie, and pack the group once no row is plain.

        Precision changes at the tokens that a row has: a shorter prefix of it must not be reused.
        """
        converted = list(self.rows)
        for index in rows:
            converted[index] = row = self.rows[index].to_quantized(group_size, bits)
            row.minimum_reusable_offset = max(row.minimum_reusable_offset, row.offset)
        self.rows = tuple(converted)
        if self.rows and all(row.affine_conversion is None for row in self.rows):
            layout = SpeculativeRotatingAffineLayout(self.position.max_size, group_size, bits)
            layout.adopt_aligned_rows(self.rows)
            self.rows, self.packed = (), layout

    def _parts(self) -> Sequence[AlignedRotatingCache | SpeculativeRotatingAffineLayout]:
        return self.rows if self.packed is None else (self.packed,)
