"""Does it matter what a kernel found where nothing is? The launch is made again with something else there.

Reading memory that nobody wrote or a lane that takes no part, or converting an infinity, is common and harmless as long
as the value is not used: `float v = shared[lane]; y[i] = lane < count ? v : 0;`. So this is a fault only when the
outputs change with that value, bit by bit, in a launch that is the same otherwise.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from impl.metal.checks.memory import Blocks
    from impl.metal.checks.native import Found, Kernel, Launched

# `Fault` of runtime/faults.h.
_UNINITIALIZED, _ARITHMETIC, _INACTIVE_LANE, _FRESH = 3, (4, 5, 6, 7), 9, 10
IF_NEEDED = {_UNINITIALIZED, *_ARITHMETIC, _INACTIVE_LANE}
# Zero, and a large number in every type: 1.5e16 as float, 203 as half. The usual launch has NaN.
_FILLS = (0x00, 0x5A)
# Of one launch; a kernel with more places than this has told its author enough.
_MOST_PLACES = 8
_MOST_VARIABLES = 16


def bits(blocks: Blocks) -> bytes:
    """Return all outputs as they are in memory."""
    return b"".join(ctypes.string_at(block.begin, block.bytes) for block in blocks.outputs())


@dataclass
class Probes:
    """The probes of one call. launch: makes one with a probe in the order of `launched` and leaves the outputs."""

    kernel: Kernel
    blocks: Blocks
    known: dict[tuple[int, int], bool] = field(default_factory=dict)

    def needed(self, found: Found, launched: bytes, launch: Callable[[tuple[int, int, int]], Launched | None]) -> bool:
        """Tell whether outputs change with what was read at this place."""
        key = (found.fault, found.site)
        if key not in self.known and len(self.known) < _MOST_PLACES:
            self.known[key] = self._changes(*key, launched, launch)
        return self.known.get(key, False)

    def variables(
        self, launched: bytes, launch: Callable[[tuple[int, int, int]], Launched | None]
    ) -> list[tuple[str, int]]:
        """Return names and places of the variables of threads whose missing first value changes outputs."""
        if not self.kernel.fresh or not self._changes(_FRESH, 0, launched, launch):
            return []
        numbered = list(enumerate(self.kernel.fresh, start=1))[:_MOST_VARIABLES]
        return [variable for number, variable in numbered if self._changes(_FRESH, number, launched, launch)]

    def _changes(
        self, fault: int, site: int, launched: bytes, launch: Callable[[tuple[int, int, int]], Launched | None]
    ) -> bool:
        for fill in _FILLS:
            one = launch((fault, site, fill))
            if one is not None and (one.status != "done" or bits(self.blocks) != launched):
                return True
        return False
