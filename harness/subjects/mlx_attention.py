"""MLX's own attention and rotary positions (`mx.fast`) as a subject; mlx-lm's attention is run the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import AffineArrays, Attention, PlainArrays, Unsupported
from harness.subjects.views import to_mlx_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.subjects.protocol import TimedCall
    from harness.subjects.protocol.attention import AttentionInput, RopeInput


class OnDevice(Attention):
    """Attention by a function of MLX arrays: subclasses say which, in `prepared`."""

    def attend(self, given: AttentionInput) -> NDArray[np.generic]:
        """Return [rows, query_heads, queries, value_dim]."""
        return to_numpy(self.prepared(given)())

    def timed(self, given: AttentionInput) -> TimedCall:
        """Return what attends once a call."""
        once = self.prepared(given)
        return lambda _call: once()

    def prepared(self, given: AttentionInput) -> Callable[[], mx.array]:
        """Put the arrays on the device and return what computes the output of them."""
        raise NotImplementedError


class MlxAttention(OnDevice):
    """`mx.fast.scaled_dot_product_attention` and `mx.fast.rope`."""

    def prepared(self, given: AttentionInput) -> Callable[[], mx.array]:
        """Put the arrays on the device; affine planes are not offered."""
        if not (isinstance(given.keys, PlainArrays) and isinstance(given.values, PlainArrays)):
            raise Unsupported("attention over affine planes")
        queries, keys, values = (to_mlx_view(each) for each in (given.queries, given.keys.data, given.values.data))
        mask, sinks = mask_and_sinks(given)
        mx.eval(queries, keys, values)
        return lambda: mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=given.scale, mask=mask, sinks=sinks
        )

    def rope(self, given: RopeInput) -> NDArray[np.generic]:
        """Return the turned tokens; offsets go in as an array of one for each row, or as a number."""
        offset = to_mlx(given.offsets) if isinstance(given.offsets, np.ndarray) else given.offsets
        return to_numpy(
            mx.fast.rope(
                to_mlx_view(given.x),
                given.dims,
                traditional=given.traditional,
                base=given.base,
                scale=given.scale,
                offset=offset,
            )
        )


def mask_and_sinks(given: AttentionInput) -> tuple[Any, mx.array | None]:
    """Return the mask as MLX takes it (a word, an array or None), and the sinks."""
    mask = to_mlx(given.mask) if isinstance(given.mask, np.ndarray) else given.mask
    return mask, None if given.sinks is None else to_mlx(given.sinks)


def planes_of(arrays: AffineArrays) -> tuple[mx.array, mx.array, mx.array]:
    """Return packed, scales and biases, as mlx-lm's quantized cache returns them."""
    return to_mlx_view(arrays.packed), to_mlx_view(arrays.scales), to_mlx_view(arrays.biases)
