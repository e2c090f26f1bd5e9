"""The reference implementation's trellis matrices as a subject."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import Refused, Trellis, TrellisOffer, Unsupported
from impl.trellis.convert import from_exl3, from_qtip, to_exl3, to_qtip
from impl.trellis.decode import decode, decode_states
from impl.trellis.encoder import encode_matrix
from impl.trellis.errors import TrellisError
from impl.trellis.gemv import gemv
from impl.trellis.layout import TrellisFormat, join_blocks, split_blocks
from impl.trellis.products import CodedMatrix, partials, product
from impl.trellis.variants import ANYTHING, VARIANTS, ProductShape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import TimedCall, TrellisSpec


class ReferenceTrellis(Trellis):
    """`impl.trellis` by plain MLX operations; products also by its kernels (`impl.trellis.variants`)."""

    def __init__(self, variant: str | None = None) -> None:
        """Multiply by one variant, or by what a caller gets who names none."""
        self._variant = variant

    def variants(self, spec: TrellisSpec, *, batch: int, splits: int) -> dict[str, TrellisOffer]:
        """Return what `impl.trellis.variants` says of each."""
        shape = ProductShape(_format(spec), batch, splits)
        return {
            each.name: TrellisOffer(
                each.reason(shape), each.rounding, _matmul_roundoff() if each.rounding == "matmul" else 2.0**-24
            )
            for each in VARIANTS
        }

    def variant(self, name: str) -> Trellis:
        """Return the same with products by one variant."""
        return ReferenceTrellis(name)

    def partials(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        """Return the float32 sums [batch, splits, columns] of the variant."""
        matrix = CodedMatrix(to_mlx(codes), to_mlx(scales), _format(spec))
        return to_numpy(partials(matrix, to_mlx(x), self._variant or ANYTHING, splits))

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the state of every weight, [rows, columns]."""
        return to_numpy(decode_states(to_mlx(codes), _format(spec)))

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the matrix [rows, columns], scaled by row."""
        return to_numpy(decode(to_mlx(codes), to_mlx(scales), _format(spec)))

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        """Return x @ matrix, float32 [batch, columns]."""
        layout, numbers = _format(spec), to_mlx(x)
        if self._variant is None:
            return to_numpy(gemv(to_mlx(codes), to_mlx(scales), numbers, layout, splits))
        matrix = CodedMatrix(to_mlx(codes), to_mlx(scales), layout)
        return to_numpy(product(matrix, numbers, self._variant, splits))

    def encode(self, spec: TrellisSpec, matrix: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.uint32]:
        """Return the codes that the two-pass search finds."""
        codes, _ = encode_matrix(to_mlx(matrix), _format(spec), scales=to_mlx(scales))
        return to_numpy(codes)

    def to_qtip(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Return the bit streams of QTIP."""
        return to_numpy(to_qtip(split_blocks(to_mlx(codes), _format(spec)), spec.bits, spec.state_bits))

    def from_qtip(self, spec: TrellisSpec, stream: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Return flat codes of the bit streams of QTIP."""
        return to_numpy(join_blocks(from_qtip(to_mlx(stream), spec.bits, spec.state_bits), _format(spec)))

    def to_exl3(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the words of EXL3."""
        return to_numpy(to_exl3(split_blocks(to_mlx(codes), _format(spec)), spec.state_bits))

    def from_exl3(self, spec: TrellisSpec, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return flat codes of the words of EXL3."""
        return to_numpy(join_blocks(from_exl3(to_mlx(words), spec.state_bits), _format(spec)))

    def timed(
        self,
        operation: str,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> TimedCall:
        """Return what does `decode` or `gemv` once a call, on arrays that are on the device beforehand."""
        layout = _format(spec)
        device_codes, device_scales, device_x = to_mlx(codes), to_mlx(scales), to_mlx(x)
        mx.eval(device_codes, device_scales, device_x)

        matrix, variant = CodedMatrix(device_codes, device_scales, layout), self._variant
        calls: dict[str, TimedCall] = {
            "decode": lambda _call: decode(device_codes, device_scales, layout),
            "gemv": lambda _call: gemv(device_codes, device_scales, device_x, layout, splits),
        }
        if variant is not None:
            calls = {"gemv": lambda _call: product(matrix, device_x, variant, splits)}
        if operation not in calls:
            raise Unsupported(f"timing of {operation}")
        return calls[operation]


def _matmul_roundoff() -> float:
    # GPUs may multiply float32 matrices as TF32, with 10 bits after the point, unless told not to.
    exact = mx.default_device() == mx.cpu or os.environ.get("MLX_ENABLE_TF32") == "0"
    return 2.0**-24 if exact else 2.0**-11


def _format(spec: TrellisSpec) -> TrellisFormat:
    try:
        return TrellisFormat(**asdict(spec))
    except TrellisError as error:
        raise Refused(str(error)) from None
