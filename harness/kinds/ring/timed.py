"""What is timed of a ring: one operation over and over, on the cache as the case's steps left it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.dtypes import numpy_dtype
from harness.kinds.base import TURNS, Notes, StopInstance, Timed, Work, turned
from harness.kinds.ring import steps
from harness.kinds.ring.checks import check_attention, check_stored, check_visible
from harness.kinds.ring.observe import read_answer
from harness.kinds.ring.run import Driver, expected_ids
from harness.kinds.ring.stored import Shown
from harness.subjects.protocol import Answer, Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.kinds.ring.checks import Expected
    from harness.kinds.ring.observe import View
    from harness.kinds.ring.schema import RingCase
    from harness.subjects.protocol import AffineStorage, RingSpec, Subject

# A full cache grows with every call; so many tokens hardly change what one costs.
MOST_GROWTH = 256
# Columns that are compared with their tokens stored alone before attention over all of them is.
LOOKED_AT = 32


def timed(case: RingCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare one operation on a cache of its own: `decode` one token, `append` the last block, `attention`."""
    driver = Driver(turned(case, salt).model_copy(update={"check": ["positions"]}), subject, Notes())
    driver.run()
    tokens = _block_tokens(case) if operation == "append" else 1
    ids = _turning_ids(driver, tokens)
    if operation == "attention":
        return _attention(driver, ids)
    written = _Written(driver, ids, tuple(case.check))
    track = driver.track
    call = track.ring.timed(operation, [Block(*driver.bench.tokens.block(own)) for own in ids])
    # Each row's tokens are read as they come, and written as they are stored.
    moved = tokens * sum(token_bytes(track.spec, None) + token_bytes(track.spec, own) for own in track.storages)
    most = max(2, MOST_GROWTH // tokens) if track.spec.window is None else None
    return Timed(call, written.check, Work(moved), TURNS, stateful=True, most_calls=most, queued=_mask)


def token_bytes(spec: RingSpec, storage: AffineStorage | None) -> int:
    """Return the bytes of keys and values of one token of one row, stored so."""
    size, channels = numpy_dtype(spec.dtype).itemsize, spec.head_dim + spec.value_dim
    if storage is None:
        return spec.kv_heads * channels * size
    return spec.kv_heads * (channels * storage.bits // 8 + channels // storage.group_size * 2 * size)


def attention_work(spec: RingSpec, expected: Expected, storages: Sequence[AffineStorage | None]) -> Work:
    """Return what attention of `expected` [rows][queries] ids must do: read what is seen, and the queries once."""
    moved = operations = 0
    channels = spec.query_heads * (spec.head_dim + spec.value_dim)
    for row, storage in zip(expected, storages, strict=True):
        seen = [len(query) for query in row if query]
        moved += max(seen, default=0) * token_bytes(spec, storage)
        moved += len(seen) * channels * numpy_dtype(spec.dtype).itemsize
        operations += 2 * sum(seen) * channels
    return Work(moved, operations)


class _Written:
    """What updates must show: the history of the cache, taken along as calls are checked."""

    def __init__(self, driver: Driver, ids: list[NDArray[np.int64]], checks: tuple[str, ...]) -> None:
        self._driver, self._ids, self._checks = driver, ids, checks
        self._track = driver.track.snapshot()
        self._done = 0

    def check(self, number: int, output: Any, notes: Notes) -> None:
        track = self._track
        for turn in range(self._done, number):
            track.wrote(self._ids[turn % len(self._ids)])
            track.cross()
        self._done = number + 1
        block, before, storages = self._ids[number % len(self._ids)], track.histories.lengths(), list(track.storages)
        alones = track.alones()
        track.wrote(block)
        # A row crosses after the update: what that returned was stored as before.
        track.cross()
        where = f"call {number}"
        answer = _answer(output, where, notes)
        view = read_answer(answer, track.spec, storages, self._driver.group, block.shape[1], where, notes)
        good = check_visible(view, expected_ids(track, block, before), block, where, notes)
        if good and "stored" in self._checks:
            check_stored(view, alones, where, notes)


def _attention(driver: Driver, ids: list[NDArray[np.int64]]) -> Timed:
    track, tokens = driver.track.snapshot(), driver.bench.tokens
    block, before = track.new_ids(1), track.histories.lengths()
    keys, values, _ = tokens.block(block)
    call = track.ring.timed("attention", [Block(keys, values, tokens.block(own)[2]) for own in ids])
    storages, alones = list(track.storages), track.alones()
    track.wrote(block)
    expected = expected_ids(track, block, before)

    def check(number: int, output: Any, notes: Notes) -> None:
        where, asking = f"call {number}", ids[number % len(ids)]
        view = read_answer(_answer(output, where, notes), track.spec, storages, driver.group, 1, where, notes)
        if view.output is None:
            notes.found("attention", where, "an output", "none")
        elif check_visible(view, expected, block, where, notes) and check_stored(_some(view), alones, where, notes):
            # Encoding every token alone takes longer than all calls: some are, and no subject knows which.
            shown = [Shown(view, row, tokens.last_id, storage) for row, storage in enumerate(storages)]
            check_attention(view, expected, asking, tokens, shown, track.spec, where, notes)

    return Timed(call, check, attention_work(track.spec, expected, storages))


def _some(view: View) -> View:
    """Return a view in which only some columns are seen, chosen at random."""
    columns = view.sees.shape[-1]
    chosen = np.isin(np.arange(columns), np.random.default_rng().permutation(columns)[:LOOKED_AT])
    return replace(view, sees=view.sees & chosen)


def _mask(output: Any) -> object:
    """Return what an update showed that is no view of the cache."""
    return output.mask


def _answer(output: Any, where: str, notes: Notes) -> Answer:
    notes.compared()
    if not isinstance(output, Answer):
        notes.found("shape", where, "an Answer", type(output).__name__)
        raise StopInstance
    return output


def _turning_ids(driver: Driver, tokens: int) -> list[NDArray[np.int64]]:
    """Return the ids [rows, tokens] of each turn's block; all rows are given the same."""
    ids = np.arange(1, driver.bench.tokens.last_id + 1)
    return [np.tile(np.resize(np.roll(ids, -turn), tokens), (driver.track.rows, 1)) for turn in range(TURNS)]


def _block_tokens(case: RingCase) -> int:
    sizes = [step.append for step in case.steps if isinstance(step, steps.AppendStep)]
    return sizes[-1] if sizes else 1
