"""Lines of `assay show` for a trellis case: sizes, where its bits lie, and the first values, to debug a kernel by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.baseline import trellis as baseline
from harness.kinds.trellis.inputs import make_inputs
from harness.kinds.trellis.variants import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.trellis.inputs import Inputs
    from harness.kinds.trellis.schema import TrellisCase, TrellisGiven

_SHOWN_WORDS = 4
_SHOWN_COLUMNS = 4
_SHOWN_SPLITS = 8


def describe(case: TrellisCase) -> Iterator[str]:
    """Write what the case decodes and multiplies, with the first words, states and weights."""
    given = case.given
    if "refused" in case.check:
        yield f"matrix: {given.rows} rows x {given.columns} columns, {given.bits} bits a weight, which can't be"
        layout = "interleaved" if given.interleave else "plain"
        yield f"format: {given.state_bits} bits a state, {given.block} weights a block, {layout} layout"
        yield "checked: refused"
        return
    inputs = make_inputs(given)
    yield from _matrix(given, inputs)
    yield from _first_values(given, inputs)
    if {"gemv", "partials"} & {*case.check, *case.time} or case.same_bits_as is not None:
        yield from _product(given)
    if "encode" in case.check or "optimum" in case.check:
        gain = f", gain {given.gain_percent / 100:g}" if given.weights == "normal" else ""
        yield f"encoded: {given.weights} weights{gain}"
    yield f"checked: {', '.join(case.check)}"
    if case.same_bits_as is not None:
        yield f"its sums must have the bits of: {case.same_bits_as}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


def _matrix(given: TrellisGiven, inputs: Inputs) -> Iterator[str]:
    rows, blocks, words = inputs.blocks.shape
    yield f"matrix: {rows} rows x {given.columns} columns, {given.bits} bits a weight, codebook {given.codebook}"
    order = f"[{blocks // 2}][{rows}][2][{words}]" if given.interleave else f"[{rows}][{blocks}][{words}]"
    yield f"codes: {inputs.codes.size} words, {inputs.codes.nbytes} bytes, laid out {order}"
    last = given.block - 1
    yield f"state of column t of a block: {given.state_bits} bits from bit ({last} - t) * {given.bits} on"
    if wrapping := baseline.wrapping_columns(given.bits, given.state_bits):
        yield f"windows that wrap around: columns 0 to {wrapping - 1} of each block"


def _first_values(given: TrellisGiven, inputs: Inputs) -> Iterator[str]:
    block = inputs.blocks[:1, :1]
    states = baseline.states(block, given.bits, given.state_bits)[0, 0, :_SHOWN_COLUMNS]
    weights = baseline.codewords(states, given.codebook) * inputs.scales[0]
    yield f"first words: {' '.join(f'{int(word):#010x}' for word in block[0, 0, :_SHOWN_WORDS])}"
    yield f"first states: {' '.join(str(int(state)) for state in states)}"
    if given.codebook in baseline.BYTE_SUM_CODEBOOKS:
        levels = baseline.levels(states, given.codebook)
        yield f"first levels: {' '.join(str(int(level)) for level in levels)}"
    yield f"first scale: {float(inputs.scales[0]):.9g}"
    yield f"first weights: {' '.join(f'{float(weight):.9g}' for weight in weights)}"


def _product(given: TrellisGiven) -> Iterator[str]:
    yield f"vectors: {given.batch} x {given.rows}, {given.dtype}, {given.x}"
    parts = baseline.split_rows(given.rows, given.splits)
    names = [f"{rows.start}-{rows.stop - 1}" if rows else "none" for rows in parts[:_SHOWN_SPLITS]]
    more = ", ..." if len(parts) > _SHOWN_SPLITS else ""
    yield f"rows of each split: {', '.join(names)}{more}"
    if given.variant is not None:
        yield f"kernel: {given.variant}" if given.variant != ALL else "kernel: each variant that applies"
