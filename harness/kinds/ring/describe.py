"""What happens in a ring case, told without a subject: the tokens each step writes and what their queries may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.kinds.base import Notes
from harness.kinds.ring import steps
from harness.kinds.ring.observe import ranges
from harness.kinds.ring.run import Driver, expected_ids
from harness.subjects.protocol import Ring, RingSpec, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.kinds.ring.schema import RingCase, StepsCase
    from harness.kinds.ring.steps import Step
    from harness.kinds.ring.track import Track

# Of a long block, the first and the last queries tell enough.
SHOWN_QUERIES = 4


def describe(case: RingCase) -> Iterator[str]:
    """Write the cache, the steps, and for every update which tokens each query must see."""
    yield f"cache: {told_cache(case.given.spec())}"
    teller = Teller(case, Silent(), Notes())
    teller.run()
    yield from teller.lines
    yield f"checked: {', '.join(case.check)}{' where a step `check` says so' if teller.only_listed else ''}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


def told_cache(spec: RingSpec) -> str:
    """Write what kind of cache the case asks for."""
    storage = f"affine {spec.storage.bits} bits, groups of {spec.storage.group_size}" if spec.storage else "plain"
    words = [
        "no window" if spec.window is None else f"window {spec.window}",
        f"{spec.rows} row{'s' * (spec.rows != 1)}",
        f"{spec.kv_heads} key heads" + (f", {spec.query_heads} query heads" * (spec.query_heads != spec.kv_heads)),
        f"head_dim {spec.head_dim}" + (f", value_dim {spec.value_dim}" * (spec.value_dim != spec.head_dim)),
        spec.dtype,
        storage,
    ]
    extra = [f"{spec.sinks} sinks"] * bool(spec.sinks) + ["chunked"] * spec.chunked
    extra += [f"layout {spec.layout}"] * (spec.layout != "ring")
    extra += [f"rows plain up to {', '.join(map(str, spec.crossing))} tokens"] * bool(spec.crossing)
    return ", ".join(words + extra)


def told_loan(track: Track, windows: Sequence[int | None]) -> list[str]:
    """Say which tokens each row lends to layers of these windows."""
    lines = []
    for row in range(track.rows):
        for window in windows:
            right = " or ".join(dict.fromkeys(ranges(answer) for answer in track.histories.lent(row, window)))
            layer = "a layer without a window" if window is None else f"a layer of window {window}"
            lines.append(f"  row {row} lends {right} to {layer}")
    return lines


class Teller(Driver):
    """Takes the steps on lists alone and writes down what a cache would have to show."""

    def __init__(self, case: StepsCase, subject: Subject, notes: Notes) -> None:
        self.lines: list[str] = []
        super().__init__(case, subject, notes)

    def take(self, step: Step, where: str, checks: tuple[str, ...]) -> None:
        self.lines.append(where)
        if isinstance(step, steps.DonorStep):
            self.lines += told_loan(self.track, [step.donor.window])
            return
        if isinstance(step, steps.PinStep):
            self.lines += [f"  {name}: {value}" for name, value in step.pin.items()]
            return
        if step.expect == "refused":
            self.lines.append("  a ring of this size can't do this exactly: it refuses, and nothing changes")
            return
        super().take(step, where, ())

    def _update(self, ids: NDArray[np.int64], where: str, checks: Sequence[str], *, refusable: bool = False) -> None:
        before = self.track.histories.lengths()
        self.track.wrote(ids)
        for row, queries in enumerate(expected_ids(self.track, ids, before)):
            told = [(int(token), seen) for token, seen in zip(ids[row], queries, strict=True) if seen is not None]
            label = f"row {row}, " if len(ids) > 1 else ""
            for place, (token, seen) in enumerate(told):
                if place < SHOWN_QUERIES - 1 or place == len(told) - 1:
                    self.lines.append(f"  {label}query of token {token} sees {ranges(seen)}")
                elif place == SHOWN_QUERIES - 1:
                    self.lines.append(f"  {label}... {len(told) - SHOWN_QUERIES} more queries ...")


class Silent(Subject):
    """A subject that agrees to everything and shows nothing."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"crossing"})

    def ring(self, spec: RingSpec) -> Ring:
        return _SilentRing()


class _SilentRing(Ring):
    def trim(self, tokens: int) -> int:
        return tokens

    def begin(self) -> None:
        """Agree."""

    def commit(self) -> None:
        """Agree."""

    def rollback(self, keep: Sequence[int]) -> None:
        """Agree."""

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Agree."""

    def finalize(self) -> None:
        """Agree."""

    def merge(self, others: Sequence[Ring]) -> Ring:
        return self

    def extend(self, other: Ring) -> None:
        """Agree."""

    def filter(self, rows: Sequence[int]) -> None:
        """Agree."""

    def extract(self, row: int, limit: int | None) -> Ring:
        return self

    def quantize(self, bits: int, group_size: int) -> Ring:
        return self

    def copy(self) -> Ring:
        return self

    def quantize_rows(self, rows: Sequence[int], bits: int, group_size: int) -> Ring:
        return self

    def save_load(self) -> Ring:
        return self
