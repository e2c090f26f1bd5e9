"""Handing timed rounds to pytest-benchmark, so that its JSON, autosave and compare work on them.

pytest-benchmark measures by itself and has no public way to take measurements from elsewhere. The three private names
used here (`_benchmarksession`, `Metadata`, the attributes it reads from a fixture) are used nowhere else, and a test
holds the installed version to them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from harness.case.expand import Instance
    from harness.outcome import Rounds


def hand_over(item: pytest.Item, rounds: tuple[Rounds, ...], instance: Instance, subject: str) -> None:
    """Add one benchmark an operation to pytest-benchmark's session; none when it is switched off."""
    session: Any = getattr(item.config, "_benchmarksession", None)
    if session is None or session.disabled or session.skip:
        return
    from pytest_benchmark.stats import Metadata

    for timed in rounds:
        name = f"{instance.id}:{timed.operation}"
        fixture = SimpleNamespace(
            name=name,
            fullname=f"{item.nodeid}:{timed.operation}",
            group=f"{instance.kind}:{timed.operation}",
            param=None,
            params=None,
            extra_info={"subject": subject, "calls_a_round": timed.calls},
            cprofile_stats=None,
            has_error=False,
        )
        options = {
            "disable_gc": False,
            "timer": "perf_counter_ns",
            "min_rounds": len(timed.round_ns),
            "max_time": 0,
            "min_time": 0,
            "warmup": True,
        }
        stats = Metadata(fixture, iterations=timed.calls, options=options)
        for round_ns in timed.round_ns:
            # `update` divides by the iterations itself and counts in seconds.
            stats.update(round_ns / 1e9)
        session.benchmarks.append(stats)
