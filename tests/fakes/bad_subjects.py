"""Subjects that crash, hang, eat memory, print, lie about shapes: each does it from the second token block on."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any, ClassVar

import numpy as np

from harness.subjects.protocol import Answer, PlainArrays, Ring, RingSpec, Subject
from tests.fakes.rings import NaiveRing


class _Bad(NaiveRing):
    blocks = 0

    def misbehave(self) -> None:
        raise NotImplementedError

    def append(self, keys: Any, values: Any, queries: Any) -> Answer:
        self.blocks += 1
        if self.blocks == 2 and self.spec.window != 64:
            self.misbehave()
        return super().append(keys, values, queries)


class _Subject(Subject):
    ring_class: ClassVar[type[NaiveRing]] = NaiveRing

    def ring(self, spec: RingSpec) -> Ring:
        return self.ring_class(spec)


class _Crash(_Bad):
    def misbehave(self) -> None:
        sys.stderr.write("about to read address 0\n")
        ctypes.string_at(0)


class Crashes(_Subject):
    name = "crashes"
    ring_class = _Crash


class _Hang(_Bad):
    def misbehave(self) -> None:
        while True:
            time.sleep(0.01)


class Hangs(_Subject):
    name = "hangs"
    ring_class = _Hang


class _Eat(_Bad):
    def misbehave(self) -> None:
        hoard = []
        while True:
            hoard.append(np.ones(1 << 21))


class EatsMemory(_Subject):
    name = "eats-memory"
    ring_class = _Eat


class _Print(_Bad):
    def misbehave(self) -> None:
        sys.stdout.write("debug: second block\n")


class Prints(_Subject):
    name = "prints"
    ring_class = _Print


class _PrintFromC(_Bad):
    def misbehave(self) -> None:
        os.write(1, b"from below\n")


class PrintsFromBelow(_Subject):
    name = "prints-from-below"
    ring_class = _PrintFromC


class _Shape(NaiveRing):
    def append(self, keys: Any, values: Any, queries: Any) -> Answer:
        answer = super().append(keys, values, queries)
        assert isinstance(answer.keys, PlainArrays)
        return Answer(PlainArrays(answer.keys.data[:, :1]), answer.values, answer.mask, answer.output)


class WrongShape(_Subject):
    name = "wrong-shape"
    ring_class = _Shape


class _Raise(_Bad):
    def misbehave(self) -> None:
        np.zeros(3) + np.zeros(4)


class Raises(_Subject):
    name = "raises"
    ring_class = _Raise


class _Exit(_Bad):
    def misbehave(self) -> None:
        os._exit(3)


class Exits(_Subject):
    name = "exits"
    ring_class = _Exit


class _Slow(NaiveRing):
    def append(self, keys: Any, values: Any, queries: Any) -> Answer:
        time.sleep(0.05)
        return super().append(keys, values, queries)


class Slow(_Subject):
    name = "slow"
    ring_class = _Slow


class _Drifts(NaiveRing):
    """Right when checked, slow and wrong once it was timed: what `right before timing, not after` is there for."""

    timed_once = False

    def timed(self, operation: str, blocks: Any) -> Any:
        del operation
        _Drifts.timed_once = True

        def call(number: int) -> Answer:
            block = blocks[number % len(blocks)]
            return self.append(block.keys, block.values, None)

        return call

    def offsets(self) -> list[int]:
        return [self.length + int(_Drifts.timed_once)]


class RightUntilTimed(_Subject):
    name = "right-until-timed"
    ring_class = _Drifts


class NoKinds(Subject):
    name = "no-kinds"


class NotASubject:
    """Has nothing of a subject."""
