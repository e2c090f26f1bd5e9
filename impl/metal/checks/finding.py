"""What a check found in a kernel, with the lines of the kernel's own text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What is wrong. The values are the words that reports and `--select`-like options use."""

    OUT_OF_BOUNDS_READ = "out-of-bounds read"
    OUT_OF_BOUNDS_WRITE = "out-of-bounds write"
    RACE = "race"
    UNINITIALIZED_READ = "uninitialized read"
    UNWRITTEN_OUTPUT = "unwritten output"
    DIVERGENT_BARRIER = "divergent barrier"
    DIVERGENT_SIMD = "divergent simd operation"
    INACTIVE_LANE_READ = "read of an inactive lane"
    UNDEFINED_ARITHMETIC = "undefined arithmetic"
    ORDER_DEPENDENT = "order-dependent result"
    CRASHED = "crashed"
    TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class Place:
    """A line of the kernel's text: `file` is `source` (the body) or `header`; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str


@dataclass(frozen=True)
class Finding:
    """One fault, once for each place (or pair of places) in the text, however often it happened.

    kernel: the kernel's name. places: where; for a race both accesses, the later one first. message: one sentence for
    the author, with the memory's name, the index and its limit, or the threads. count: how often it was seen.
    """

    kernel: str
    fault: Fault
    message: str
    places: tuple[Place, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class Checked:
    """What the checks of one launch say. skipped: checks that could not be made, why, and how to get them."""

    kernel: str
    findings: tuple[Finding, ...]
    orders: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
