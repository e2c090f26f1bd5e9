"""The reference implementation's attention as a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import AffineArrays, Attention, PlainArrays, Unsupported
from harness.subjects.views import to_mlx_view
from impl.affine import AffinePlanes
from impl.attention import attend

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.subjects.protocol import TimedCall
    from harness.subjects.protocol.attention import AttentionInput
    from impl.attention import Tensor


class ReferenceAttention(Attention):
    """`impl.attention.attend`."""

    def attend(self, given: AttentionInput) -> NDArray[np.generic]:
        """Return [rows, query_heads, queries, value_dim]."""
        return to_numpy(_prepared(given)())

    def timed(self, given: AttentionInput) -> TimedCall:
        """Return what attends once a call, on arrays that are on the device beforehand."""
        once = _prepared(given)
        return lambda _call: once()


def _prepared(given: AttentionInput) -> Callable[[], mx.array]:
    mask, sinks = given.mask, given.sinks
    if isinstance(mask, np.ndarray) and mask.dtype != np.bool_:
        raise Unsupported("additive masks")
    if isinstance(mask, np.ndarray) and mask.shape[1] > 1:
        raise Unsupported("a mask for each head")
    queries, keys, values = to_mlx_view(given.queries), _on_device(given.keys), _on_device(given.values)
    device_mask = to_mlx(mask) if isinstance(mask, np.ndarray) else mask
    device_sinks = None if sinks is None else to_mlx(sinks)
    mx.eval(queries, *_parts(keys), *_parts(values))
    return lambda: attend(queries, keys, values, given.scale, device_mask, device_sinks)


def _on_device(arrays: PlainArrays | AffineArrays) -> Tensor:
    if isinstance(arrays, PlainArrays):
        return to_mlx_view(arrays.data)
    parts = (to_mlx_view(arrays.packed), to_mlx_view(arrays.scales), to_mlx_view(arrays.biases))
    return AffinePlanes(*parts, group_size=arrays.group_size, bits=arrays.bits)


def _parts(tensor: Tensor) -> tuple[mx.array, ...]:
    return tensor.parts if isinstance(tensor, AffinePlanes) else (tensor,)
