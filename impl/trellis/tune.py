"""Measures all variants on this machine and writes the fastest of each shape to `choices.json`.

`python -m impl.trellis.tune` takes some minutes; what is done is kept when it is interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

import mlx.core as mx

from impl.trellis import choices
from impl.trellis.choices import Measured
from impl.trellis.layout import TrellisFormat
from impl.trellis.products import CodedMatrix, backend_name, product
from impl.trellis.variants import ANYTHING, VARIANTS, ProductShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STATE_BITS: Final = 12
_VISIT_S: Final = 0.02


def fastest(layout: TrellisFormat, batch: int, splits: Sequence[int], rounds: int, backend: str | None) -> Measured:
    """Return the fastest variant and number of splits, by the median of `rounds` rounds over all of them."""
    codes = mx.random.randint(0, 2**31 - 1, (layout.words,)).astype(mx.uint32)
    matrix = CodedMatrix(codes, mx.random.uniform(0.5, 1.5, (layout.rows,)), layout)
    x = mx.random.normal((batch, layout.rows))
    mx.eval(matrix.codes, matrix.scales, x)
    arms = [
        (variant.name, parts)
        for variant, parts in itertools.product(VARIANTS, splits)
        if variant.name != ANYTHING
        and variant.rounding != "offset"
        and variant.reason(ProductShape(layout, batch, parts)) is None
    ]
    calls = {arm: _call(matrix, x, arm, backend) for arm in arms}
    counts = dict.fromkeys(arms, 1)
    for arm in arms:
        _visit(calls[arm], 1)
        counts[arm] = max(1, min(64, round(_VISIT_S / max(_visit(calls[arm], 1), 1e-6))))
    times: dict[tuple[str, int], list[float]] = {arm: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms:
            times[arm].append(_visit(calls[arm], counts[arm]))
    name, parts = min(arms, key=lambda arm: statistics.median(times[arm]))
    device = str(mx.device_info().get("device_name") or platform.machine())
    return Measured(backend_name(backend), device, layout.bits, layout.rows, layout.columns, batch, name, parts)


def _call(matrix: CodedMatrix, x: mx.array, arm: tuple[str, int], backend: str | None) -> Callable[[], mx.array]:
    def multiplied(codes: mx.array, scales: mx.array, numbers: mx.array) -> mx.array:
        return product(CodedMatrix(codes, scales, matrix.layout), numbers, *arm, backend)

    # A GPU would wait for Python else, and all variants would take the same time. On a CPU kernels can't be traced.
    called = multiplied if backend_name(backend) == "cpu" else mx.compile(multiplied)
    return lambda: called(matrix.codes, matrix.scales, x)


def _visit(call: Callable[[], mx.array], calls: int) -> float:
    begun = time.perf_counter()
    mx.eval([call() for _ in range(calls)])
    mx.synchronize()
    return (time.perf_counter() - begun) / calls


def main(arguments: list[str] | None = None) -> None:
    """Tune for the shapes that the options name."""
    parser = argparse.ArgumentParser(prog="python -m impl.trellis.tune", description=__doc__)
    parser.add_argument("--backend", help="what runs the kernels; what is there")
    parser.add_argument("--bits", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096], help="rows and columns")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--splits", type=int, nargs="+", default=[4, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    shapes = list(itertools.product(options.bits, options.sizes, options.batches))
    for number, (bits, size, batch) in enumerate(shapes, 1):
        layout = TrellisFormat(size, size, bits, _STATE_BITS, interleave=True)
        found = fastest(layout, batch, options.splits, options.rounds, options.backend)
        choices.measured.cache_clear()
        choices.FILE.write_text(choices.written(choices.merged(choices.measured(), [found])), encoding="utf-8")
        text = f"{bits} bits, {size} x {size}, {batch} vectors: {found.variant}, {found.splits} splits"
        print(f"{number} of {len(shapes)}: {text}", file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
