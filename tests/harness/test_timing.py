"""Rounds are long enough, inputs rotate, and every round counts the same calls."""

from __future__ import annotations

import time

from harness.timing.rounds import LEAST_ROUND_NS, OVERHEAD_FACTOR, ROUNDS, WARM_UP_CALLS, overhead_ns, time_rounds


def test_a_quick_call_is_repeated_until_a_round_is_long() -> None:
    numbers: list[int] = []
    rounds = time_rounds("nothing", numbers.append)
    assert len(rounds.round_ns) == ROUNDS
    assert rounds.calls > 100
    goal = max(LEAST_ROUND_NS, OVERHEAD_FACTOR * overhead_ns())
    assert sorted(rounds.round_ns)[ROUNDS // 2] > goal / 4, "a noisy machine may calibrate too high, not far too low"
    assert numbers == list(range(len(numbers))), "the running number rotates the inputs"


def test_a_slow_call_is_made_once_a_round() -> None:
    calls = 0

    def slow(_number: int) -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.02)

    rounds = time_rounds("slow", slow, rounds=3)
    assert rounds.calls == 1
    assert calls == WARM_UP_CALLS + 1 + 3
    assert min(rounds.round_ns) >= 20_000_000
