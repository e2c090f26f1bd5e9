"""What a machine can't tell apart: the canary beside itself, in rounds over sets of processes as everything is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

from harness.timing.plan import ArmLimits, ArmSpec
from harness.timing.process import ArmProcess
from harness.timing.samples import Arm, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

PROCESSES, ROUNDS_A_SET = 4, 10


@dataclass(frozen=True)
class Noise:
    """Differences of two arms that do the same, as shares, over rounds: the median, and what 19 of 20 stay below."""

    rounds: int
    processes: int
    median: float
    most: float


def measure_noise(*, processes: int = PROCESSES, rounds: int = ROUNDS_A_SET) -> Noise:
    """Measure; takes a few seconds."""
    effects: list[float] = []
    for number in range(processes):
        pair = [ArmProcess(ArmSpec(Arm(name, Role.CANARY), ""), ArmLimits()) for name in ("one", "other")]
        try:
            effects += _effects(pair, rounds, random.Random(number))  # noqa: S311 - an order that can be had again
        finally:
            for process in pair:
                process.stop()
    return Noise(len(effects), processes, median(effects), quantiles(effects, n=20)[-1])


def _effects(pair: Sequence[ArmProcess], rounds: int, order: random.Random) -> list[float]:
    calls = 1
    for process in pair:
        process.hello()
        process.request("preparing", "prepare", instance="", digest="", timed=[["canary", False]], salt=0, check=False)
        process.answer()
        process.request("calibrating", "calibrate", index=0)
        calls = max(calls, process.answer()["calls"])
    effects = []
    for _ in range(rounds):
        took = {}
        for process in order.sample(pair, len(pair)):
            process.request("timing", "visit", index=0, calls=calls)
            took[process.spec.arm.name] = process.answer()["took_ns"]
        effects.append(abs(took["one"] / took["other"] - 1))
    return effects
