"""Every kernel of a product with a trellis-coded matrix beside MLX's own products, in shuffled rounds of one run.

Each visit queues calls on several copies of the matrix in turn, so that no cache holds what the next call reads, and
waits for the last one. `--compile-only` fills the cache of compiled kernels for a machine that has no compiler.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import mlx.core as mx
import numpy as np

from impl.metal import MetalTextError, compile_all
from impl.trellis.choices import usual_splits
from impl.trellis.layout import TrellisFormat
from impl.trellis.products import CodedMatrix, backend_name, kernel_call, product, reduction_call
from impl.trellis.variants import VARIANTS, ProductShape, Variant
from tests.bench.trellis_variants_report import Row, page, right

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from impl.metal import Backend

STATE_BITS: Final = 12
# Beyond every last-level cache that is likely, and small enough for a laptop.
_TURNED_BYTES: Final = {"cpu": 64 << 20}
_GPU_TURNED_BYTES: Final = 256 << 20
_MOST_COPIES: Final = 6
_VISIT_S: Final = 0.03
_MLX_BITS: Final = (2, 3, 4, 5)
# Plain operations write the decoded matrix several times over.
_MOST_OPERATIONS: Final = 1 << 22


@dataclass(frozen=True)
class Arm:
    """What is timed: one thunk for each copy of the matrix, and the bytes that one call reads of it."""

    name: str
    calls: list[Callable[[], mx.array]]
    moved_bytes: int
    variant: Variant | None = None


def matrices(layout: TrellisFormat, copies: int) -> list[CodedMatrix]:
    """Return random matrices; all words are codes."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(copies):
        codes = mx.array(rng.integers(0, 2**32, layout.words, dtype=np.uint32))
        scales = mx.array(rng.uniform(0.5, 1.5, layout.rows).astype(np.float32))
        mx.eval(codes, scales)
        found.append(CodedMatrix(codes, scales, layout))
    return found


def trellis_arms(
    coded: Sequence[CodedMatrix], x: mx.array, splits: int, backend: str | Backend | None, only: Sequence[str]
) -> tuple[list[Arm], list[Row]]:
    """Return an arm for every variant that applies, and a row with the reason for every other one."""
    layout = coded[0].layout
    arms, rows = [], []
    for variant in VARIANTS:
        reason = variant.reason(ProductShape(layout, x.shape[0], splits))
        if reason is None and variant.file is None and layout.rows * layout.columns * x.shape[0] > _MOST_OPERATIONS:
            reason = "left out here: it writes several times the decoded matrix"
        if only and variant.name not in only:
            continue
        if reason is not None:
            rows.append(Row(variant.name, reason))
            continue

        def call(matrix: CodedMatrix, name: str = variant.name) -> Callable[[], mx.array]:
            def multiplied(codes: mx.array, scales: mx.array, numbers: mx.array) -> mx.array:
                return product(CodedMatrix(codes, scales, layout), numbers, name, splits, backend)

            return bound(multiplied, [matrix.codes, matrix.scales, x], backend_name(backend))

        moved = layout.words * 4 + layout.rows * 4
        arms.append(Arm(variant.name, [call(matrix) for matrix in coded], moved, variant))
    return arms, rows


