"""Bodies in which lanes of a simdgroup part and meet again, with what must come out, lane by lane, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

WIDTH = 32


@dataclass(frozen=True)
class LaneBody:
    """A body with `v`, a lane's number, and `r`, its result; `answer` gives the results of a simdgroup's numbers."""

    name: str
    body: str
    answer: Callable[[list[int]], list[int]]
    header: str = ""

    @property
    def source(self) -> str:
        """The kernel's text: inputs `x`, output `y`, which begins with 0."""
        head = "uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup, v = x[i], r = 0;\n"
        return f"{head}{self.body}\ny[i] = r;\n"

    def expected(self, values: NDArray[np.uint32], group: int) -> NDArray[np.uint32]:
        """Return what `y` must hold for a grid of `values`, in threadgroups of `group`."""
        out: list[int] = []
        for begin in range(0, len(values), group):
            threads = values[begin : begin + group].tolist()
            for first in range(0, len(threads), WIDTH):
                out += self.answer(threads[first : first + WIDTH])
        return np.array(out, np.uint64).astype(np.uint32)


def _by_turns(
    part: Callable[[int], int], each: dict[int, Callable[[list[int]], int]]
) -> Callable[[list[int]], list[int]]:
    """Lanes with the same `part` meet among themselves."""

    def answer(lanes: list[int]) -> list[int]:
        groups = {key: [v for v in lanes if part(v) == key] for key in each}
        return [each[part(v)](groups[part(v)]) for v in lanes]

    return answer


def _rounds(
    count: int, leaves: Callable[[int, int], bool], gains: Callable[[int, int, list[int]], int]
) -> Callable[[list[int]], list[int]]:
    """Lanes leave a loop at the begin of round k when `leaves(v, k)`, and else gain `gains(v, k, the lanes in it)`."""

    def answer(lanes: list[int]) -> list[int]:
        results, inside = [0] * len(lanes), list(range(len(lanes)))
        for k in range(count):
            inside = [lane for lane in inside if not leaves(lanes[lane], k)]
            present = [lanes[lane] for lane in inside]
            for lane in inside:
                results[lane] += gains(lanes[lane], k, present)
        return results

    return answer


def _after_if(lanes: list[int]) -> list[int]:
    return [sum(v + 3 if v & 1 else v for v in lanes)] * len(lanes)


def _nested(lanes: list[int]) -> list[int]:
    odd = [v for v in lanes if v & 1]
    both = [v for v in odd if v & 2]
    held = [sum(odd) + (sum(both) if v & 2 else 7) if v & 1 else 5 for v in lanes]
    return [one + sum(held) for one in held]


def _returned(lanes: list[int]) -> list[int]:
    left = [v for v in lanes if v % 5]
    return [sum(left) if v % 5 else 0 for v in lanes]


def _skipped(lanes: list[int]) -> list[int]:
    results = [0] * len(lanes)
    for k in range(6):
        present = [v for v in lanes if not v >> k & 1]
        results = [r if v >> k & 1 else r + sum(present) for v, r in zip(lanes, results, strict=True)]
    return [r + len(lanes) for r in results]


def _switched(lanes: list[int]) -> list[int]:
    parts = {key: [v for v in lanes if min(v % 4, 2) == key] for key in range(3)}
    held = [(sum, max, min)[min(v % 4, 2)](parts[min(v % 4, 2)]) for v in lanes]
    return [one + sum(held) for one in held]


def _helper_returns(lanes: list[int]) -> list[int]:
    rest = sum(v for v in lanes if not v & 2)
    return [(v if v & 2 else rest) + len(lanes) for v in lanes]


def _round_and_round(lanes: list[int]) -> list[int]:
    results = [0] * len(lanes)
    for k in range(4):
        outer = [n for n, v in enumerate(lanes) if v % 4 > k]
        for j in range(3):
            inner = [n for n in outer if (lanes[n] >> 2) % 3 > j]
            for n in inner:
                results[n] += len(inner)
        for n in outer:
            results[n] += 100 * len(outer)
    return [r + sum(results) for r in results]


