"""Comparisons that need no answer to an update: positions, arrays that were handed out earlier, pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.compare import Exact
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kinds.base import Notes
    from harness.kinds.ring.track import Track
    from harness.subjects.protocol import Pinned, Ring


def compare_positions(track: Track, where: str, notes: Notes) -> None:
    """Compare offsets, and those of rotary embeddings, with the number of tokens of each row."""
    with subject_call(f"offsets after {where}"):
        told = {"offsets": track.ring.offsets(), "rope offsets": track.ring.rope_offsets()}
    wanted = track.histories.lengths()
    for name, offsets in told.items():
        if offsets is not None:
            notes.compared()
            if list(offsets) != wanted:
                notes.found("positions", where, f"{name} {wanted}", f"{name} {list(offsets)}")


def compare_earlier_arrays(ring: Ring, where: str, notes: Notes) -> None:
    """Compare every array that crossed the border so far with what it held then."""
    with subject_call(f"looking at earlier arrays after {where}"):
        handed_out = ring.handed_out()
    for item in handed_out or ():
        notes.compared()
        wrong = Exact().check(item.then, item.now)
        if wrong is not None:
            place = f"{where}: {item.label}, element {wrong.where}"
            notes.found("untouched", place, wrong.expected, wrong.actual, wrong.note)
            return


def compare_pins(pins: Mapping[str, Any], told: Mapping[str, Pinned], where: str, notes: Notes) -> None:
    """Compare what a case states of one subject's layout and policy with what that tells of itself."""
    for name, want in pins.items():
        notes.compared()
        if name not in told or told[name] != want:
            notes.found("pin", where, f"{name} {want}", f"{name} {told.get(name, 'is not told')}")
