"""Microscaling formats, naively: elements are numbers of 4 or 8 bits, and a group of them shares one scale of 8 bits.

Elements and scales are those of the OCP Microscaling Formats specification, version 1.0 (E2M1, E4M3, E8M0), and of
`mx.quantize` for how they go together; "nvfp4" is E2M1 with an E4M3 scale for every 16. There are no biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.affine import pack, unpack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def _small_floats(exponent_bits: int, mantissa_bits: int, bias: int) -> Array:
    """Return the numbers of all codes: a sign bit, then exponent, then mantissa; exponent 0 is subnormal."""
    values = []
    for code in range(2 ** (1 + exponent_bits + mantissa_bits)):
        mantissa = code % 2**mantissa_bits
        exponent = code // 2**mantissa_bits % 2**exponent_bits
        sign = -1.0 if code // 2 ** (mantissa_bits + exponent_bits) else 1.0
        if exponent == 0:
            values.append(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
        else:
            values.append(sign * (2**mantissa_bits + mantissa) * 2.0 ** (exponent - bias - mantissa_bits))
    return np.array(values)


E2M1 = _small_floats(2, 1, bias=1)
# All ones but the sign are NaN; E4M3 has no infinity.
E4M3 = np.where(np.arange(256) % 128 == 127, np.nan, _small_floats(4, 3, bias=7))
# Powers of two without a sign; 255 is NaN.
E8M0 = np.append(2.0 ** np.arange(-127.0, 128.0), np.nan)


@dataclass(frozen=True)
class Format:
    """How a mode stores numbers: the values of all codes of an element and of a scale."""

    group_size: int
    bits: int
    elements: Array
    scales: Array

    @property
    def magnitudes(self) -> Array:
        """Values of the codes without a sign, ascending, NaN left out: code i has the magnitude i."""
        half = self.elements[: len(self.elements) // 2]
        return half[~np.isnan(half)]

    @property
    def top(self) -> float:
        """The largest element."""
        return float(self.magnitudes[-1])


FORMATS = {
    "mxfp4": Format(32, 4, E2M1, E8M0),
    "mxfp8": Format(32, 8, E4M3, E8M0),
    "nvfp4": Format(16, 4, E2M1, E4M3),
}


def encode(x: NDArray[Any], mode: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Quantize finite `x` [..., n] by groups along the last axis.

    Returns packed codes [..., n * bits / 32] and scales [..., n / group_size].

    The scale is as MLX 0.32.4 chooses it: the largest magnitude of the group over the largest element, as the next
    power of two ("mx": rounded up, so that nothing exceeds the largest element; the specification, and MLX before,
    let it) or as the nearest E4M3 number ("nv"). A value over its scale goes to the nearest element, from halfway to
    the one with an even code.
    """
    form = FORMATS[mode]
    groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, form.group_size)
    wanted = np.abs(groups).max(axis=-1) / form.top
    if mode == "nvfp4":
        scales = nearest(wanted, E4M3[:127]).astype(np.uint8)
    else:
        exponents = np.ceil(np.log2(wanted, where=wanted > 0, out=np.zeros_like(wanted)))
        scales = (np.clip(exponents, -127, 127) + 127).astype(np.uint8)
    steps = form.scales[scales][..., np.newaxis]
    scaled = np.divide(groups, steps, out=np.zeros_like(groups), where=steps > 0)
    sign = np.signbit(scaled).astype(np.uint32) << np.uint32(form.bits - 1)
    codes = nearest(np.abs(scaled), form.magnitudes).astype(np.uint32) | sign
    return pack(codes.reshape(x.shape), form.bits), scales


def nearest(values: Array, table: Array) -> NDArray[np.intp]:
    """Return for each of `values`, which are not negative, the index of the nearest in the ascending `table`.

    From halfway between two the even index; what lies beyond the table gets its last.
    """
    halfway = (table[:-1] + table[1:]) / 2
    below = np.searchsorted(halfway, values, side="left")
    tie = values == halfway[np.minimum(below, len(halfway) - 1)]
    codes: NDArray[np.intp] = below + (tie & (below < len(halfway)) & (below % 2 == 1))
    return codes


def dequantize(packed: NDArray[np.uint32], scales: NDArray[np.uint8], mode: str) -> Array:
    """Return scale * element [..., n] in float64, which holds every such product exactly."""
    form = FORMATS[mode]
    return form.elements[unpack(packed, form.bits)] * np.repeat(form.scales[scales], form.group_size, axis=-1)
