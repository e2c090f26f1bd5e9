"""Kernel text through a function with the signature of `mx.fast.metal_kernel`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import KernelAnswer, Kernels, KernelView

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.subjects.protocol import KernelLaunch, KernelText, TimedCall

# More kernels than the shipped cases have, so that none of them is built twice in one worker.
MOST_KERNELS = 512


class MlxKernels(Kernels):
    """Launches on MLX's own Metal, or on whatever `make` runs them."""

    def __init__(self, make: Callable[..., Any] | None = None) -> None:
        """Take `mx.fast.metal_kernel` where `make` is None."""
        self._make = mx.fast.metal_kernel if make is None else make
        self._kernels = lru_cache(MOST_KERNELS)(self._built)

    def kernel(self, text: KernelText) -> Any:
        """Return the kernel of a text, the same one each time."""
        # Read from a recording, its names are lists.
        return self._kernels(replace(text, input_names=tuple(text.input_names), output_names=tuple(text.output_names)))

    def _built(self, text: KernelText) -> Any:
        return self._make(
            name=text.name,
            input_names=list(text.input_names),
            output_names=list(text.output_names),
            source=text.source,
            header=text.header,
            ensure_row_contiguous=text.ensure_row_contiguous,
            atomic_outputs=text.atomic_outputs,
        )

    def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
        """Run the kernel once, in the order that the device takes."""
        del lane_order
        memories = [to_mlx(one.memory) if isinstance(one, KernelView) else None for one in launch.inputs]
        outputs = self.kernel(text)(**arguments(launch, memories))
        mx.eval(outputs)
        after = tuple(None if memory is None else to_numpy(memory) for memory in memories)
        return KernelAnswer(tuple(to_numpy(output) for output in outputs), after)

    def timed(self, text: KernelText, launch: KernelLaunch) -> TimedCall:
        """Return what launches once a call, on arrays that are on the device beforehand."""
        memories = [to_mlx(one.memory) if isinstance(one, KernelView) else None for one in launch.inputs]
        given = arguments(launch, memories)
        mx.eval([x for x in given["inputs"] if isinstance(x, mx.array)])
        kernel = self.kernel(text)
        return lambda _call: kernel(**given)


def arguments(launch: KernelLaunch, memories: list[mx.array | None]) -> dict[str, Any]:
    """Return the keyword arguments of a kernel's call; `memories` has the memory of every input that is a view."""
    return {
        "inputs": [
            mx.as_strided(memory, tuple(one.shape), tuple(one.strides), one.offset)
            if isinstance(one, KernelView) and memory is not None
            else one
            for one, memory in zip(launch.inputs, memories, strict=True)
        ],
        "template": [(name, _dtype(value) if isinstance(value, str) else value) for name, value in launch.template],
        "grid": tuple(launch.grid),
        "threadgroup": tuple(launch.threadgroup),
        "output_shapes": [(size,) for size in launch.output_sizes],
        "output_dtypes": [_dtype(name) for name in launch.output_dtypes],
        "init_value": launch.init,
    }


def _dtype(name: str) -> mx.Dtype:
    found: mx.Dtype = getattr(mx, "bool_" if name == "bool" else name)
    return found
