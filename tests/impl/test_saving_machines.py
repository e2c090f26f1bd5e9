"""Random programs whose caches go through a file before every update, in open rounds and open prefills too."""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from impl.saving import load_cache, save_cache
from tests.impl.test_crossing_machine import GroupMachine
from tests.impl.test_ring_machine import RingMachine

if TYPE_CHECKING:
    from tests.impl.test_ring_machine import Batch, Row, Solo

# The long run is `ASSAY_SAVING_PROGRAMS=1000 pytest tests/impl/test_saving_machines.py`.
PROGRAMS = settings(
    max_examples=int(os.environ.get("ASSAY_SAVING_PROGRAMS", "5")),
    stateful_step_count=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def through_a_file(cache: Any) -> Any:
    """Save, load, and save again: both files must say the same."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "first.safetensors", Path(folder) / "second.safetensors"
        save_cache(first, cache)
        loaded = load_cache(first, type(cache))
        save_cache(second, loaded)
        assert first.read_bytes() == second.read_bytes()
    assert loaded.position == cache.position
    return loaded


class SavedRings(RingMachine):
    """The ring machine; what it feeds was read from a file just before, and a solo ring goes on in both forms."""

    def feed(
        self,
        ring: Batch | Solo,
        rows: list[Row],
        ids: list[list[int]],
        window: int | None = None,
        kept: int | None = None,
    ) -> None:
        loaded = through_a_file(ring)
        if ring is getattr(self, "ring", None):
            self.ring = ring = loaded
        else:
            super().feed(loaded, deepcopy(rows), ids, window, kept)
        super().feed(ring, rows, ids, window, kept)

    @rule()
    def save_and_load(self) -> None:
        self.ring = through_a_file(self.ring)


class SavedGroups(GroupMachine):
    """The machine of rows that become affine; the group that it feeds was read from a file just before."""

    def feed(self, ids: list[list[int]], window: int | None = None, *, in_round: bool = False) -> None:
        self.group = through_a_file(self.group)
        super().feed(ids, window, in_round=in_round)

    @rule()
    def save_and_load(self) -> None:
        self.group = through_a_file(self.group)


TestSavedRings = SavedRings.TestCase
TestSavedRings.settings = PROGRAMS
TestSavedGroups = SavedGroups.TestCase
TestSavedGroups.settings = PROGRAMS