def _prefix(lanes: list[int]) -> list[int]:
    out, sums = [], {0: 0, 1: 0}
    for v in lanes:
        sums[v & 1] += v
        out.append(sums[v & 1])
    return out


def _first(lanes: list[int]) -> list[int]:
    first = {key: next((v for v in lanes if v & 1 == key), 0) for key in (0, 1)}
    place = {key: next((n for n, v in enumerate(lanes) if v & 1 == key), 0) for key in (0, 1)}
    return [first[v & 1] + (1000 if place[v & 1] == n else 0) for n, v in enumerate(lanes)]


def _ballots(lanes: list[int]) -> list[int]:
    odd = sum(1 << n for n, v in enumerate(lanes) if v & 1 and v & 4)
    even = sum(1 << n for n, v in enumerate(lanes) if not v & 1)
    return [odd if v & 1 else even for v in lanes]


def _short_circuit(lanes: list[int]) -> list[int]:
    count = sum(v > 40 for v in lanes)
    asked = [v > 40 and count > 3 for v in lanes]
    return [(1 if one else 2) + sum(asked) for one in asked]


_break_inside = _rounds(
    8, lambda v, k: bool(v & 1) and v % 8 == k, lambda v, _k, present: (100 if v & 1 else 0) + len(present)
)


def _return_inside(lanes: list[int]) -> list[int]:
    results = _rounds(8, lambda v, k: v % 32 == k, lambda _v, _k, present: len(present))(lanes)
    left = sum(one for v, one in zip(lanes, results, strict=True) if v % 32 >= 8)
    return [one + left if v % 32 >= 8 else 5 for v, one in zip(lanes, results, strict=True)]


def _falling(lanes: list[int]) -> list[int]:
    first, second = sum(v % 4 == 0 for v in lanes), sum(v % 4 < 2 for v in lanes)
    held = [first + second if v % 4 == 0 else second if v % 4 == 1 else 9 for v in lanes]
    return [one + len(lanes) for one in held]


