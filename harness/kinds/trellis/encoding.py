"""What a subject encodes, decoded by the baseline: its error against gates, against the optimum, or against nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.baseline import trellis as baseline
from harness.baseline.trellis_search import error_limit, least_error
from harness.compare import Exact
from harness.kinds.base import StopInstance
from harness.kinds.trellis.inputs import normal_weights
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.trellis.run import Comparison
    from harness.kinds.trellis.schema import Gate

# Guessing where the ends meet costs 0.2 % at most (1 bit a weight, thousands of blocks); in a handful of blocks one may
# have gone astray by several percent.
_MEAN_GAP = 0.01
_BLOCK_GAP = 0.1


class _Encoded(NamedTuple):
    matrix: NDArray[np.float32]
    scales: NDArray[np.float32]
    weights: NDArray[np.float32]


def check_encode(run: Comparison) -> None:
    """Hold the mean squared error of normal weights to the gates; decoded weights must come back bit for bit."""
    encoded = _encode(run)
    if run.given.weights == "decoded":
        _check_exact(run, encoded)
        return
    error = _mean_error(run, encoded)
    limit = error_limit(run.given.bits)
    run.notes.compared()
    if error < limit:
        note = "no code of so many bits is as near; either the harness or the subject has the matrix from elsewhere"
        run.notes.found("encode", "mean squared error", f"{limit:.5g} at least (4 ** -bits)", f"{error:.5g}", note)
    for gate in run.case.gates:
        if gate.applies(run.given):
            _hold(run, gate, error)


def check_optimum(run: Comparison) -> None:
    """Compare every block's error with the least that a tail-biting path can have, found by trying all of them."""
    given, encoded = run.given, _encode(run)
    table = baseline.codewords(np.arange(1 << given.state_bits, dtype=np.uint32), given.codebook)
    scales = encoded.scales.astype(np.float64)[:, np.newaxis]
    numbers = (encoded.matrix / scales).reshape(-1, given.block)
    codewords = (encoded.weights / scales).reshape(-1, given.block)
    least = np.array([least_error(block, table, given.bits) for block in numbers])
    found = ((numbers - codewords) ** 2).sum(axis=1)
    run.notes.compared(len(least))
    gap = found / least - 1
    worst = int(gap.argmax())
    note = f"on average {gap.mean():.2%} above; {_MEAN_GAP:.0%} may be, and {_BLOCK_GAP:.0%} in a single block"
    if gap.max() > _BLOCK_GAP or gap.mean() > _MEAN_GAP:
        where = f"error of block {worst}, in squares of its scale"
        run.notes.found("optimum", where, f"{least[worst]:.6g} or little more", f"{found[worst]:.6g}", note)


def _encode(run: Comparison) -> _Encoded:
    given, inputs = run.given, run.inputs
    if given.weights == "decoded":
        matrix, scales = run.weights, inputs.scales
    else:
        matrix, scales = normal_weights(given)
    for array in (matrix, scales):
        array.flags.writeable = False
    with subject_call("encode"):
        shown = run.trellis.encode(inputs.spec, matrix, scales)
    codes = run.array("encode", shown, inputs.codes.shape, inputs.codes.dtype)
    words = baseline.split_layout(codes, given.rows, given.columns // given.block, interleave=given.interleave)
    weights = baseline.decode(words, scales, given.bits, given.state_bits, given.codebook)
    return _Encoded(matrix, scales, weights)


def _check_exact(run: Comparison, encoded: _Encoded) -> None:
    wrong = run.compare(Exact(), encoded.matrix + np.float32(0), encoded.weights + np.float32(0))
    if not wrong:
        return
    row, column = np.argwhere(encoded.matrix != encoded.weights)[0]
    note = f"{wrong.note}; these weights are codewords, so that a path with no error exists"
    run.notes.found("encode", run.place(int(row), int(column)), wrong.expected, wrong.actual, note)


def _mean_error(run: Comparison, encoded: _Encoded) -> float:
    """Return the mean squared error in units of the variance of each row."""
    deviation = run.inputs.scales.astype(np.float64)[:, np.newaxis]
    errors = (encoded.matrix.astype(np.float64) - encoded.weights) / deviation
    error = float(np.mean(errors * errors))
    if not np.isfinite(error):
        run.notes.found("encode", "mean squared error", "a finite number", str(error))
        raise StopInstance
    return error


def _hold(run: Comparison, gate: Gate, error: float) -> None:
    run.notes.compared()
    if gate.at_most is not None and error > gate.at_most:
        run.notes.found("encode", "mean squared error", f"{gate.at_most:.5g} at most", f"{error:.5g}")
    if gate.mean is not None and abs(error - gate.mean) > gate.within * gate.mean:
        run.notes.found(
            "encode",
            "mean squared error",
            f"{gate.mean:.5g} within {gate.within:.1%}",
            f"{error:.5g}",
            f"{error / gate.mean - 1:+.1%}",
        )
