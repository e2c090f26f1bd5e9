"""Subjects that cheat the clock, each in one way, and one that goes the same way honestly.

All dequantize affine planes. A cheat changes what `timed` gives to the clock; `Honest` changes nothing, and `Slow` does
all of it, only slower.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from harness.kinds.base import Notes
from harness.subjects.mlx_ops import MlxAffine, MlxOperations
from harness.subjects.outputs import force, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kinds.base import Timed
    from harness.subjects.protocol import Affine, AffineArrays, TimedCall

    Call = Callable[[int], Any]


def called_twice(timed: Timed) -> None:
    """Make two calls as the clock does, and let their outputs be compared."""
    for number in (0, 1):
        output = timed.call(number)
        force(output)
        notes = Notes()
        timed.check(number, take(output), notes)
        assert notes.comparisons
        assert not notes.findings


class _Clocked(MlxAffine):
    """MLX's quantization; `trick` stands between the clock and the honest calls, one for each input in turn."""

    def __init__(self, trick: Callable[[Call, AffineArrays], Call]) -> None:
        self._trick = trick

    def timed(self, operation: str, x: Any, planes: AffineArrays, *, transpose: bool) -> TimedCall:
        return self._trick(super().timed(operation, x, planes, transpose=transpose), planes)


class Honest(MlxOperations):
    """Returns what it computed, not yet evaluated: that is the clock's affair."""

    name = "honest"

    def affine(self) -> Affine:
        return _Clocked(self.trick)

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes
        return call


class Evaluates(Honest):
    """Honest, too: evaluates by itself."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def evaluated(number: int) -> Any:
            output = call(number)
            mx.eval(output)
            return output

        return evaluated


class FillsAnArray(Honest):
    """Honest: writes all of an array that it was given uninitialized."""

    share = 1.0

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def filled(number: int) -> Any:
            right = np.array(call(number).astype(mx.float32)).astype(self.dtype)
            out = np.empty_like(right)
            rows = int(self.share * len(right))
            out[:rows] = right[:rows]
            return out

        return filled

    @property
    def dtype(self) -> Any:
        from harness.dtypes import numpy_dtype

        return numpy_dtype("bfloat16")


class WritesHalf(FillsAnArray):
    """Leaves in the second half of its output what happens to lie there."""

    share = 0.5


class ReturnsTheFirstOutput(Honest):
    """Computes once, and returns that to every call."""

    def __init__(self) -> None:
        self._cached: Any = None

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def cached(number: int) -> Any:
            if self._cached is None:
                self._cached = call(number)
                mx.eval(self._cached)
            return self._cached

        return cached


class KnowsTheFirstInput(Honest):
    """Prepared for the first input only, and computes that again and again."""

    def __init__(self) -> None:
        self._first: Call | None = None

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes
        self._first = self._first or call
        return self._first


class _Promise:
    """Looks like an array to whoever asks; computes only then."""

    def __init__(self, compute: Callable[[], mx.array]) -> None:
        self._compute = compute

    def __array__(self, dtype: Any = None, *, copy: Any = None) -> Any:
        del dtype, copy
        return np.array(self._compute().astype(mx.float32))


class Promises(Honest):
    """Returns an object that computes when it is looked at, behind the clock."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes
        return lambda number: _Promise(lambda: call(number))


class ReturnsNothing(Honest):
    """Keeps its output to itself, if there is any."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del call, planes
        return lambda _number: None


class FillsLater(FillsAnArray):
    """Returns an array at once, and fills it in another thread when the clock has stopped."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        filled = super().trick(call, planes)

        def later(number: int) -> Any:
            right = filled(number)
            out = np.zeros_like(right)

            def fill() -> None:
                time.sleep(0.02)
                out[:] = right

            threading.Thread(target=fill, daemon=True).start()
            return out

        return later


class SleepsInWarmUp(Honest):
    """Makes its first calls look long, so that visits have few calls, or one that was primed."""

    calls = 0

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def slow_at_first(number: int) -> Any:
            self.calls += 1
            if self.calls < 8:
                time.sleep(0.005)
            return call(number)

        return slow_at_first


class TiresAfterTheCheck(Honest):
    """Counts calls: right for as long as anybody looks, it thinks; then the last output will do."""

    right_calls = 5

    def __init__(self) -> None:
        self._calls, self._last = 0, None

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def counted(number: int) -> Any:
            self._calls += 1
            if self._calls <= self.right_calls:
                self._last = call(number)
            return self._last

        return counted


class WrongAfterTiming(Honest):
    """Right before it was timed and while; wrong ever after."""

    timed_calls = 0

    def affine(self) -> Affine:
        outer = self

        class Drifting(_Clocked):
            def dequantize(self, planes: AffineArrays) -> Any:
                right: Any = super().dequantize(planes)
                return right + 1 if outer.timed_calls else right

        return Drifting(self.trick)

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def counted(number: int) -> Any:
            self.timed_calls += 1
            return call(number)

        return counted


class Remembers(Honest):
    """Keeps the answer to every input that it has seen."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes
        answers: list[Any] = []

        def remembered(number: int) -> Any:
            if not answers:
                answers.append(call(number))
            return answers[0]

        return remembered


class ComputesAhead(Honest):
    """Has every answer ready before the clock starts: moves hardly a byte of those that the case declares."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes
        answer = call(0)
        mx.eval(answer)
        return lambda _number: answer


class Crashes(Honest):
    """Ends its process in the middle of a visit."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del call, planes
        import os

        return lambda _number: os._exit(3)


class PrintsLines(Honest):
    """Honest, and writes to stdout what looks like an answer of an arm."""

    def trick(self, call: Call, planes: AffineArrays) -> Call:
        del planes

        def loud(number: int) -> Any:
            print('{"took_ns": 1}', flush=True)  # noqa: T201 - that is the point
            return call(number)

        return loud