BODIES = [
    LaneBody(
        "both sides", "if (v & 1) r = simd_sum(v); else r = simd_max(v);", _by_turns(lambda v: v & 1, {1: sum, 0: max})
    ),
    LaneBody("after an if", "if (v & 1) v += 3; r = simd_sum(v);", _after_if),
    LaneBody(
        "an if in an if",
        "if (v & 1) { r = simd_sum(v); if (v & 2) r += simd_sum(v); else r += 7; } else r = 5; r += simd_sum(r);",
        _nested,
    ),
    LaneBody("early return", "if (v % 5 == 0) return; r = simd_sum(v);", _returned),
    LaneBody(
        "loops of different lengths",
        "for (uint k = 0; k < v % 7; ++k) r += simd_sum(1u);",
        _rounds(7, lambda v, k: v % 7 <= k, lambda _v, _k, present: len(present)),
    ),
    LaneBody(
        "continue",
        "for (uint k = 0; k < 6; ++k) { if (v >> k & 1) continue; r += simd_sum(v); } r += simd_sum(1u);",
        _skipped,
    ),
    LaneBody(
        "continue in a while loop",
        "uint k = 0; while (k < 6) { ++k; if (v >> (k - 1) & 1) continue; r += simd_sum(v); } r += simd_sum(1u);",
        _skipped,
    ),
    LaneBody(
        "break",
        "for (uint k = 0; k < 8; ++k) { if (v % 8 == k) break; r += simd_sum(1u); }",
        _rounds(8, lambda v, k: v % 8 == k, lambda _v, _k, present: len(present)),
    ),
    LaneBody(
        "break inside an if",
        "for (uint k = 0; k < 8; ++k) { if (v & 1) { if (v % 8 == k) break; r += 100; } r += simd_sum(1u); }",
        _break_inside,
    ),
    LaneBody(
        "break inside an if, and a sum after",
        "for (uint k = 0; k < 8; ++k) { if (v & 1) { if (v % 8 == k) break; r += 100; } r += simd_sum(1u); }"
        "\nr += simd_sum(r);",
        lambda lanes: [one + sum(_break_inside(lanes)) for one in _break_inside(lanes)],
    ),
    LaneBody(
        "return inside a loop, and a sum after",
        "for (uint k = 0; k < 8; ++k) { if (v % 32 == k) { y[i] = 5; return; } r += simd_sum(1u); }\nr += simd_sum(r);",
        _return_inside,
    ),
    LaneBody(
        "a case that falls into the next",
        "switch (v % 4) { case 0: r = simd_sum(1u); case 1: r += simd_sum(1u); break; default: r = 9; }"
        "\nr += simd_sum(1u);",
        _falling,
    ),
    LaneBody(
        "do while",
        "uint k = 0; do { r += simd_sum(1u); ++k; } while (k <= v % 7);",
        _rounds(7, lambda v, k: v % 7 < k, lambda _v, _k, present: len(present)),
    ),
    LaneBody(
        "endless loop with a way out in the middle",
        "uint k = 0; while (true) { r += simd_sum(1u); if (k++ >= v % 7) break; r += 1; }",
        lambda lanes: [
            one + v % 7
            for v, one in zip(
                lanes, _rounds(7, lambda v, k: v % 7 < k, lambda _v, _k, present: len(present))(lanes), strict=True
            )
        ],
    ),
    LaneBody(
        "return out of a loop",
        "for (uint k = 0; k < 8; ++k) { if (v % 8 == k) { y[i] = r; return; } r += simd_sum(1u); }",
        _rounds(8, lambda v, k: v % 8 == k, lambda _v, _k, present: len(present)),
    ),
    LaneBody(
        "switch",
        "switch (v % 4) { case 0: r = simd_sum(v); break; case 1: r = simd_max(v); break; default: r = simd_min(v); }"
        "\nr += simd_sum(r);",
        _switched,
    ),
    LaneBody(
        "helper on both sides",
        "if (v & 1) r = total(v); else r = total(v) + 1000;",
        _by_turns(lambda v: v & 1, {1: sum, 0: lambda part: sum(part) + 1000}),
        "inline uint total(uint v) { return simd_sum(v); }\n",
    ),
    LaneBody(
        "helper that returns early",
        "r = some(v); r += simd_sum(1u);",
        _helper_returns,
        "inline uint some(uint v) {\n  if (v & 2) return v;\n  return simd_sum(v);\n}\n",
    ),
    LaneBody(
        "loop in a loop",
        "for (uint k = 0; k < v % 4; ++k) {\n"
        "  for (uint j = 0; j < (v >> 2) % 3; ++j) r += simd_sum(1u);\n"
        "  r += 100 * simd_sum(1u);\n}\nr += simd_sum(r);",
        _round_and_round,
    ),
    LaneBody(
        "prefix on both sides",
        "if (v & 1) r = simd_prefix_inclusive_sum(v); else r = simd_prefix_inclusive_sum(v);",
        _prefix,
    ),
    LaneBody(
        "first of a side",
        "if (v & 1) r = simd_broadcast_first(v) + (simd_is_first() ? 1000 : 0);\n"
        "else r = simd_broadcast_first(v) + (simd_is_first() ? 1000 : 0);",
        _first,
    ),
    LaneBody(
        "ballots",
        "if (v & 1) r = (uint)(ulong)simd_ballot((v & 4) != 0); else r = (uint)(ulong)simd_active_threads_mask();",
        _ballots,
    ),
    LaneBody(
        "right side of an and",
        "bool asked = v > 40 && simd_sum(1u) > 3; r = asked ? 1 : 2; r += simd_sum(asked ? 1u : 0u);",
        _short_circuit,
    ),
]


def numbers(count: int, seed: int) -> NDArray[np.uint32]:
    """Return small numbers for `x`."""
    return np.random.default_rng(seed).integers(0, 64, count, dtype=np.uint32)
