"""Lines of `assay show` for an affine case: shapes, the exact sizes of the planes, and the first values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.baseline import affine as baseline
from harness.kinds.affine.data import make_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.affine.schema import AffineCase, AffineGiven

_SHOWN_WORDS = 4
_SHOWN_VALUES = 6


def describe(case: AffineCase) -> Iterator[str]:
    """Write what is quantized and multiplied, with the first values and words."""
    given = case.given
    values = make_values(given)
    planes = values.planes
    yield f"W: {given.dtype} {list(given.weight_shape())}, {given.data}"
    yield f"first values: {' '.join(f'{float(value):.6g}' for value in values.weights.flat[:_SHOWN_VALUES])}"
    yield f"planes: packed uint32 {list(planes.packed.shape)}, scales and biases {list(planes.scales.shape)}"
    yield f"a group: {given.group} codes of {given.bits} bits, {given.group * given.bits} bits without gaps"
    row = planes.packed.reshape(-1, planes.packed.shape[-1])[0]
    codes = baseline.unpack(row, given.bits)
    yield f"first codes: {' '.join(str(int(code)) for code in codes[:_SHOWN_VALUES])}"
    yield f"first words: {' '.join(f'{int(word):#010x}' for word in row[:_SHOWN_WORDS])}"
    yield f"first scale and bias: {float(planes.scales.flat[0]):.9g} {float(planes.biases.flat[0]):.9g}"
    if "matmul" in case.check or "matmul" in case.time:
        yield from _product(given)
    yield f"checked: {', '.join(case.check)}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


def _product(given: AffineGiven) -> Iterator[str]:
    matrix = "W.T" if given.transposed else "W"
    yield f"x: {given.dtype} {list(given.x_shape())}, {given.x}"
    yield f"product: x @ {matrix}, {list(given.result_shape())}, sums of {given.inputs} terms"
