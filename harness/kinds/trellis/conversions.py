"""Blocks in the order of another format: what the subject makes of ours, and ours again of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import trellis as baseline
from harness.compare import Exact
from harness.subjects.call import subject_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from harness.kinds.trellis.run import Comparison

    # What the other format holds, and the subject's ways there and back.
    _Conversion = tuple[NDArray[Any], Callable[..., NDArray[Any]], Callable[..., NDArray[Any]]]


def check_conversion(run: Comparison, name: str) -> None:
    """Compare what `to_<name>` returns with the other format's own definition, and `from_<name>` with our codes.

    What is converted back is the baseline's, so that two mistakes that cancel each other are seen.
    """
    given, inputs = run.given, run.inputs
    states = run.states.reshape(given.rows, -1, given.block)
    expected, there, back = _qtip(run, states) if name == "qtip" else _exl3(run, states)
    expected.flags.writeable = False
    with subject_call(f"to_{name}"):
        shown = there(inputs.spec, inputs.codes)
    actual = run.array(f"to_{name}", shown, expected.shape, expected.dtype)
    if wrong := run.compare(Exact(), expected, actual):
        row, block, place = np.argwhere(expected != actual)[0]
        where = f"row {row}, block {block}, {'byte' if name == 'qtip' else 'word'} {place}"
        width = 8 * expected.itemsize
        expected_bits, actual_bits = (f"{int(part[row, block, place]):0{width}b}" for part in (expected, actual))
        run.notes.found(name, where, expected_bits, actual_bits, wrong.note)
    with subject_call(f"from_{name}"):
        returned = back(inputs.spec, expected)
    codes = run.array(f"from_{name}", returned, inputs.codes.shape, inputs.codes.dtype)
    if wrong := run.compare(Exact(), inputs.codes, codes):
        run.notes.found(
            name, f"word {wrong.where} of the codes, back from {name}", wrong.expected, wrong.actual, wrong.note
        )


def _qtip(run: Comparison, states: NDArray[np.uint32]) -> _Conversion:
    expected = baseline.qtip_stream(states, run.given.bits, run.given.state_bits)
    return expected, run.trellis.to_qtip, run.trellis.from_qtip


def _exl3(run: Comparison, states: NDArray[np.uint32]) -> _Conversion:
    return baseline.exl3_words(states, run.given.bits), run.trellis.to_exl3, run.trellis.from_exl3
