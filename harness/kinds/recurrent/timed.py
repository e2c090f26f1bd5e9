"""What is timed of a recurrent cache: chunks of tokens, one after the other, behind the steps of the case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.dtypes import numpy_dtype
from harness.kinds.base import Notes, Timed, Work, turned
from harness.kinds.recurrent import checks as look
from harness.kinds.recurrent.data import make_block
from harness.kinds.recurrent.run import Driver
from harness.kinds.recurrent.script import most_tokens
from harness.kinds.recurrent.track import Bench
from harness.kinds.ring import steps as ring
from harness.subjects.protocol import RecurrentAnswer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.recurrent.schema import RecurrentCase
    from harness.subjects.protocol import Subject

    Token = tuple[NDArray[Any], NDArray[Any] | None]

# Tokens that go through a cache before it is prepared anew: bounds grow with them, and so does the baseline's work.
MOST_TOKENS = 192


def timed(case: RecurrentCase, subject: Subject, operation: str, salt: int) -> Timed:
    """Prepare `decode`, a token for every row, or `update`, a block as long as the last that the steps append."""
    case = turned(case, salt)
    tokens = _block_tokens(case) if operation == "update" else 1
    calls = max(4, MOST_TOKENS // tokens)
    driver = Driver(case, subject, Notes(), Bench(subject, case.given, most_tokens(case) + calls * tokens))
    driver.run()
    track, given = driver.track, case.given
    starts = [(row.stream, row.position) for row in track.rows]
    blocks = [
        make_block(given, [[(stream, at + number * tokens + one) for one in range(tokens)] for stream, at in starts])
        for number in range(calls)
    ]
    call = track.cache.timed(operation, blocks)
    done = 0

    def check(number: int, output: Any, notes: Notes) -> None:
        nonlocal done
        wanted: list[list[Token | None]] = []
        # The baseline goes along only as far as something is checked.
        for _ in range(done, number + 1):
            wanted = [[row.next() for _ in range(tokens)] for row in track.rows]
        done = number + 1
        answer = _answer(output)
        notes.compared()
        if not isinstance(answer, RecurrentAnswer) or not isinstance(answer.output, np.ndarray):
            notes.found("shape", f"call {number}", "a RecurrentAnswer with an output", type(answer).__name__)
            return
        look.check_output(answer, wanted, track, f"call {number}", notes)

    size = numpy_dtype(given.dtype).itemsize
    rows, states = len(track.rows), given.heads * given.value_dim * given.key_dim
    # The state is float32: read and written once a call, whatever the number of tokens.
    moved = rows * (8 * states + tokens * (given.channels + given.heads * given.value_dim) * size)
    # Decay, the change by a product of two vectors, the product with the query: at least five operations an element.
    operations = rows * tokens * (5 * states + 2 * given.channels * given.kernel)
    return Timed(call, check, Work(moved, operations), turns=calls, stateful=True, most_calls=calls, queued=_answer)


def _answer(output: Any) -> Any:
    """Return the answer without the states behind it."""
    return output[0] if isinstance(output, tuple) else output


def _block_tokens(case: RecurrentCase) -> int:
    sizes = [step.append for step in case.steps if isinstance(step, ring.AppendStep)]
    return sizes[-1] if sizes else 1