def mlx_arms(layout: TrellisFormat, x: mx.array, copies: int, backend: str) -> list[Arm]:
    """Return MLX's quantized products at several bits, and its product in float16, of matrices of the same size."""
    arms = []
    # Each device in the type that it is fastest with: on processors MLX's float16 takes three times as long.
    dtype = mx.float32 if backend == "cpu" else mx.float16
    for bits in _MLX_BITS:
        planes = []
        for _ in range(copies):
            weight = mx.random.normal((layout.columns, layout.rows)).astype(dtype)
            planes.append(mx.quantize(weight, 64, bits))
            mx.eval(planes[-1])

        def quantized(plane: Sequence[mx.array], bits: int = bits) -> Callable[[], mx.array]:
            number = x.astype(plane[1].dtype)

            def multiplied(number: mx.array, codes: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
                return mx.quantized_matmul(number, codes, scales, biases, group_size=64, bits=bits)

            return bound(multiplied, [number, *plane], backend)

        moved = sum(part.nbytes for part in planes[0])
        arms.append(Arm(f"mx.quantized_matmul, {bits} bits", [quantized(plane) for plane in planes], moved))
    # Larger than the caches already.
    weight = mx.random.normal((layout.rows, layout.columns)).astype(mx.float16)
    numbers = x.astype(mx.float16)
    mx.eval(weight, numbers)
    arms.append(Arm("mx.matmul, float16", [bound(mx.matmul, [numbers, weight], backend)], weight.nbytes))
    return arms


def bound(function: Callable[..., mx.array], inputs: list[mx.array], backend: str) -> Callable[[], mx.array]:
    """Return the call of a function with these inputs; on GPUs it is compiled, as models are.

    Else a GPU waits for Python, and all that is measured is how long a call takes to be written down.
    """
    called = function if backend == "cpu" else mx.compile(function)
    return lambda: called(*inputs)


def copy_arm(size: int) -> Arm:
    """Return a copy of `size` bytes, each read and written once: what bandwidth can be had."""
    source = mx.random.normal((size // 4,))
    mx.eval(source)
    return Arm("copy", [lambda: source + 1], 2 * source.nbytes)


def visit(arm: Arm, calls: int) -> float:
    """Return seconds a call, of `calls` that are queued at once."""
    begun = time.perf_counter()
    mx.eval([arm.calls[number % len(arm.calls)]() for number in range(calls)])
    mx.synchronize()
    return (time.perf_counter() - begun) / calls


def measure(arms: Sequence[Arm], rounds: int, seed: int) -> dict[str, list[float]]:
    """Return seconds a call, round by round; a round visits all arms in shuffled order."""
    counts = {}
    for arm in arms:
        visit(arm, len(arm.calls))
        counts[arm.name] = max(1, min(256, round(_VISIT_S / max(visit(arm, len(arm.calls)), 1e-7))))
    order = random.Random(seed)  # noqa: S311 - an order, no secret
    times: dict[str, list[float]] = {arm.name: [] for arm in arms}
    with click.progressbar(length=rounds * len(arms), label="measuring", file=sys.stderr) as bar:
        for _ in range(rounds):
            shuffled = list(arms)
            order.shuffle(shuffled)
            for arm in shuffled:
                times[arm.name].append(visit(arm, counts[arm.name]))
                bar.update(1)
    return times


def compile_kernels(layouts: Sequence[TrellisFormat], batch: int, backend: str | Backend | None) -> int:
    """Compile all kernels for these shapes, run nothing, and return how many do not compile."""
    calls, names = [], []
    for layout in layouts:
        matrix = CodedMatrix(mx.zeros(layout.words, mx.uint32), mx.zeros(layout.rows), layout)
        splits = usual_splits(layout, batch, backend_name(backend))
        for variant in VARIANTS:
            if variant.file is None or variant.reason(ProductShape(layout, batch, splits)) is not None:
                continue
            call = kernel_call(variant, matrix, mx.zeros((batch, layout.rows)), splits, backend)
            calls.append((call.kernel, call.arguments))
            names.append(f"{variant.name}, {layout.bits} bits")
    reduction = reduction_call(mx.zeros((batch, 2, layouts[0].columns)), backend)
    calls.append((reduction.kernel, reduction.arguments))
    names.append("sums of splits")
    failed = 0
    for name, error in zip(names, compile_all(calls), strict=True):
        failed += error is not None
        click.echo(f"{name}: {'compiled' if error is None else error}")
    return failed


def backend_for(name: str | None, target: str | None) -> str | Backend | None:
    """Return the backend to use; with a `target`, the one that compiles for it without having it.

    On CUDA without the NaN that outputs are filled with else: that is a launch of its own, and Metal has none.
    """
    if target is None and backend_name(name) != "cuda":
        return name
    from impl.metal.cuda import CudaBackend

    return CudaBackend(target=target, poison=False)


def one_table(
    layout: TrellisFormat, batch: int, splits: int | None, backend: Any, rounds: int, seed: int, only: Sequence[str]
) -> str:
    """Measure one format, check every variant, and return its section of the report."""
    name = backend_name(backend)
    turned = _TURNED_BYTES.get(name, _GPU_TURNED_BYTES)
    copies = max(2, min(_MOST_COPIES, -(-turned // (layout.words * 4))))
    coded = matrices(layout, copies)
    x = mx.array(np.random.default_rng(2).standard_normal((batch, layout.rows)).astype(np.float32))
    splits = splits or usual_splits(layout, batch, name)
    ours, rows = trellis_arms(coded, x, splits, backend, only)
    checked = {arm.name: right(coded[0], x, arm.variant, arm.calls[0](), splits) for arm in ours if arm.variant}
    arms = [*ours, *mlx_arms(layout, x, copies, name), copy_arm(turned)]
    times = measure(arms, rounds, seed)
    copied = arms[-1].moved_bytes / statistics.median(times["copy"])
    rows = [
        *(Row(arm.name, None, checked.get(arm.name), times[arm.name], arm.moved_bytes) for arm in arms[:-1]),
        *rows,
    ]
    return page(layout, batch, splits, name, rows, copied)


@click.command()
@click.option("--backend", type=click.Choice(["cpu", "cuda", "metal"]), help="What runs the kernels; what is there.")
@click.option("--size", default=4096, show_default=True, help="Rows and columns of the matrix.")
@click.option("--bits", multiple=True, type=int, default=(2, 3, 4), show_default=True, help="Bits a weight.")
@click.option("--batch", default=1, show_default=True, help="Vectors.")
@click.option("--splits", type=int, help="Parts of rows; as many as fill the device.")
@click.option("--interleave/--plain", default=True, show_default=True, help="Layout of the codes.")
@click.option("--rounds", default=24, show_default=True, help="Visits of every kernel.")
@click.option("--seed", default=1, show_default=True, help="Draws the order.")
@click.option("--only", multiple=True, help="This variant (may be repeated).")
@click.option("--compile-only", is_flag=True, help="Compile all kernels into the cache, and run nothing.")
@click.option("--target", help="Compile for this GPU without having it, such as sm_90 (with --compile-only).")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the report here.")
def main(
    backend: str | None,
    size: int,
    bits: tuple[int, ...],
    batch: int,
    splits: int | None,
    interleave: bool,
    rounds: int,
    seed: int,
    only: tuple[str, ...],
    compile_only: bool,
    target: str | None,
    markdown: Path | None,
) -> None:
    r"""Compare the kernels of products with trellis-coded matrices, and MLX's own products.

    \b
    python -m tests.bench.trellis_variants --markdown reports/trellis-variants.md
    python -m tests.bench.trellis_variants --backend cuda --size 16384 --bits 3
    METAL_ASSAY_CACHE=made python -m tests.bench.trellis_variants --compile-only --target sm_90 --size 16384
    """
    chosen = backend_for(backend, target)
    layouts = [TrellisFormat(size, size, each, STATE_BITS, interleave=interleave) for each in bits]
    if compile_only:
        sys.exit(compile_kernels(layouts, batch, chosen) > 0)
    if target is not None:
        raise click.UsageError("--target goes with --compile-only; kernels run on the GPU that is there")
    try:
        sections = [one_table(layout, batch, splits, chosen, rounds, seed, only) for layout in layouts]
    except MetalTextError as error:
        raise click.ClickException(str(error)) from None
    for section in sections:
        click.echo(section)
    if markdown is not None:
        from tests.bench.trellis_variants_report import HEAD

        markdown.write_text(HEAD.format(rounds=rounds) + "\n".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
