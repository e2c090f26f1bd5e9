"""What is timed of a trellis case: decoding the matrix, or a product with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.kinds.base import Timed, Work, turned, turns_of
from harness.kinds.trellis.inputs import make_inputs
from harness.kinds.trellis.products import offered
from harness.kinds.trellis.run import run
from harness.subjects.protocol import Subject, Trellis

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from harness.kinds.base import Notes
    from harness.kinds.trellis.schema import TrellisCase
    from harness.subjects.protocol import TimedCall, TrellisOffer, TrellisSpec


def timed(case: TrellisCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare an operation on another matrix each turn; see `Kind.timed`."""
    # Variants are of products.
    variant = (subject.chosen_variant or case.given.variant) if operation == "gemv" else None
    given = case.given.model_copy(update={"variant": variant})
    case = case.model_copy(update={"given": given})
    weights = given.rows * given.columns
    turns = turns_of(4 * weights if operation == "decode" else weights)
    cases = [turned(case, salt * turns + turn) for turn in range(turns)]
    trellis = subject.trellis()
    offers: dict[str, TrellisOffer] = {}
    if variant is not None:
        offers = dict(offered(given, trellis))
        trellis = trellis.variant(variant)
    calls: list[TimedCall] = []
    for each in cases:
        inputs = make_inputs(each.given)
        calls.append(trellis.timed(operation, inputs.spec, inputs.codes, inputs.scales, inputs.x, splits=given.splits))

    def check(number: int, output: Any, notes: Notes) -> None:
        # What a case pins it pins of its own symbols.
        asked = cases[number % turns].model_copy(
            update={"check": [operation], "expect": [], "gates": [], "same_bits_as": None}
        )
        run(asked, _Answering(output, offers), notes)

    moved = inputs.codes.nbytes + inputs.scales.nbytes
    moved += 4 * weights if operation == "decode" else inputs.x.nbytes + 4 * given.batch * given.columns
    operations = weights if operation == "decode" else 2 * weights * given.batch
    return Timed(lambda number: calls[number % turns](number), check, Work(moved, operations), turns)


class _Answering(Subject, Trellis):
    """Says what a timed call returned."""

    def __init__(self, output: Any, offers: Mapping[str, TrellisOffer]) -> None:
        self._output, self._offers = output, offers

    def trellis(self) -> Trellis:
        return self

    def variants(self, spec: TrellisSpec, *, batch: int, splits: int) -> Mapping[str, TrellisOffer]:
        del spec, batch, splits
        return self._offers

    def variant(self, name: str) -> Trellis:
        del name
        return self

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        del spec, codes, scales
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        del spec, codes, scales, x, splits
        return self._output  # type: ignore[no-any-return]  # whatever a timed call answered; the checks look
