"""Timing one operation in rounds: a call is warmed up, counted out so that a round is long enough, then measured.

The overhead of the clock and of an empty evaluation is measured and reported, never subtracted.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

from harness.outcome import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 16
WARM_UP_CALLS = 3
# A round lasts at least this many times the overhead of measuring it.
OVERHEAD_FACTOR = 20
LEAST_ROUND_NS = 500_000
MOST_CALLS = 10_000


@cache
def overhead_ns() -> int:
    """Return the median cost of reading the clock around an evaluation of nothing."""
    import mlx.core as mx

    nothing = mx.zeros((1,))
    mx.eval(nothing)
    costs = []
    for _ in range(101):
        start = time.perf_counter_ns()
        mx.eval(nothing)
        mx.synchronize()
        costs.append(time.perf_counter_ns() - start)
    return sorted(costs)[len(costs) // 2]


def time_rounds(operation: str, call: Callable[[int], None], *, rounds: int = ROUNDS) -> Rounds:
    """Measure `call`, which gets a running number so that its inputs can rotate.

    Every round makes the same number of calls, so many that it lasts OVERHEAD_FACTOR overheads or LEAST_ROUND_NS.
    """
    number = 0
    for _ in range(WARM_UP_CALLS):
        call(number)
        number += 1
    goal = max(OVERHEAD_FACTOR * overhead_ns(), LEAST_ROUND_NS)
    calls, took = 1, _visit(call, 1, number)
    number += 1
    while took < goal and calls < MOST_CALLS:
        calls = min(MOST_CALLS, max(calls + 1, int(calls * min(10.0, 1.1 * goal / max(took, 1)))))
        took = _visit(call, calls, number)
        number += calls
    times = []
    for _ in range(rounds):
        times.append(_visit(call, calls, number))
        number += calls
    return Rounds(operation, calls, tuple(times))


def _visit(call: Callable[[int], None], calls: int, number: int) -> int:
    start = time.perf_counter_ns()
    for turn in range(calls):
        call(number + turn)
    return time.perf_counter_ns() - start
