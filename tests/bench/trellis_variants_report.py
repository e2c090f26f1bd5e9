"""The table of `tests.bench.trellis_variants`, and whether a product is right."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from tabulate import tabulate

from harness.baseline import trellis as baseline
from harness.compare import UNIT_ROUNDOFF, dot_bound
from impl.trellis.layout import BLOCK, split_blocks

if TYPE_CHECKING:
    import mlx.core as mx

    from impl.trellis.layout import TrellisFormat
    from impl.trellis.products import CodedMatrix
    from impl.trellis.variants import Variant

BASE: Final = "balanced"
_UNIT: Final = UNIT_ROUNDOFF["float32"]
_CHECKED_BLOCKS: Final = 2
# What is asked of the fastest variant: its time against that of another product in the same run, at most.
_BARS: Final = {"cpu": (("mx.quantized_matmul, {next} bits", 0.5),)}
_GPU_BARS: Final = (("mx.matmul, float16", 0.75), ("mx.quantized_matmul, {bits} bits", 0.6))

HEAD: Final = """# Kernels of trellis products

One vector (unless said otherwise) times a trellis-coded matrix, codebook 1MAD, states of 12 bits; beside it MLX's own
products with matrices of the same size, group size 64, all in {rounds} shuffled rounds of one run. `median` and its
interval (99 %, from order statistics) are of the time a call, calls being queued; `ratio` is the time against
`balanced`; GB/s count codes and scales once; `copy` is what a copy of a large array reads and writes.
`right` compares with float64 within the bound that the kind of rounding allows.
On a GPU every call is compiled by `mx.compile`, ours and MLX's, so that the GPU does not wait for Python.

No Apple GPU has run this yet. On a Mac this command takes the figures:
`python -m tests.bench.trellis_variants --backend metal --markdown reports/trellis-variants.md`

"""


@dataclass(frozen=True)
class Row:
    """What is known of one variant or other product: why it does not apply, or its times in seconds."""

    name: str
    reason: str | None
    right: bool | None = None
    times: list[float] | None = None
    moved_bytes: int = 0


def right(coded: CodedMatrix, x: mx.array, variant: Variant, answer: mx.array, splits: int) -> bool:
    """Return whether the first and the last block of a product agree with float64, within the variant's bound."""
    layout = coded.layout
    blocks = sorted({0, layout.blocks - 1})[:_CHECKED_BLOCKS]
    words = np.array(split_blocks(coded.codes, layout))[:, blocks]
    scales, vectors = np.array(coded.scales), np.array(x, np.float32)
    weights = baseline.decode(words, scales, layout.bits, layout.state_bits, layout.codebook)
    columns = np.concatenate([np.arange(block * BLOCK, (block + 1) * BLOCK) for block in blocks])
    error = np.abs(np.array(answer, np.float64)[:, columns] - baseline.product(vectors, weights))
    magnitudes = baseline.absolute_product(vectors, weights)
    extra = {"direct": 2, "folded": 4, "offset": 6, "matmul": 2}[variant.rounding] + splits
    added = magnitudes
    if variant.rounding == "offset":
        raised = weights.astype(np.float64) + 1020 * float(baseline.INVERSE_SIGMA) * scales[:, None]
        added = np.abs(vectors.astype(np.float64)) @ np.abs(raised)
    bound = dot_bound(layout.rows, added, _UNIT, extra=extra)
    if variant.rounding == "matmul":
        # A device may round the inputs of its matrix product to 11 bits.
        bound = bound + magnitudes * 2.0**-10
    return bool((error <= bound).all())


def median_interval(values: list[float], level: float = 0.99) -> tuple[float, float]:
    """Return an interval of the median from order statistics; the whole range where there are too few values."""
    ordered, count = sorted(values), len(values)
    tail, cut = 0.0, 0
    while cut < count // 2:
        tail += math.comb(count, cut) / 2**count
        if 2 * tail > 1 - level:
            break
        cut += 1
    low = max(0, cut - 1)
    return ordered[low], ordered[count - 1 - low]


def page(layout: TrellisFormat, batch: int, splits: int, backend: str, rows: list[Row], copied: float) -> str:
    """Write one section: the table, fastest first, and the bars."""
    medians = {row.name: statistics.median(row.times) for row in rows if row.times}
    base = medians.get(BASE)
    table: list[tuple[str, ...]] = []
    for row in sorted(rows, key=lambda row: medians.get(row.name, math.inf)):
        if row.times is None:
            table.append((row.name, f"no: {row.reason}"))
            continue
        median, (low, high) = medians[row.name], median_interval(row.times)
        ours = row.right is not None
        table.append(
            (
                row.name,
                "yes" if ours else "",
                ("yes" if row.right else "NO") if ours else "",
                f"{median * 1e6:.1f}",
                f"{low * 1e6:.1f} to {high * 1e6:.1f}",
                "" if base is None else f"{median / base:.2f}",
                f"{row.moved_bytes / median / 1e9:.1f}",
                f"{layout.rows * layout.columns * batch / median / 1e9:.2f}",
                f"{row.moved_bytes / median / copied:.0%}",
            )
        )
    header = ("variant", "applies", "right", "median µs", "interval µs", "ratio", "GB/s", "Gweights/s", "of copy")
    title = f"## {layout.bits} bits, {layout.rows} x {layout.columns}, {batch} vector{'s' * (batch > 1)}, {backend}\n\n"
    kind = (
        f"{'Interleaved' if layout.interleave else 'Plain'} layout, {splits} splits, copy {copied / 1e9:.1f} GB/s.\n\n"
    )
    return (
        title
        + kind
        + tabulate(table, header, tablefmt="github", disable_numparse=True)
        + "\n\n"
        + _bars(layout, backend, rows, medians)
    )


def _bars(layout: TrellisFormat, backend: str, rows: list[Row], medians: dict[str, float]) -> str:
    ours = [row.name for row in rows if row.right and row.times]
    if not ours:
        return ""
    best = min(ours, key=medians.__getitem__)
    lines = []
    for name, most in _BARS.get(backend, _GPU_BARS):
        other = name.format(bits=layout.bits, next=layout.bits + 1)
        if other in medians:
            ratio = medians[best] / medians[other]
            verdict = "met" if ratio <= most else "missed"
            lines.append(
                f"- `{best}` takes {ratio:.2f} of the time of {other}; asked is {most:g} at most: {verdict}.\n"
            )
    return "".join(lines)
