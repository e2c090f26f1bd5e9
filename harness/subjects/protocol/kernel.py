"""Kind `kernel`: the text of a Metal kernel, launched once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True)
class KernelText:
    """What is given to `mx.fast.metal_kernel`: `source` is the body of a function, `header` stands before it."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str = ""
    ensure_row_contiguous: bool = True
    atomic_outputs: bool = False


@dataclass(frozen=True)
class KernelView:
    """An array that lies inside `memory` [elements]: its shape, its strides and its offset, all in elements."""

    memory: NDArray[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class KernelLaunch:
    """One launch.

    inputs: views, or Python scalars. template: names with a bool, an int or the name of a dtype. output_sizes: elements
    of each output, all of one axis. init: what the outputs hold before the kernel writes, None for anything.
    """

    inputs: tuple[KernelView | float, ...]
    template: tuple[tuple[str, bool | int | str], ...]
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    output_sizes: tuple[int, ...]
    output_dtypes: tuple[str, ...]
    init: float | None


@dataclass(frozen=True)
class KernelAnswer:
    """The outputs, and what the memory of each input holds after the launch (None for a Python scalar)."""

    outputs: tuple[NDArray[Any], ...]
    memories: tuple[NDArray[Any] | None, ...]


class Kernels:
    """Launches of Metal kernel text under test (kind `kernel`).

    `lane_orders`: whether `launch` can let the threads of a threadgroup take their turns in a chosen order.
    `checks`: whether `check` looks for faults; only while somebody asked for that.
    """

    lane_orders: bool = False
    checks: bool = False

    def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
        """Run the kernel once.

        lane_order: `reverse`, or a number as text, a seed of a random order; a subject without orders ignores it.
        """
        raise Unsupported("kernel launches")

    def check(self, text: KernelText, launch: KernelLaunch, output_shapes: tuple[tuple[int, ...], ...]) -> bool:
        """Run the kernel with every access watched; what is found goes where the faults of other kernels go.

        output_shapes: as an author gives them, without room behind the end. Its outputs hold `launch.init` before, and
        nothing where that is None. Returns whether a launch that is not watched can do no harm: it compiles, stays
        inside its memory, and ends.
        """
        raise Unsupported("checks of a kernel")

    def prepare(self, text: KernelText, launch: KernelLaunch) -> None:
        """Compile for such a launch ahead of time, where there is something to compile; run nothing."""

    def timed(self, text: KernelText, launch: KernelLaunch) -> TimedCall:
        """Return what launches once a call and returns the list of outputs, for the clock (`protocol.timed`)."""
        raise Unsupported("timing of a kernel")
