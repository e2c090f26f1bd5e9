"""Which backends run Metal text on this machine: found out by running some on each."""

from __future__ import annotations

import mlx.core as mx

from impl.metal import metal_kernel
from impl.metal.backend import CPU, CUDA, METAL

_TEXT = "uint i = thread_position_in_grid.x; y[i] = 2 * x[i];"


def backends() -> dict[str, str]:
    """Return, by name, "runs", or why a backend does not."""
    return {name: _tried(name) for name in (METAL, CUDA, CPU)}


def _tried(name: str) -> str:
    x = mx.arange(32, dtype=mx.float32)
    try:
        kernel = metal_kernel(name="assay_tried", input_names=["x"], output_names=["y"], source=_TEXT, backend=name)
        (y,) = kernel(
            inputs=[x], grid=(32, 1, 1), threadgroup=(32, 1, 1), output_shapes=[(32,)], output_dtypes=[x.dtype]
        )
        right = bool(mx.array_equal(y, 2 * x).item())
    except Exception as error:  # noqa: BLE001 - whatever is missing, it does not run
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return "runs" if right else "runs, and answers wrong"
