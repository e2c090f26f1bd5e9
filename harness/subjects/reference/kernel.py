"""Metal kernel text on the machine at hand, by `impl.metal`, as a subject."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.subjects.arrays import to_mlx
from harness.subjects.mlx_kernel import MlxKernels, arguments
from harness.subjects.protocol import KernelView, Unsupported
from impl.metal import MetalKernel, NotCoveredError, ToolchainError, metal_kernel
from impl.metal.backend import choose
from impl.metal.cpu import LANE_SEED_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.subjects.protocol import KernelAnswer, KernelLaunch, KernelText


class ReferenceKernels(MlxKernels):
    """`impl.metal.metal_kernel`: MLX's Metal where there is one, else the CPU."""

    def __init__(self) -> None:
        """Let the machine, or METAL_ASSAY_BACKEND, choose what runs the text."""
        super().__init__(metal_kernel)
        # On Metal the GPU chooses.
        self.lane_orders = choose(None) is not None

    def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
        """Run the kernel once, its threads in the order asked for where the backend knows orders."""
        try:
            with _lane_order(lane_order):
                return super().launch(text, launch)
        except (NotCoveredError, ToolchainError) as error:
            # The text is fine; this machine can't run it.
            raise Unsupported(str(error).splitlines()[0]) from None

    def prepare(self, text: KernelText, launch: KernelLaunch) -> None:
        """Compile into the cache of `impl.metal`."""
        kernel = self.kernel(text)
        if isinstance(kernel, MetalKernel):
            memories = [to_mlx(one.memory) if isinstance(one, KernelView) else None for one in launch.inputs]
            kernel.compile(**arguments(launch, memories))


@contextmanager
def _lane_order(order: str | None) -> Iterator[None]:
    # A backend object per order would load every kernel again.
    before = os.environ.get(LANE_SEED_VARIABLE)
    if order is not None:
        os.environ[LANE_SEED_VARIABLE] = order
    try:
        yield
    finally:
        if order is not None:
            os.environ.pop(LANE_SEED_VARIABLE)
            if before is not None:
                os.environ[LANE_SEED_VARIABLE] = before
