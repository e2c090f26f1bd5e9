"""W in whatever form a subject gets it: affine planes, microscaling planes, or plain."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from harness.baseline import affine, microscaling
from harness.subjects.protocol import AffineArrays, PlainArrays
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Quantized = AffineArrays | MicroscalingArrays
Matrix = Quantized | PlainArrays
M = TypeVar("M", bound=Matrix)


def mapped(matrix: M, change: Callable[[str, NDArray[Any]], NDArray[Any]]) -> M:
    """Return `matrix` with every array changed; `change` gets the name of the array, too."""
    arrays = {field.name: getattr(matrix, field.name) for field in fields(matrix)}
    changed: Any = {name: change(name, array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
    return replace(matrix, **changed)


def decoded(matrix: Matrix) -> NDArray[np.float64]:
    """Return the numbers that `matrix` stands for."""
    if isinstance(matrix, PlainArrays):
        return matrix.data.astype(np.float64)
    if isinstance(matrix, AffineArrays):
        return affine.dequantize(matrix.packed, matrix.scales, matrix.biases, matrix.group_size, matrix.bits)
    return microscaling.dequantize(matrix.packed, matrix.scales, matrix.mode)


def encoded(weights: NDArray[Any], mode: str, group_size: int, bits: int) -> Matrix:
    """Return `weights` as the baseline quantizes them."""
    if mode == "plain":
        return PlainArrays(weights)
    if mode == "affine":
        return AffineArrays(*affine.encode(weights, group_size, bits), group_size, bits)
    return MicroscalingArrays(*microscaling.encode(weights, mode), group_size, bits, mode)


def magnitudes(matrix: Matrix) -> NDArray[np.float64]:
    """Return the sum of the magnitudes of the terms behind each number: |scale code| + |bias|, or just |number|."""
    if not isinstance(matrix, AffineArrays):
        return np.abs(decoded(matrix))
    biases = np.repeat(matrix.biases.astype(np.float64), matrix.group_size, axis=-1)
    return np.abs(decoded(replace(matrix, biases=np.zeros_like(matrix.biases)))) + np.abs(biases)
