"""Affine quantization as MLX defines it, naively: a group of values shares one scale and one bias.

The formulas are those of `mx.quantize` (mode "affine", MLX 0.32, CPU backend). Arithmetic is float32, as there;
scale and bias are rounded to the dtype of the values only when they are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BITS = 32

# MLX's `eps`: no step is smaller, so that a group of equal values does not divide by zero.
SMALLEST_SCALE = np.float32(1e-7)


def encode(x: NDArray[Any], group_size: int, bits: int) -> tuple[NDArray[np.uint32], NDArray[Any], NDArray[Any]]:
    """Quantize finite `x` [..., n] by groups of `group_size` along the last axis.

    Returns packed codes [..., n * bits / 32], scales and biases [..., n / group_size] in the dtype of `x`.
    """
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, group_size)
    with np.errstate(over="ignore", invalid="ignore"):
        scale, bias = _scale_and_bias(groups.min(axis=-1), groups.max(axis=-1), bits)
        steps = np.rint((groups - bias[..., np.newaxis]) / scale[..., np.newaxis])
        codes = np.clip(steps, 0, 2**bits - 1).astype(np.uint32).reshape(x.shape)
        return pack(codes, bits), scale.astype(x.dtype), bias.astype(x.dtype)


def _scale_and_bias(
    low: NDArray[np.float32], high: NDArray[np.float32], bits: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return scale and bias of groups from their extremes `low` and `high`."""
    if bits == 1:
        # A single bit picks one of the two extremes.
        return np.maximum(high - low, SMALLEST_SCALE), low
    scale = np.maximum((high - low) / np.float32(2**bits - 1), SMALLEST_SCALE)
    low_is_larger = np.abs(low) > np.abs(high)
    # Code 0 stands for the extreme of larger magnitude, `edge`; the other codes step from there to the other extreme.
    scale = np.where(low_is_larger, scale, -scale)
    edge = np.where(low_is_larger, low, high)
    steps_to_zero = np.rint(edge / scale)
    # The step is adjusted so that zero is a whole number of steps away from the edge: zero is stored exactly, too.
    adjusted = steps_to_zero != 0
    scale = np.divide(edge, steps_to_zero, out=scale, where=adjusted)
    return scale, np.where(adjusted, edge, np.float32(0))


def dequantize(
    packed: NDArray[np.uint32], scales: NDArray[Any], biases: NDArray[Any], group_size: int, bits: int
) -> NDArray[np.float64]:
    """Return scale * code + bias [..., n] in float64."""
    codes = unpack(packed, bits)
    groups = codes.reshape(*scales.shape, group_size).astype(np.float64)
    values = scales.astype(np.float64)[..., np.newaxis] * groups + biases.astype(np.float64)[..., np.newaxis]
    return values.reshape(codes.shape)


def product(x: NDArray[Any], matrix: NDArray[np.float64], *, transpose: bool) -> NDArray[np.float64]:
    """Return x @ matrix.T (`transpose`) or x @ matrix in float64; leading axes broadcast."""
    return x.astype(np.float64) @ (np.swapaxes(matrix, -1, -2) if transpose else matrix)


def pack(codes: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Pack codes [..., n] of `bits` bits into words [..., n * bits / 32].

    Bit i of code j is bit j * bits + i of the row's bit string, and bit p of the string is bit p mod 32 of word
    p div 32. There are no gaps, so codes of 3, 5 and 6 bits straddle words.
    """
    each = np.unpackbits(codes.astype(np.uint8)[..., np.newaxis], axis=-1, count=bits, bitorder="little")
    string = each.reshape(*codes.shape[:-1], codes.shape[-1] * bits)
    return np.packbits(string, axis=-1, bitorder="little").view("<u4").astype(np.uint32)


def unpack(packed: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Return the codes [..., n] in words [..., n * bits / 32]; the inverse of `pack`."""
    as_bytes = np.ascontiguousarray(packed).astype("<u4").view(np.uint8)
    string = np.unpackbits(as_bytes, axis=-1, bitorder="little")
    each = string.reshape(*packed.shape[:-1], packed.shape[-1] * WORD_BITS // bits, bits)
    codes = np.zeros(each.shape[:-1], np.uint32)
    for i in range(bits):
        codes |= each[..., i].astype(np.uint32) << np.uint32(i)
    return codes
