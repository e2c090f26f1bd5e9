"""Variants of a product: what a subject offers, how far each may be from the exact sums, and what they promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.baseline import trellis as baseline
from harness.compare import UNIT_ROUNDOFF, Bound, Exact, dot_bound
from harness.kinds.trellis.variants import ALL
from harness.subjects.call import subject_call
from harness.subjects.protocol import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from harness.kinds.trellis.run import Comparison
    from harness.kinds.trellis.schema import TrellisGiven
    from harness.subjects.protocol import Trellis, TrellisOffer

_UNIT = UNIT_ROUNDOFF["float32"]
# Roundings that a term meets beside the additions of its rows: see `bound_of`.
_EXTRA = {"direct": 2, "folded": 4, "offset": 6, "matmul": 2}


class Summed(NamedTuple):
    """The rows that a sum is made of, and what else its terms meet."""

    rows: slice
    terms: int
    splits: int


def offered(given: TrellisGiven, trellis: Trellis) -> Iterator[tuple[str, TrellisOffer]]:
    """Yield the variant that the case names, or all that apply; raises Unsupported when there is none."""
    with subject_call("variants"):
        offers = trellis.variants(given.spec(), batch=given.batch, splits=given.splits)
    name = given.variant or ALL
    if name == ALL:
        applying = [(each, offer) for each, offer in offers.items() if offer.reason is None]
        if not applying:
            raise Unsupported("no variant applies")
        yield from applying
    elif name not in offers:
        raise Unsupported(f"no variant '{name}'; it has {', '.join(offers) or 'none'}")
    elif (reason := offers[name].reason) is not None:
        raise Unsupported(f"variant '{name}' does not apply: {reason}")
    else:
        yield name, offers[name]


def product_bound(run: Comparison) -> NDArray[np.float64]:
    """Bound |error| of a whole product [batch, columns]."""
    rows = run.given.rows
    return bound_of(run, Summed(slice(0, rows), rows, run.given.splits))


def bound_of(run: Comparison, summed: Summed) -> NDArray[np.float64]:
    """Bound |error| of float32 sums over some rows, u = 2^-24, for the rounding that was promised.

    direct: (rows + 1 + splits) u sum|x w| and more. A term meets one rounding when it is multiplied by x, rows - 1 at
    most while the rows of its split are added (the first addition, to zero, is exact) and splits - 1 while the splits
    are, in any order and with or without fused multiply-add. A subject that applies the scale elsewhere, to x or to
    the sum, is away by two more: its own rounding there, and the baseline's of weight times scale.
    folded: two roundings of x times scale times the codebook's factor, and two in the baseline's weight.
    offset: as folded, and the sums are of bytes, 510 to 1020 above the levels: each byte sum has an error in proportion
    to itself, and 510 times the sum of all factors, rounded as often, is subtracted in one more rounding.
    matmul: as direct, with inputs that were rounded to the subject's `input_roundoff` before.
    """
    vectors, rounding = run.inputs.x[:, summed.rows], run.rounding
    weights = run.weights[summed.rows]
    magnitudes = baseline.absolute_product(vectors, weights)
    added = _byte_magnitudes(run, summed.rows) if rounding == "offset" else magnitudes
    bound = dot_bound(summed.terms, added, _UNIT, extra=summed.splits + _EXTRA[rounding])
    if run.input_roundoff > _UNIT:
        bound = bound + magnitudes * (2 * run.input_roundoff + run.input_roundoff**2) * 1.001
    return bound


def _byte_magnitudes(run: Comparison, rows: slice) -> NDArray[np.float64]:
    """Return the magnitudes of what a variant with `offset` adds, [batch, columns]."""
    raised = baseline.codewords(run.states[rows], run.given.codebook).astype(np.float64)
    raised += 2 * 510 * np.float64(baseline.INVERSE_SIGMA)
    scaled = np.abs(raised * run.inputs.scales[rows, np.newaxis].astype(np.float64))
    magnitudes: NDArray[np.float64] = np.abs(run.inputs.x[:, rows].astype(np.float64)) @ scaled
    return magnitudes


def check_partials(run: Comparison) -> None:
    """Compare the sums of every split, before they are added, with those of its rows: nothing, where it has none."""
    inputs, given = run.inputs, run.given
    with subject_call("partials"):
        shown = run.trellis.partials(inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=given.splits)
    actual = run.array("partials", shown, (given.batch, given.splits, given.columns), np.dtype(np.float32))
    for split, rows in enumerate(baseline.split_rows(given.rows, given.splits)):
        part = slice(rows.start, rows.stop)
        # Nothing of this split has been added to another one's sums yet.
        bound = Bound(bound_of(run, Summed(part, len(rows), 0)))
        expected = baseline.product(inputs.x[:, part], run.weights[part])
        if wrong := run.compare(bound, expected, actual[:, split]):
            vector, column = wrong.index
            its = f"rows {rows.start} to {rows.stop - 1}" if rows else "no rows"
            where = f"split {split} ({its}), vector {vector}, {run.column_text(column)}, variant '{run.variant}'"
            run.notes.found("partials", where, wrong.expected, wrong.actual, wrong.note)
            return


def check_same_bits(run: Comparison, other_name: str) -> None:
    """Compare the sums of every split with another variant's, byte for byte."""
    inputs, given = run.inputs, run.given
    shape, dtype = (given.batch, given.splits, given.columns), np.dtype(np.float32)
    with subject_call("variants"):
        offers = run.untouched.variants(inputs.spec, batch=given.batch, splits=given.splits)
    if other_name not in offers or offers[other_name].reason is not None:
        raise Unsupported(f"no variant '{other_name}' to compare with")
    shown = []
    for trellis in (run.untouched.variant(other_name), run.trellis):
        with subject_call("partials"):
            sums = trellis.partials(inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=given.splits)
        # Bits, so that -0 is not 0.
        shown.append(run.array("partials", sums, shape, dtype).view(np.uint32))
    if wrong := run.compare(Exact(), *shown):
        vector, split, column = wrong.index
        expected, actual = (f"{bits[wrong.index]:#010x} ({bits.view(np.float32)[wrong.index]:.9g})" for bits in shown)
        where = f"split {split}, vector {vector}, {run.column_text(column)}, variant '{run.variant}'"
        run.notes.found("same_bits_as", where, expected, actual, f"{wrong.note}; expected: the sums of '{other_name}'")
