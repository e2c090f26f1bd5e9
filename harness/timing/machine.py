"""What a machine is and can do: asked and measured once, then kept for as long as the machine stays what it is."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import NothingRanError
from harness.fingerprint import fingerprint
from harness.timing.rates import Rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.timing.rates import BySize

_VERSION = 1
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from harness.timing.machine import main; main()"
MEASURING_SECONDS = 300.0


@dataclass(frozen=True)
class Machine:
    """A machine: who it is, what runs Metal text on it, what its clock costs and what it can do at most.

    identity: what times depend on. backends: by name, what came of running a kernel there. clock_ns: two readings of
    the clock; overhead_ns: the same around an empty evaluation.
    """

    identity: Mapping[str, str | int]
    device: str
    backends: Mapping[str, str]
    clock_ns: int
    overhead_ns: int
    rates: Rates
    measured: str = ""

    def copied_s(self, size: int) -> float:
        """Return the measured bytes a second of a copy of this size: that of the next larger size, or of the largest.

        An array of `size` bytes that is copied moves twice as many.
        """
        return _at(self.rates.copied, size)

    def most_moved_s(self, moved_bytes: int) -> float:
        """Return the most bytes a second that anything of this size can move.

        Some machines read faster than they copy, and what is larger may be faster than what is mostly overhead; so the
        best is taken of both, of a quarter of the size (in a quicker cache) and all above.
        """
        rates = [rate for size, rate in (*self.rates.copied, *self.rates.read) if 4 * size >= moved_bytes]
        return max(rates) if rates else max(self.rates.copied[-1][1], self.rates.read[-1][1])

    @property
    def most_operations_s(self) -> float:
        """The best rate of any dtype."""
        return max(self.rates.operations.values())


def _at(rates: BySize, size: int) -> float:
    return next((rate for own, rate in rates if own >= size), rates[-1][1])


def known_machine(*, refresh: bool = False) -> Machine:
    """Return this machine, measured now or earlier; raises NothingRanError where measuring fails."""
    path = _cache_path()
    if not refresh:
        try:
            return _read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            pass
    found = _measured_elsewhere()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another run may read it now.
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(found), encoding="utf-8")
        beside.replace(path)
    except OSError:
        pass
    return _read(found)


def best_of(one: Machine, other: Machine) -> Machine:
    """Return a machine with the better of the rates that were measured at two times."""
    first, second = one.rates, other.rates
    operations = {dtype: max(rate, second.operations.get(dtype, 0.0)) for dtype, rate in first.operations.items()}
    copied, read = _better(first.copied, second.copied), _better(first.read, second.read)
    return replace(one, rates=Rates(copied, read, operations))


def _better(one: BySize, other: BySize) -> BySize:
    sizes = sorted({*dict(one), *dict(other)})
    return tuple((size, max(dict(one).get(size, 0.0), dict(other).get(size, 0.0))) for size in sizes)


def main() -> None:
    """Measure in this process and print the result as JSON."""
    import time

    from harness.record import now
    from harness.subjects.reference.backends import backends
    from harness.timing.rates import measure_rates
    from harness.timing.visit import overhead_ns
    from harness.worker import mlx_device

    device = mlx_device()
    readings = [time.perf_counter_ns() for _ in range(1001)]
    steps = sorted(after - before for before, after in pairwise(readings))
    found = {
        "version": _VERSION,
        "identity": fingerprint(),
        "device": device,
        "backends": backends(),
        "clock_ns": steps[len(steps) // 2],
        "overhead_ns": overhead_ns(),
        "rates": asdict(measure_rates()),
        "measured": now(),
    }
    print(json.dumps(found))  # noqa: T201 - the parent reads it


def _measured_elsewhere() -> dict[str, Any]:
    # In a process of its own: the memory that this takes does not stay, nor do threads.
    command = [sys.executable, "-c", _BOOT, json.dumps(sys.path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MEASURING_SECONDS)  # noqa: S603 - this Python
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise NothingRanError(f"measuring this machine took more than {MEASURING_SECONDS:.0f} s") from None
    except (IndexError, ValueError):
        raise NothingRanError(f"this machine can't be measured: {done.stderr.strip()[-500:]}") from None
    return found


def _read(found: Mapping[str, Any]) -> Machine:
    if found["version"] != _VERSION:
        raise ValueError("of another version")
    rates = found["rates"]
    pairs = {name: tuple((int(size), float(rate)) for size, rate in rates[name]) for name in ("copied", "read")}
    return Machine(
        found["identity"],
        found["device"],
        found["backends"],
        int(found["clock_ns"]),
        int(found["overhead_ns"]),
        Rates(pairs["copied"], pairs["read"], dict(rates["operations"])),
        found["measured"],
    )


def _cache_path() -> Path:
    base = os.environ.get("METAL_ASSAY_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "metal-assay"
    )
    text = json.dumps([_VERSION, fingerprint(), platform.node()], sort_keys=True)
    return Path(base, f"machine-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json")
