"""What a machine can do at most, measured: bytes copied and read a second by size, operations a second by dtype.

Everything is the best of several tries on the device that MLX chose and, by NumPy, on the cores that go with it: these
are bounds that no honest time beats.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

SIZES = tuple(4**power << 10 for power in range(2, 10))
TRIES = 7
# The largest array is several times any last-level cache, and a small part of the memory.
LEAST_LARGEST_BYTES = 64 << 20
# A try moves so many bytes, or so many arrays of one size.
TRY_BYTES = 8 << 20
MOST_ARRAYS = 32
# A product is doubled in size until it takes so long.
PEAK_SECONDS = 0.03
SMALLEST_PRODUCT, LARGEST_PRODUCT = 128, 8192
PEAK_DTYPES = ("float32", "float16", "bfloat16")


BySize = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Rates:
    """Best rates: (bytes of the array, bytes a second) by size, and operations a second by dtype."""

    copied: BySize
    read: BySize
    operations: dict[str, float]


def measure_rates() -> Rates:
    """Measure; takes a few seconds."""
    core = _mlx()
    copied, read = [], []
    for size in _sizes():
        copied.append((size, max(2 * size / best for best in _copies(size, core))))
        read.append((size, max(size / best for best in _reads(size, core))))
    peaks = {dtype: _peak(dtype, core) for dtype in PEAK_DTYPES} if core is not None else {}
    peaks["float32"] = max(peaks.get("float32", 0.0), _numpy_peak())
    return Rates(tuple(copied), tuple(read), peaks)


def _sizes() -> Iterator[int]:
    # Three arrays of the largest size are in use at once.
    most = max(LEAST_LARGEST_BYTES, psutil.virtual_memory().available // 16)
    yield from (size for size in SIZES if size <= most)


def _mlx() -> Any:
    try:
        import mlx.core as mx
    except ImportError:
        return None
    return mx


def _best(work: Callable[[], object], count: int = 1) -> float:
    """Return the shortest time of one of `count` pieces of work done at once [s]."""
    work()
    times = []
    for _ in range(TRIES):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return max(1, min(times)) / 1e9 / count


def _count(size: int) -> int:
    return max(1, min(MOST_ARRAYS, TRY_BYTES // size))


def _copies(size: int, core: Any) -> Iterator[float]:
    """Yield times of one copy of `size` bytes, by each way there is."""
    count = _count(size)
    if core is not None:
        source = core.full((size // 4,), 1.0, core.float32)
        core.eval(source)

        def copy_there() -> None:
            core.eval([source + 1 for _ in range(count)])
            core.synchronize()

        yield _best(copy_there, count)
    for threads in _threads(size):
        parts = [(np.ones(size // threads, np.uint8), np.empty(size // threads, np.uint8)) for _ in range(threads)]

        def copy_part(part: tuple[NDArray[np.uint8], NDArray[np.uint8]]) -> None:
            for _ in range(count):
                np.copyto(part[1], part[0])

        yield _in_threads(copy_part, parts, count)


def _reads(size: int, core: Any) -> Iterator[float]:
    count = _count(size)
    if core is not None:
        source = core.full((size // 4,), 1.0, core.float32)
        core.eval(source)

        def read_there() -> None:
            core.eval([source.sum() for _ in range(count)])
            core.synchronize()

        yield _best(read_there, count)
    for threads in _threads(size):
        parts = [np.ones(size // threads // 4, np.float32) for _ in range(threads)]

        def read_part(part: NDArray[np.float32]) -> None:
            for _ in range(count):
                np.max(part)

        yield _in_threads(read_part, parts, count)


def _threads(size: int) -> tuple[int, ...]:
    cores = os.cpu_count() or 1
    # Handing out small parts takes longer than the work.
    return (1, cores) if size >= 1 << 20 and cores > 1 else (1,)


def _in_threads(work: Callable[[Any], None], parts: list[Any], count: int) -> float:
    if len(parts) == 1:
        return _best(lambda: work(parts[0]), count)
    with ThreadPoolExecutor(len(parts)) as pool:
        return _best(lambda: list(pool.map(work, parts)), count)


def _peak(dtype: str, core: Any) -> float:
    """Return operations a second of square products; they double in size until they take long enough."""
    best, size = 0.0, SMALLEST_PRODUCT
    while size <= LARGEST_PRODUCT:
        matrix = core.full((size, size), 1.0, getattr(core, dtype))
        core.eval(matrix)

        def multiply(matrix: Any = matrix) -> None:
            core.eval(matrix @ matrix)
            core.synchronize()

        start = time.perf_counter()
        multiply()
        # Some dtypes have no fast product on some devices.
        seconds = time.perf_counter() - start if time.perf_counter() - start > 1.0 else _best(multiply)
        best = max(best, 2 * size**3 / seconds)
        if seconds > PEAK_SECONDS:
            break
        size *= 2
    return best


def _numpy_peak() -> float:
    best, size = 0.0, SMALLEST_PRODUCT
    while size <= LARGEST_PRODUCT:
        matrix = np.ones((size, size), np.float32)
        seconds = _best(lambda matrix=matrix: matrix @ matrix)  # type: ignore[misc]
        best = max(best, 2 * size**3 / seconds)
        if seconds > PEAK_SECONDS:
            break
        size *= 2
    return best
