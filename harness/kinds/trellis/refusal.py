"""Formats that can't be: the subject must say so, whichever of its methods is asked, and not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.kinds.trellis.inputs import any_codes
from harness.subjects.call import subject_call
from harness.subjects.protocol import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kinds.base import Notes
    from harness.kinds.trellis.schema import TrellisGiven
    from harness.subjects.protocol import Subject


def check_refused(given: TrellisGiven, subject: Subject, notes: Notes) -> None:
    """Ask for states, weights, a product and codes; an answer to any of them is a finding."""
    spec, (codes, scales) = given.spec(), any_codes(given)
    x, matrix = np.ones((1, given.rows), np.float32), np.ones((given.rows, given.columns), np.float32)
    for array in (codes, scales, x, matrix):
        array.flags.writeable = False
    with subject_call("opening the trellis"):
        trellis = subject.trellis()
    calls: dict[str, Callable[[], object]] = {
        "states": lambda: trellis.states(spec, codes),
        "decode": lambda: trellis.decode(spec, codes, scales),
        "gemv": lambda: trellis.gemv(spec, codes, scales, x, splits=1),
        "encode": lambda: trellis.encode(spec, matrix, scales),
    }
    for name, call in calls.items():
        notes.compared()
        try:
            with subject_call(name, refusable=True):
                shown = call()
        except Refused:
            continue
        text = f"{shown.dtype} {list(shown.shape)}" if isinstance(shown, np.ndarray) else type(shown).__name__
        notes.found("refused", name, "a refusal, since there is no such format", text)
