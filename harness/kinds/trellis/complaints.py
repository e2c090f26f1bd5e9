"""What a schema can't see in a trellis case: numbers that do not go together, and keys that do nothing."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from harness.baseline.trellis import BYTE_SUM_CODEBOOKS, WORD_BITS, wrapping_columns
from harness.kinds.trellis.variants import ALL, KNOWN_VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.trellis.schema import Expected, TrellisCase, TrellisGiven

MAX_BITS = 8
MAX_STATE_BITS = 16
# Keys of `given` that only a product, or only an encoder, reads.
_PRODUCT_KEYS = ("batch", "splits", "dtype", "x", "variant")
_PRODUCT_CHECKS = ("gemv", "partials")
_ENCODER_KEYS = ("weights", "gain_percent")
_MISSPELLED = 0.85
# The search for the optimum takes seconds beyond.
MAX_OPTIMUM_STATE_BITS = 8
MAX_OPTIMUM_BLOCKS = 16
EXL3_STATE_BITS = 16


def complaints(case: TrellisCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    impossible = list(_format(case.given))
    if "refused" in case.check:
        yield from _refused(case, bool(impossible))
        return
    yield from impossible
    yield from _checks(case)
    yield from _variants(case)
    if not impossible:
        yield from _encoding(case)
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
    product = any(check in case.check for check in _PRODUCT_CHECKS) or "gemv" in case.time
    if not product and case.same_bits_as is None:
        for key in _PRODUCT_KEYS:
            if key in given.model_fields_set:
                yield ("given", key), "does nothing without a product; remove it, or write `check: [gemv]`"


def _variants(case: TrellisCase) -> Iterator[Complaint]:
    name, other = case.given.variant, case.same_bits_as
    for at, word in ((("given", "variant"), name), (("same_bits_as",), other)):
        # Another subject may have variants of other names, but hardly one that differs in a letter.
        near = get_close_matches(word, (*KNOWN_VARIANTS, ALL), n=1, cutoff=_MISSPELLED) if word is not None else []
        if near and near[0] != word:
            yield at, f"'{word}' is no variant; did you mean '{near[0]}'?"
    if name is None:
        if "partials" in case.check:
            yield (
                ("check", case.check.index("partials")),
                "are shown by a variant alone; write `variant: all` in `given`",
            )
        if other is not None:
            yield ("same_bits_as",), "speaks of a variant, and `given` has none; write `variant: word-per-lane` there"
    elif name == ALL and case.time:
        yield ("given", "variant"), "times one variant at a time; name it (`assay time --variants` compares them)"
    elif other == name:
        yield ("same_bits_as",), f"a variant is the same as itself; write another one than '{name}'"
    elif other is not None and ALL in (name, other):
        yield ("same_bits_as",), "compares two variants; name both"


def _refused(case: TrellisCase, impossible: bool) -> Iterator[Complaint]:
    if not impossible:
        why = "this format can be, so nothing may refuse it"
        yield ("check",), f"{why}; write columns that do not fill blocks, for example, or another check"
    if len(case.check) > 1:
        yield ("check",), "what is refused has nothing else to compare; write `check: [refused]`"


def _encoding(case: TrellisCase) -> Iterator[Complaint]:
    given = case.given
    if "encode" not in case.check and "optimum" not in case.check:
        for key in _ENCODER_KEYS:
            if key in given.model_fields_set:
                yield ("given", key), "does nothing without an encoder; remove it, or write `check: [encode]`"
    elif given.state_bits < 2 * given.bits:
        why = f"an encoder needs states of two symbols, {2 * given.bits} bits"
        yield ("given", "state_bits"), f"{why}; write `where: state_bits >= 2 * bits`"
    if "optimum" in case.check:
        at = ("check", case.check.index("optimum"))
        if given.state_bits > MAX_OPTIMUM_STATE_BITS:
            yield at, f"is sought with states of up to {MAX_OPTIMUM_STATE_BITS} bits, not {given.state_bits}"
        if given.rows * given.columns > MAX_OPTIMUM_BLOCKS * given.block:
            yield at, f"is sought for up to {MAX_OPTIMUM_BLOCKS} blocks; write fewer rows or columns"
    if "exl3" in case.check and given.state_bits != EXL3_STATE_BITS:
        yield ("check", case.check.index("exl3")), f"has states of {EXL3_STATE_BITS} bits only; write `state_bits: 16`"
    yield from _gates(case)


def _gates(case: TrellisCase) -> Iterator[Complaint]:
    given = case.given
    if given.weights == "decoded" and (given.gain_percent != 100 or case.gates):
        yield ("given", "weights"), "decoded weights come back exactly, with no gain or gate; write `weights: normal`"
    if case.gates and "encode" not in case.check:
        yield ("gates",), "speaks of nothing without an encoder; write `check: [encode]`"
    if case.gates and not any(gate.applies(given) for gate in case.gates):
        this = f"bits {given.bits}, state_bits {given.state_bits}, codebook {given.codebook}"
        yield ("gates",), f"has no entry for {this}; add one, or narrow `where`"


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
