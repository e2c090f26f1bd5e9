"""The reference implementation's trellis matrices as a subject."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import Trellis, Unsupported
from impl.trellis.decode import decode, decode_states
from impl.trellis.gemv import gemv
from impl.trellis.layout import TrellisFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import TrellisSpec


class ReferenceTrellis(Trellis):
    """`impl.trellis` by plain MLX operations."""

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
        return to_numpy(gemv(to_mlx(codes), to_mlx(scales), to_mlx(x), _format(spec), splits))

    def timed(
        self,
        operation: str,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> Callable[[int], None]:
        """Return a function that does `decode` or `gemv` once, on arrays that are on the device beforehand."""
        layout = _format(spec)
        device_codes, device_scales, device_x = to_mlx(codes), to_mlx(scales), to_mlx(x)
        mx.eval(device_codes, device_scales, device_x)

        def decode_once(_call: int) -> None:
            mx.eval(decode(device_codes, device_scales, layout))
            mx.synchronize()

        def gemv_once(_call: int) -> None:
            mx.eval(gemv(device_codes, device_scales, device_x, layout, splits))
            mx.synchronize()

        calls = {"decode": decode_once, "gemv": gemv_once}
        if operation not in calls:
            raise Unsupported(f"timing of {operation}")
        return calls[operation]


def _format(spec: TrellisSpec) -> TrellisFormat:
    return TrellisFormat(**asdict(spec))
