"""Attention over plain arrays and over affine planes, with grouped query heads and attention sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import mlx.core as mx

from impl.affine import AffinePlanes, affine_matmul
from impl.errors import AttentionError

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensor: TypeAlias = mx.array | AffinePlanes
Mask: TypeAlias = mx.array | Literal["causal"] | None


def attend(
    queries: mx.array, keys: Tensor, values: Tensor, scale: float, mask: Mask = None, sinks: mx.array | None = None
) -> mx.array:
    """Scaled dot-product attention, ``softmax(scale * queries @ keys.T) @ values``.

    Shapes: queries ``[rows, query_heads, tokens, head_dim]``; keys and values ``[rows, kv_heads, columns, *]``,
    both plain or both affine (then multiplied as they are, never decoded); result
    ``[rows, query_heads, tokens, value_dim]``. Query head h reads kv head ``h * kv_heads // query_heads``.
    A boolean mask is ``[rows or 1, 1, tokens or 1, columns]``, True where a query sees a column. ``"causal"`` lines
    the last query up with the last column. ``sinks`` are logits ``[query_heads]`` that take part in the softmax and
    bring no value. A query that sees nothing gets zeros with sinks, else finite numbers without meaning.

    Raises AttentionError when shapes or storage do not belong together.
    """
    _check(queries, keys, values, mask, sinks)
    if sinks is not None:
        sinks = sinks.astype(queries.dtype)
    elif isinstance(mask, mx.array):
        mask = open_blind_rows(mask)
    if isinstance(keys, AffinePlanes) and isinstance(values, AffinePlanes):
        return _attend_affine(queries, keys, values, scale, mask, sinks)
    if isinstance(keys, mx.array) and isinstance(values, mx.array):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    raise AttentionError("keys and values must be both plain or both affine; quantize the plain one first")


@dataclass(frozen=True, slots=True, eq=False)
class AttentionView:
    """Keys and values of the rows of one batch, in parts: the rows of one part are stored alike.

    A part holds the next rows of the batch, keys and values ``[rows, kv_heads, columns, *]``, all of one width.
    """

    parts: tuple[tuple[Tensor, Tensor], ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(keys.shape[0] for keys, _ in self.parts)

    @property
    def width(self) -> int:
        """Columns."""
        return self.parts[0][0].shape[2]

    @property
    def dtype(self) -> mx.Dtype:
        """Type of the keys, decoded."""
        return self.parts[0][0].dtype

    def attend(self, queries: mx.array, scale: float, mask: Mask = None, sinks: mx.array | None = None) -> mx.array:
        """Attention of every query row over its own row, in the precision of that row; see attend.

        Raises AttentionError when queries or mask do not belong to these rows.
        """
        rows, mask_rows = self.rows, mask.shape[0] if isinstance(mask, mx.array) else 1
        if queries.shape[0] != rows or mask_rows not in (1, rows):
            raise AttentionError(
                f"{queries.shape[0]} query rows and {mask_rows} mask rows for {rows} rows; give one of each per row"
            )
        outputs, first = [], 0
        for keys, values in self.parts:
            own = slice(first, first := first + keys.shape[0])
            part_mask = mask[own] if isinstance(mask, mx.array) and mask_rows > 1 else mask
            outputs.append(attend(queries[own], keys, values, scale, part_mask, sinks))
        return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)


def range_mask(starts: Sequence[int], ends: Sequence[int], columns: int) -> mx.array | None:
    """Boolean ``[rows, 1, 1, columns]``, True in ``[starts[b], ends[b])``; None when every row sees every column."""
    if not any(starts) and all(end == columns for end in ends):
        return None
    place = mx.arange(columns)
    first, end = (mx.expand_dims(mx.array(list(edge), dtype=mx.int32), (1, 2, 3)) for edge in (starts, ends))
    return mx.logical_and(place >= first, place < end)


def causal_mask(tokens: int, columns: int) -> mx.array:
    """Boolean ``[1, 1, tokens, columns]``: query i sees columns up to ``columns - tokens + i``."""
    last = mx.arange(columns - tokens, columns)
    return (last[:, None] >= mx.arange(columns))[None, None]


def open_blind_rows(mask: mx.array) -> mx.array:
    """Mask in which a query that saw nothing sees everything; the others see what they saw.

    Softmax over nothing is 0/0 in some kernels. Such a query is padding, nobody reads its answer, and stored padding is
    finite.
    """
    return mx.logical_or(mask, mx.logical_not(mx.any(mask, axis=-1, keepdims=True)))


def _attend_affine(
    queries: mx.array, keys: AffinePlanes, values: AffinePlanes, scale: float, mask: Mask, sinks: mx.array | None
) -> mx.array:
    rows, query_heads, tokens, head_dim = queries.shape
    kv_heads, columns = keys.shape[1:3]
    # One axis for the query heads of a group lets MLX broadcast the planes instead of repeating them.
    grouped = (queries * scale).reshape(rows, kv_heads, query_heads // kv_heads, tokens, head_dim)
    scores = affine_matmul(grouped, keys.map(_add_group_axis), transpose=True)
    if isinstance(mask, str):
        mask = causal_mask(tokens, columns)
    if mask is not None:
        scores = mx.where(mask[:, :, None], scores, mx.finfo(scores.dtype).min)
    if sinks is not None:
        logits = mx.broadcast_to(sinks.reshape(kv_heads, -1, 1, 1), (*scores.shape[:-1], 1))
        scores = mx.concatenate([scores, logits], axis=-1)
    weights = mx.softmax(scores, axis=-1, precise=True)[..., :columns]
    out = affine_matmul(weights, values.map(_add_group_axis), transpose=False)
    return out.reshape(rows, query_heads, tokens, values.head_dim)


def _add_group_axis(plane: mx.array) -> mx.array:
    return mx.expand_dims(plane, 2)


def _check(queries: mx.array, keys: Tensor, values: Tensor, mask: Mask, sinks: mx.array | None) -> None:
    rows, query_heads, tokens, head_dim = queries.shape
    if keys.shape[0] != rows or keys.shape[3] != head_dim or keys.shape[:3] != values.shape[:3]:
        raise AttentionError(
            f"queries {queries.shape}, keys {keys.shape} and values {values.shape} do not fit together"
        )
    kv_heads, columns = keys.shape[1:3]
    if query_heads % kv_heads:
        raise AttentionError(
            f"{query_heads} query heads cannot share {kv_heads} kv heads; use a multiple of {kv_heads}"
        )
    if sinks is not None and sinks.shape != (query_heads,):
        raise AttentionError(f"sinks {sinks.shape} for {query_heads} query heads; give one logit per query head")
    if isinstance(mask, str):
        if mask != "causal" or tokens > columns:
            raise AttentionError(
                f"mask {mask!r} over {tokens} queries and {columns} columns; use 'causal', None or a boolean array"
            )
    elif mask is not None and (
        mask.dtype != mx.bool_
        or mask.ndim != queries.ndim
        or mask.shape[0] not in (1, rows)
        or mask.shape[1:] not in ((1, tokens, columns), (1, 1, columns))
    ):
        raise AttentionError(
            f"mask {mask.dtype} {mask.shape}; use a boolean array of shape {(rows, 1, tokens, columns)}"
        )
