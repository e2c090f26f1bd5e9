"""Compiles many kernels at once, so that a run later starts from a full cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from impl.metal.errors import MetalTextError
from impl.metal.toolchain import cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from impl.metal.kernel import MetalKernel


def compile_all(
    calls: Iterable[tuple[MetalKernel, Mapping[str, Any]]], workers: int | None = None
) -> list[MetalTextError | None]:
    """Compile each kernel for a call with the given arguments; return for each None, or why it does not compile.

    workers: how many compile at the same time, one a core unless given. The work is done by other processes.
    """

    def one(call: tuple[MetalKernel, Mapping[str, Any]]) -> MetalTextError | None:
        kernel, arguments = call
        try:
            kernel.compile(**arguments)
        except MetalTextError as error:
            return error
        return None

    with ThreadPoolExecutor(workers or cores()) as pool:
        return list(pool.map(one, calls))
