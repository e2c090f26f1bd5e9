"""Attention over plain arrays and over affine planes, with grouped query heads."""

from __future__ import annotations

from typing import Literal, TypeAlias

import mlx.core as mx

from impl.affine import AffinePlanes, affine_matmul
from impl.errors import AttentionError

Tensor: TypeAlias = mx.array | AffinePlanes
Mask: TypeAlias = mx.array | Literal["causal"] | None


def attend(queries: mx.array, keys: Tensor, values: Tensor, scale: float, mask: Mask = None) -> mx.array:
    """Scaled dot-product attention, ``softmax(scale * queries @ keys.T) @ values``.

    Shapes: queries ``[rows, query_heads, tokens, head_dim]``; keys and values ``[rows, kv_heads, columns, *]``,
    both plain or both affine (then multiplied as they are, never decoded); result
    ``[rows, query_heads, tokens, value_dim]``. Query head h reads kv head ``h * kv_heads // query_heads``.
    A boolean mask is ``[rows or 1, 1, tokens, columns]``, True where a query sees a column. ``"causal"`` lines the
    last query up with the last column. A query that sees nothing gets finite numbers without meaning.

    Raises AttentionError when shapes or storage do not belong together.
    """
    _check(queries, keys, values, mask)
    if isinstance(mask, mx.array):
        mask = open_blind_rows(mask)
    if isinstance(keys, AffinePlanes) and isinstance(values, AffinePlanes):
        return _attend_affine(queries, keys, values, scale, mask)
    if isinstance(keys, mx.array) and isinstance(values, mx.array):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    raise AttentionError("keys and values must be both plain or both affine; quantize the plain one first")


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


def _attend_affine(queries: mx.array, keys: AffinePlanes, values: AffinePlanes, scale: float, mask: Mask) -> mx.array:
    rows, query_heads, tokens, head_dim = queries.shape
    kv_heads, columns = keys.shape[1:3]
    # One axis for the query heads of a group lets MLX broadcast the planes instead of repeating them.
    grouped = (queries * scale).reshape(rows, kv_heads, query_heads // kv_heads, tokens, head_dim)
    scores = affine_matmul(grouped, keys.map(_add_group_axis), transpose=True)
    if isinstance(mask, str):
        mask = causal_mask(tokens, columns)
    if mask is not None:
        scores = mx.where(mask[:, :, None], scores, mx.finfo(scores.dtype).min)
    weights = mx.softmax(scores, axis=-1, precise=True)
    out = affine_matmul(weights, values.map(_add_group_axis), transpose=False)
    return out.reshape(rows, query_heads, tokens, values.head_dim)


def _add_group_axis(plane: mx.array) -> mx.array:
    return mx.expand_dims(plane, 2)


def _check(queries: mx.array, keys: Tensor, values: Tensor, mask: Mask) -> None:
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
    if isinstance(mask, str):
        if mask != "causal" or tokens > columns:
            raise AttentionError(
                f"mask {mask!r} over {tokens} queries and {columns} columns; use 'causal', None or a boolean array"
            )
    elif mask is not None and (
        mask.dtype != mx.bool_
        or mask.ndim != queries.ndim
        or mask.shape[0] not in (1, rows)
        or mask.shape[1:] != (1, tokens, columns)
    ):
        raise AttentionError(
            f"mask {mask.dtype} {mask.shape}; use a boolean array of shape {(rows, 1, tokens, columns)}"
        )
