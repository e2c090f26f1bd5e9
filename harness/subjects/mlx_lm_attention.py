"""mlx-lm's `scaled_dot_product_attention` as a subject: plain, and its own path for quantized caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from harness.subjects.mlx_attention import OnDevice, mask_and_sinks, planes_of
from harness.subjects.protocol import AffineArrays, PlainArrays, Unsupported
from harness.subjects.views import to_mlx_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.subjects.protocol.attention import AttentionInput


@dataclass(frozen=True)
class _QuantizedCache:
    """What attention asks of a cache: that it has `bits` sends it down the quantized path."""

    bits: int
    group_size: int


class MlxLmAttention(OnDevice):
    """`mlx_lm.models.base.scaled_dot_product_attention`."""

    def prepared(self, given: AttentionInput) -> Callable[[], mx.array]:
        """Put the arrays on the device."""
        from mlx_lm.models.base import scaled_dot_product_attention

        mask, sinks = mask_and_sinks(given)
        queries = to_mlx_view(given.queries)
        keys: Any
        values: Any
        cache: _QuantizedCache | None = None
        if isinstance(given.keys, AffineArrays) and isinstance(given.values, AffineArrays):
            if sinks is not None:
                raise Unsupported("mlx-lm's quantized attention takes no sinks")
            cache = _QuantizedCache(given.keys.bits, given.keys.group_size)
            keys, values = planes_of(given.keys), planes_of(given.values)
            mx.eval(queries, *keys, *values)
        elif isinstance(given.keys, PlainArrays) and isinstance(given.values, PlainArrays):
            keys, values = to_mlx_view(given.keys.data), to_mlx_view(given.values.data)
            mx.eval(queries, keys, values)
        else:
            raise Unsupported("keys and values that are stored in different ways")

        def once() -> mx.array:
            # mlx-lm scales the queries in place: give it an array of its own.
            own = queries + 0
            out: mx.array = scaled_dot_product_attention(
                own, keys, values, cache=cache, scale=given.scale, mask=mask, sinks=sinks
            )
            return out

        return once
