"""Metal kernel text on the machine at hand, by `impl.metal`, as a subject."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from harness.subjects.arrays import to_mlx
from harness.subjects.mlx_kernel import MOST_KERNELS, MlxKernels, arguments
from harness.subjects.protocol import KernelView, Unsupported
from harness.subjects.reference.kernel_checks import active
from impl.metal import CompileError, MetalKernel, NotCoveredError, ToolchainError, metal_kernel
from impl.metal.backend import CPU, METAL, choose, default_backend
from impl.metal.cpu import LANE_SEED_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.subjects.protocol import KernelAnswer, KernelLaunch, KernelText
    from impl.metal import Backend


class ReferenceKernels(MlxKernels):
    """`impl.metal.metal_kernel`: MLX's Metal where there is one, or its CUDA, else the CPU."""

    def __init__(self, wanted: Backend | None = None) -> None:
        """Use `wanted`, or let the machine and METAL_ASSAY_BACKEND choose what runs the text."""
        # Launches that are compared, timed and run in chosen orders are not checked as well: `check` is for that.
        with default_backend(None):
            backend = choose(wanted)
        super().__init__(partial(metal_kernel, backend=METAL if backend is None else backend))
        # A GPU chooses itself.
        self.lane_orders = backend is not None and backend.name == CPU
        self._collector = active()
        self.checks = self._collector is not None
        self._checked = lru_cache(MOST_KERNELS)(self._built_checked)

    def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
        """Run the kernel once, its threads in the order asked for where the backend knows orders."""
        try:
            with _lane_order(lane_order):
                return super().launch(text, launch)
        except (NotCoveredError, ToolchainError) as error:
            # The text is fine; this machine can't run it.
            raise Unsupported(str(error).splitlines()[0]) from None

    def check(self, text: KernelText, launch: KernelLaunch, output_shapes: tuple[tuple[int, ...], ...]) -> bool:
        """Run the kernel once under the checks of `impl.metal.checks`; the collector of this process hears of it."""
        assert self._collector is not None  # noqa: S101 - `checks` says so
        memories = [to_mlx(one.memory) if isinstance(one, KernelView) else None for one in launch.inputs]
        given = {**arguments(launch, memories), "output_shapes": [tuple(shape) for shape in output_shapes]}
        try:
            mx.eval(self._checked(text)(**given))
        except CompileError as error:
            lines = {"source": text.source.splitlines(), "header": text.header.splitlines()}
            self._collector.refused(text.name, str(error), lines)
        except (NotCoveredError, ToolchainError) as error:
            raise Unsupported(str(error).splitlines()[0]) from None
        return self._collector.harmless(text.name)

    def _built_checked(self, text: KernelText) -> Any:
        assert self._collector is not None  # noqa: S101 - `checks` says so
        return MlxKernels(partial(metal_kernel, backend=self._collector.backend)).kernel(text)

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
