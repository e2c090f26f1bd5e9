"""What a schema can't see in a trellis case: numbers that do not go together, and keys that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.baseline.trellis import BYTE_SUM_CODEBOOKS, WORD_BITS, wrapping_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.trellis.schema import Expected, TrellisCase, TrellisGiven

MAX_BITS = 8
MAX_STATE_BITS = 16
# Keys of `given` that only a product reads.
_PRODUCT_KEYS = ("batch", "splits", "dtype", "x")


def complaints(case: TrellisCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    yield from _format(case.given)
    yield from _checks(case)
    yield from _expect(case)


def _format(given: TrellisGiven) -> Iterator[Complaint]:
    if given.bits > MAX_BITS:
        yield ("given", "bits"), f"a weight has 1 to {MAX_BITS} bits, not {given.bits}"
    elif not given.bits <= given.state_bits <= MAX_STATE_BITS:
        why = f"a state holds at least the newest symbol and at most {MAX_STATE_BITS} bits"
        yield ("given", "state_bits"), f"{why}: write {given.bits} to {MAX_STATE_BITS}, not {given.state_bits}"
    if given.block * given.bits % WORD_BITS:
        why = f"{given.block} weights of {given.bits} bits do not fill whole {WORD_BITS}-bit words"
        yield ("given", "block"), f"{why}; write a multiple of {WORD_BITS}"
    blocks, rest = divmod(given.columns, given.block)
    if rest:
        near = f"{blocks * given.block} or " if blocks else ""
        why = f"{given.columns} is not a multiple of block ({given.block})"
        yield ("given", "columns"), f"{why}; write {near}{(blocks + 1) * given.block}"
    elif given.interleave and blocks % 2:
        why = f"the interleaved layout pairs blocks, and {given.columns} columns are {blocks} of them"
        yield ("given", "columns"), f"{why}; write {(blocks + 1) * given.block}, or `interleave: false`"


def _checks(case: TrellisCase) -> Iterator[Complaint]:
    given = case.given
    for key in ("check", "time"):
        words: list[str] = [str(word) for word in getattr(case, key)]
        for index, word in enumerate(words):
            if word in words[:index]:
                yield (key, index), f"'{word}' stands here twice"
    if "tail" in case.check and wrapping_columns(given.bits, given.state_bits) == 0:
        why = f"no window wraps around with state_bits ({given.state_bits}) not above bits ({given.bits})"
        yield ("check", case.check.index("tail")), f"{why}; write `where: state_bits > bits`"
    if "gemv" not in case.check and "gemv" not in case.time:
        for key in _PRODUCT_KEYS:
            if key in given.model_fields_set:
                yield ("given", key), "does nothing without a product; remove it, or write `check: [gemv]`"


def _expect(case: TrellisCase) -> Iterator[Complaint]:
    given = case.given
    if not case.expect:
        return
    if given.rows != 1 or given.columns != given.block:
        yield ("expect",), f"speaks of a single block; write `rows: 1` and `columns: {given.block}`"
    if not any(entry.applies(given) for entry in case.expect):
        this = f"bits {given.bits}, state_bits {given.state_bits}, codebook {given.codebook}"
        yield ("expect",), f"has no entry for {this}; add one, or narrow `where`"
    for index, entry in enumerate(case.expect):
        if entry.applies(given):
            yield from _entry(given, entry, index)


def _entry(given: TrellisGiven, entry: Expected, index: int) -> Iterator[Complaint]:
    at = ("expect", index)
    if beyond := sorted(column for column in entry.columns() if not 0 <= column < given.block):
        yield at, f"column {beyond[0]} does not exist; a block has columns 0 to {given.block - 1}"
    if len(entry.words) > given.block * given.bits // WORD_BITS:
        yield (*at, "words"), f"a block has {given.block * given.bits // WORD_BITS} words, not {len(entry.words)}"
    if not entry.needs_levels():
        return
    if given.codebook not in BYTE_SUM_CODEBOOKS:
        yield at, f"codebook {given.codebook} has no levels; write `values`, the weights themselves"
    if given.scales != "ones":
        yield ("given", "scales"), "levels are read from weights without a scale; write `scales: ones`"
