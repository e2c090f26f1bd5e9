"""Kind `attention`: softmax attention over plain or affine keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.arrays import AffineArrays, PlainArrays
    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True)
class AttentionInput:
    """What attention is computed of: softmax(scale * queries @ keys.T, masked, with sinks) @ values.

    `queries` [rows, query_heads, queries, head_dim]; `keys` and `values` [rows, kv_heads, columns, head_dim or
    value_dim], both plain or both affine. Query heads are a multiple of kv heads; query head h reads kv head
    h // (query_heads / kv_heads).

    `mask` None: a query sees every column. `"causal"`: the last query sees every column, the one before it all but the
    last, and so on. Boolean [rows or 1, query_heads or 1, queries or 1, columns]: True where a query sees a column. In
    the dtype of the queries, same shape: added to the scaled scores, -inf where a query doesn't see a column, and 0 or
    any finite number where it does.

    `sinks` [query_heads], in the dtype of the queries: a logit per head that takes part in the softmax, is not scaled,
    and brings no value. A query that sees nothing gets zeros with sinks, and any finite numbers without.
    """

    queries: NDArray[np.generic]
    keys: PlainArrays | AffineArrays
    values: PlainArrays | AffineArrays
    scale: float
    mask: Literal["causal"] | NDArray[np.generic] | None = None
    sinks: NDArray[np.generic] | None = None


@dataclass(frozen=True)
class RopeInput:
    """What rotary position embedding turns: `x` [rows, heads, tokens, head_dim], the first `dims` channels of it.

    Token t of a row is at position `scale` * (offset + t), `offsets` being int32 [rows], or one number for all. Pair i
    turns by position * base ** (-2 i / dims): channels i and i + dims / 2, or 2 i and 2 i + 1 if `traditional`.
    """

    x: NDArray[np.generic]
    dims: int
    traditional: bool
    base: float
    scale: float
    offsets: NDArray[np.int32] | int


class Attention:
    """Attention under test (kind `attention`)."""

    def attend(self, given: AttentionInput) -> NDArray[np.generic]:
        """Return [rows, query_heads, queries, value_dim] in the dtype of the queries."""
        raise Unsupported("attention")

    def rope(self, given: RopeInput) -> NDArray[np.generic]:
        """Return `given.x` with every token turned by its position, in the same dtype."""
        raise Unsupported("rotary positions")

    def timed(self, given: AttentionInput) -> TimedCall:
        """Return what attends once a call, on arrays that are on the device, for the clock (`protocol.timed`)."""
        raise Unsupported("timing of attention")
