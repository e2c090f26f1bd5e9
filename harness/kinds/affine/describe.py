"""Lines of `assay show` for an affine case: shapes, the exact sizes of the planes, and the first values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.baseline import affine as baseline
from harness.baseline.microscaling import FORMATS
from harness.kinds.affine.data import make_values
from harness.subjects.protocol import AffineArrays, PlainArrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.affine.data import Values
    from harness.kinds.affine.matrices import Quantized
    from harness.kinds.affine.schema import AffineCase, AffineGiven

_SHOWN_WORDS = 4
_SHOWN_VALUES = 6


def describe(case: AffineCase) -> Iterator[str]:
    """Write what is quantized and multiplied, with the first values and words."""
    given = case.given
    values = make_values(given)
    planes = values.planes
    yield f"mode: {given.mode}; in memory: {given.views}"
    yield f"W: {given.dtype} {list(given.weight_shape())}, {given.data}"
    yield f"first values: {' '.join(f'{float(value):.6g}' for value in values.weights.flat[:_SHOWN_VALUES])}"
    if not isinstance(planes, PlainArrays):
        yield from _planes(given, planes)
    if {"matmul", "gather"} & {*case.check, *case.time}:
        yield from _product(given, values)
    yield f"checked: {', '.join(case.check)}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


def _planes(given: AffineGiven, planes: Quantized) -> Iterator[str]:
    rest = "scales and biases" if isinstance(planes, AffineArrays) else "scales uint8"
    yield f"planes: packed uint32 {list(planes.packed.shape)}, {rest} {list(planes.scales.shape)}"
    yield f"a group: {given.group} codes of {given.bits} bits, {given.group * given.bits} bits without gaps"
    row = planes.packed.reshape(-1, planes.packed.shape[-1])[0]
    codes = baseline.unpack(row, given.bits)
    yield f"first codes: {' '.join(str(int(code)) for code in codes[:_SHOWN_VALUES])}"
    yield f"first words: {' '.join(f'{int(word):#010x}' for word in row[:_SHOWN_WORDS])}"
    if isinstance(planes, AffineArrays):
        yield f"first scale and bias: {float(planes.scales.flat[0]):.9g} {float(planes.biases.flat[0]):.9g}"
    else:
        scale = int(planes.scales.flat[0])
        yield f"first scale: {FORMATS[planes.mode].scales[scale]:.9g} (code {scale})"


def _product(given: AffineGiven, values: Values) -> Iterator[str]:
    matrix = "W.T" if given.transposed else "W"
    yield f"x: {given.dtype} {list(given.x_shape())}, {given.x}"
    yield f"product: x @ {matrix}, {list(given.result_shape())}, sums of {given.inputs} terms"
    if given.picks is not None:
        yield f"blocks of x: {' '.join(map(str, values.blocks.flat))}"
        yield f"matrices: {' '.join(map(str, values.picks.flat))}"
