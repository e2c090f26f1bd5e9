"""Affine-quantized tensors: packed words with one scale and one bias per group along the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import mlx.core as mx

from impl.errors import AffineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GROUP_SIZES: Final = (32, 64, 128)
BITS: Final = (1, 2, 3, 4, 5, 6, 8)
WORD_BITS: Final = 32
FLOAT_DTYPES: Final = (mx.float32, mx.float16, mx.bfloat16)


@dataclass(frozen=True, slots=True, eq=False)
class AffinePlanes:
    """One affine-quantized tensor, value = code * scale + bias.

    ``packed`` is uint32 ``[rows, kv_heads, tokens, head_dim * bits / 32]``; ``scales`` and ``biases`` are
    ``[rows, kv_heads, tokens, head_dim / group_size]`` in the dtype of the values. Groups run along head_dim,
    so the bits of a token never depend on its neighbors.
    """

    packed: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    @property
    def head_dim(self) -> int:
        """Values per token and head."""
        return self.packed.shape[-1] * WORD_BITS // self.bits

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the decoded tensor, ``[rows, kv_heads, tokens, head_dim]``."""
        return (*self.packed.shape[:-1], self.head_dim)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.packed.ndim

    @property
    def dtype(self) -> mx.Dtype:
        """Type of the decoded values."""
        return self.scales.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the three planes together."""
        return self.packed.nbytes + self.scales.nbytes + self.biases.nbytes

    @property
    def parts(self) -> tuple[mx.array, mx.array, mx.array]:
        """The planes in MLX's order: packed, scales, biases."""
        return self.packed, self.scales, self.biases

    def map(self, change: Callable[[mx.array], mx.array]) -> AffinePlanes:
        """Apply one change of rows, heads or tokens to the three planes; the codes stay bit for bit."""
        return AffinePlanes(change(self.packed), change(self.scales), change(self.biases), self.group_size, self.bits)


def check_format(group_size: int, bits: int) -> None:
    """Raise AffineError unless MLX has affine groups of ``group_size`` values with ``bits`` bits each."""
    if bits not in BITS:
        raise AffineError(f"bits={bits} is not supported; use one of {BITS}")
    if group_size not in GROUP_SIZES:
        raise AffineError(f"group_size={group_size} is not supported; use one of {GROUP_SIZES}")


def check_head_dim(head_dim: int, group_size: int) -> None:
    """Raise AffineError unless ``head_dim`` values are whole groups of ``group_size``."""
    if head_dim < 1 or head_dim % group_size:
        fitting = [size for size in GROUP_SIZES if head_dim and head_dim % size == 0]
        advice = f"use group_size={fitting[-1]}" if fitting else "keep this tensor plain"
        raise AffineError(f"head_dim={head_dim} is not a multiple of group_size={group_size}; {advice}")


def check_quantizable(x: mx.array, group_size: int) -> None:
    """Raise AffineError unless ``x`` is floating-point with whole groups of ``group_size`` along its last axis."""
    check_head_dim(x.shape[-1], group_size)
    if x.dtype not in FLOAT_DTYPES:
        raise AffineError(f"cannot quantize {x.dtype}; convert to float32, float16 or bfloat16 first")


def quantize(x: mx.array, group_size: int, bits: int) -> AffinePlanes:
    """Quantize ``x`` along its last axis.

    Raises AffineError, before any work, when the last axis is not a multiple of ``group_size``, when MLX has no
    such group or number of bits, or when ``x`` is not a floating-point array.
    """
    check_format(group_size, bits)
    check_quantizable(x, group_size)
    packed, scales, biases = mx.quantize(x, group_size=group_size, bits=bits)
    return AffinePlanes(packed, scales, biases, group_size, bits)


def dequantize(planes: AffinePlanes) -> mx.array:
    """Decode to a plain array of ``planes.shape``, in the dtype of the scales."""
    if planes.dtype == mx.float16:
        # scale * code may pass float16's largest number before the bias brings it back (a group from -40000 to
        # 40000): the sum is formed in float32 and rounded once.
        scales, biases = planes.scales.astype(mx.float32), planes.biases.astype(mx.float32)
        wide = mx.dequantize(planes.packed, scales, biases, group_size=planes.group_size, bits=planes.bits)
        return wide.astype(mx.float16)
    return mx.dequantize(*planes.parts, group_size=planes.group_size, bits=planes.bits)


def affine_matmul(x: mx.array, planes: AffinePlanes, *, transpose: bool) -> mx.array:
    """Multiply ``x`` with the quantized tensor (transposed on request) without decoding it."""
    return mx.quantized_matmul(x, *planes.parts, transpose=transpose, group_size=planes.group_size, bits=planes.bits)


def concatenate(parts: Sequence[AffinePlanes], axis: int) -> AffinePlanes:
    """Join tensors along rows, heads or tokens.

    Raises AffineError when group sizes or bits differ: codes of different precision cannot share a plane.
    """
    first = parts[0]
    if any((part.group_size, part.bits) != (first.group_size, first.bits) for part in parts):
        kinds = sorted({(part.group_size, part.bits) for part in parts})
        raise AffineError(
            f"cannot join affine planes of different (group_size, bits): {kinds}; decode and quantize them alike"
        )
    packed, scales, biases = (
        mx.concatenate(list(same), axis=axis) for same in zip(*(p.parts for p in parts), strict=True)
    )
    return AffinePlanes(packed, scales, biases, first.group_size, first.bits)
