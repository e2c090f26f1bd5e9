"""What `tests.bench.metal_cuda` runs beside the cases: each part yields a row for each kernel."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from harness.baseline import trellis
from impl.metal import MetalTextError, metal_kernel, metal_text
from tests.bench.metal_cuda import RIGHT, Row
from tests.impl.lane_bodies import BODIES, numbers
from tests.impl.test_metal_trellis import BITS, BLOCK, COLUMNS, HEADER, OURS, ROWS, SIMDGROUPS, seed_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from impl.metal.backend import Backend, Call, Runner
    from impl.metal.native import Report
    from impl.metal.signature import Text

GROUPS = (32, 48, 100, 256)
# Units in the last place that the Metal specification (6.5, table 8.2) allows, for those that were measured here.
FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "exp": (np.exp, 4),
    "exp2": (np.exp2, 4),
    "exp10": (lambda x: np.power(10.0, x), 4),
    "log": (np.log, 4),
    "log2": (np.log2, 4),
    "log10": (np.log10, 4),
    "sin": (np.sin, 4),
    "cos": (np.cos, 4),
    "tan": (np.tan, 6),
    "asin": (np.arcsin, 4),
    "acos": (np.arccos, 4),
    "atan": (np.arctan, 5),
    "sinh": (np.sinh, 4),
    "cosh": (np.cosh, 4),
    "tanh": (np.tanh, 5),
    "asinh": (np.arcsinh, 4),
    "acosh": (np.arccosh, 4),
    "atanh": (np.arctanh, 5),
    "sqrt": (np.sqrt, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "pow": (np.power, 16),
    "atan2": (np.arctan2, 6),
    "fmod": (np.fmod, 0),
}


def compared(got: mx.array, expected: NDArray[Any]) -> str:
    """Return RIGHT, or where the first difference is."""
    values = np.array(got)
    if values.shape != expected.shape:
        return f"shape {values.shape}, not {expected.shape}"
    wrong = np.argwhere(~((values == expected) | (np.isnan(values) & np.isnan(expected))))
    if not len(wrong):
        return RIGHT
    at = tuple(wrong[0])
    return f"WRONG at {at}: {values[at]}, not {expected[at]}; {len(wrong)} of {values.size}"


def lanes(_: Backend) -> Iterator[Row]:
    """Let lanes part and meet again; every answer is a whole number."""
    for body in BODIES:
        kernel = metal_kernel("lanes", ["x"], ["y"], body.source, body.header)
        verdict = RIGHT
        for seed, group in enumerate(GROUPS * 3):
            values = numbers(1000, seed)
            (got,) = kernel(
                inputs=[mx.array(values)],
                grid=(1000, 1, 1),
                threadgroup=(group, 1, 1),
                output_shapes=[(1000,)],
                output_dtypes=[mx.uint32],
                init_value=0,
            )
            if verdict == RIGHT:
                verdict = compared(got, body.expected(values, group))
        yield Row("lanes", body.name, verdict, f"{len(GROUPS) * 3} launches")


ATTRIBUTES = """
    uint3 p = thread_position_in_grid;
    uint n = (p.z * (uint)GY + p.y) * (uint)GX + p.x;
    threadgroup uint seen[1];
    if (thread_index_in_threadgroup == 0) seen[0] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup atomic_uint* counter = (threadgroup atomic_uint*)seen;
    atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device uint* o = y + n * 16;
    o[0] = thread_index_in_threadgroup; o[1] = thread_index_in_simdgroup; o[2] = simdgroup_index_in_threadgroup;
    o[3] = threads_per_threadgroup.x; o[4] = threads_per_threadgroup.y; o[5] = threads_per_threadgroup.z;
    o[6] = threadgroup_position_in_grid.x; o[7] = threadgroup_position_in_grid.y; o[8] = threadgroup_position_in_grid.z;
    o[9] = thread_position_in_threadgroup.x; o[10] = thread_position_in_threadgroup.y;
    o[11] = thread_position_in_threadgroup.z;
    o[12] = seen[0]; o[13] = simdgroups_per_threadgroup; o[14] = simd_sum(1u); o[15] = threads_per_grid.y;
"""
GRIDS = [((5, 7, 3), (4, 3, 2)), ((100, 1, 1), (64, 1, 1)), ((3, 70000, 1), (2, 8, 1)), ((33, 9, 2), (32, 4, 1))]
GRIDS += [((7, 5, 1), (16, 16, 1)), ((2, 3, 70001), (1, 1, 4)), ((1000, 2, 1), (1000, 1, 1))]


def attributes(grid: tuple[int, int, int], group: tuple[int, int, int]) -> NDArray[np.uint32]:
    """Return what ATTRIBUTES must write, by Metal's dispatchThreads."""
    x, y, z = (axis.ravel() for axis in np.meshgrid(*map(np.arange, grid), indexing="ij"))
    at = [x, y, z]
    place = [axis % each for axis, each in zip(at, group, strict=True)]
    where = [axis // each for axis, each in zip(at, group, strict=True)]
    size = [np.minimum(each, all_ - w * each) for all_, each, w in zip(grid, group, where, strict=True)]
    index = place[0] + size[0] * (place[1] + size[1] * place[2])
    threads = size[0] * size[1] * size[2]
    met = np.minimum(32, threads - index // 32 * 32)
    columns = [index, index % 32, index // 32, *size, *where, *place, threads, -(-threads // 32), met, 0 * x + grid[1]]
    table = np.stack(columns, axis=-1).astype(np.uint32)
    out = np.empty((math.prod(grid), 16), np.uint32)
    out[(z * grid[1] + y) * grid[0] + x] = table
    return out


def grids(_: Backend) -> Iterator[Row]:
    """Run grids with smaller groups at the edge, and with more groups than CUDA takes in y and z."""
    for grid, group in GRIDS:
        kernel = metal_kernel("attributes", ["x"], ["y"], ATTRIBUTES)
        (got,) = kernel(
            inputs=[mx.zeros((8,))],
            template=[("GX", grid[0]), ("GY", grid[1])],
            grid=grid,
            threadgroup=group,
            output_shapes=[(math.prod(grid), 16)],
            output_dtypes=[mx.uint32],
        )
        yield Row("grids", f"grid {grid}, threadgroup {group}", compared(got, attributes(grid, group)))


SUMS = """
    float sums[4];
    for (uint i = 0; i < 4; ++i) sums[i] = simd_sum(x[thread_index_in_simdgroup + i * 32]);
    if (thread_index_in_simdgroup == 0)
        for (uint i = 0; i < 4; ++i) y[i] = sums[i];
"""


def calls(_: Backend) -> Iterator[Row]:
    """Take what MLX's call does around a kernel."""
    given = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = mx.array(given)
    element = "uint i = thread_position_in_grid.x; y[i] = 2 * x[i] + c;"
    double = metal_kernel("double", ["x", "c"], ["y"], element)

    def call(a: mx.array, c: Any = 1.0) -> mx.array:
        made: mx.array = double(
            inputs=[a, c], grid=(a.size, 1, 1), threadgroup=(32, 1, 1), output_shapes=[a.shape], output_dtypes=[a.dtype]
        )[0]
        return made

    yield Row("calls", "a scalar by reference", compared(call(x), 2 * given + 1))
    yield Row("calls", "a view is made contiguous", compared(call(x.T), 2 * given.T + 1))
    yield Row("calls", "a small input", compared(call(x[0]), 2 * given[0] + 1))
    yield Row("calls", "inside mx.compile", compared(mx.compile(lambda a: call(a) + 1)(x), 2 * given + 2))
    try:
        mx.eval(mx.grad(lambda a: call(a).sum())(x))
        told = "no error"
    except (ValueError, RuntimeError) as error:
        told = RIGHT if "Not implemented" in str(error) else f"{type(error).__name__}: {error}"
    yield Row("calls", "mx.grad says that there is none", told)
    try:
        told = compared(mx.vmap(call)(x), 2 * given + 1)
    except (ValueError, RuntimeError, MetalTextError):
        told = RIGHT
    yield Row("calls", "mx.vmap is right or an error", told)
    strided = (
        "uint i = thread_position_in_grid.x; y[i] = x[i / x_shape[1] * x_strides[0] + i % x_shape[1] * x_strides[1]];"
    )
    views = metal_kernel("views", ["x"], ["y"], strided, ensure_row_contiguous=False)
    for name, view, wanted in (("transposed", x.T, given.T), ("sliced", x[1:, ::2], given[1:, ::2])):
        (got,) = views(
            inputs=[view],
            grid=(view.size, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[view.shape],
            output_dtypes=[view.dtype],
        )
        yield Row("calls", f"strides of a view that is {name}", compared(got, np.ascontiguousarray(wanted)))
    half = metal_kernel("half_written", ["x"], ["y"], "uint i = thread_position_in_grid.x; if (i % 2) y[i] = x[i];")
    expected = np.where(np.arange(24) % 2, given.ravel(), np.nan)
    for begin, wanted in ((None, expected), (0.5, np.nan_to_num(expected, nan=0.5))):
        (got,) = half(
            inputs=[x.reshape(-1)],
            grid=(24, 1, 1),
            threadgroup=(8, 1, 1),
            output_shapes=[(24,)],
            output_dtypes=[mx.float32],
            init_value=begin,
        )
        yield Row("calls", f"outputs begin with {begin}", compared(got, wanted.astype(np.float32)))
    sums = metal_kernel("sums", ["x"], ["y"], SUMS)
    rows = np.arange(128, dtype=np.float32)
    (got,) = sums(
        inputs=[mx.array(rows)],
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(4,)],
        output_dtypes=[mx.float32],
    )
    yield Row("calls", "stores of one lane before the end", compared(got, rows.reshape(4, 32).sum(1)))
    unset = "threadgroup float s[40]; uint i = thread_index_in_threadgroup; if (i == 3) s[i] = 1;"
    unset += "threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[i];"
    (got,) = metal_kernel("unset", ["x"], ["y"], unset)(
        inputs=[x], grid=(40, 1, 1), threadgroup=(40, 1, 1), output_shapes=[(40,)], output_dtypes=[mx.float32]
    )
    wanted = np.full(40, np.nan, np.float32)
    wanted[3] = 1
    yield Row("calls", "unwritten threadgroup memory is NaN", compared(got, wanted))


def angles(count: int, seed: int) -> NDArray[np.float32]:
    """Return floats of every size: random bits, and many that are near 1 or moderate."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (1 + rng.normal(0, 1e-3, count // 4)).astype(np.float32)
    spread = [rng.uniform(-most, most, count // 4).astype(np.float32) for most in (1, 10, 100)]
    special = np.array([0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 0.5, 2, 10], np.float32)
    made = np.concatenate([bits, near, *spread, special, (np.arange(1, 9999) * np.pi / 2).astype(np.float32)])
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(made) < 2.0**-126, np.copysign(np.float32(0), made), made)


def last_places(got: NDArray[np.float32], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the errors in units in the last place; denormals are as good as 0."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(2.0**-126))).astype(np.float64)
        error = np.abs(got.astype(np.float64) - wanted) / unit
        fine = (got == rounded) | (np.isnan(got) & np.isnan(wanted))
        fine |= (np.abs(wanted) < 2.0**-126) & (np.abs(got) <= 2.0**-126)
        return np.where(fine, 0.0, np.where(np.isnan(error), np.inf, error))


def functions(_: Backend) -> Iterator[Row]:
    """Compare the functions of <metal_math> with float64 over floats of every size."""
    x, y = angles(400_000, 1), angles(400_000, 2)
    y = y[np.random.default_rng(3).permutation(len(y))]
    for name, (function, most) in FUNCTIONS.items():
        two = name in {"pow", "atan2", "fmod"}
        names = ["x", "y"][: 1 + two]
        arguments = ", ".join(f"{one}[i]" for one in names)
        kernel = metal_kernel(
            f"function_{name}",
            names,
            ["out"],
            f"uint i = thread_position_in_grid.x; out[i] = metal::{name}({arguments});",
        )
        given = [x, y][: 1 + two]
        (got,) = kernel(
            inputs=[mx.array(one) for one in given],
            grid=(len(x), 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[mx.float32],
        )
        with np.errstate(all="ignore"):
            errors = last_places(np.array(got), function(*(one.astype(np.float64) for one in given)))
        at = int(np.argmax(errors))
        told = f"largest error {errors[at]:.2f} units in the last place, at {', '.join(str(one[at]) for one in given)}"
        yield Row("functions", name, RIGHT if errors[at] <= most else f"WRONG: more than {most}", told)


def trellis_products(_: Backend) -> Iterator[Row]:
    """Run the trellis texts in every state width, layout and number of splits."""
    for name, source in (("ours", OURS), ("mlx-bun's", seed_text())):
        if not source:
            continue
        for state_bits, interleave, splits in itertools.product(range(8, 13), (False, True), (1, 4, 30)):
            verdicts = [
                trellis_product(source, state_bits, interleave=interleave, splits=splits, batch=batch, dtype=dtype)
                for batch, dtype in ((1, mx.float32), (3, mx.bfloat16))
            ]
            told = f"L={state_bits}, {'interleaved' if interleave else 'plain'}, {splits} splits"
            yield Row("trellis", f"{name}: {told}", next((v for v in verdicts if v != RIGHT), RIGHT))


def trellis_product(source: str, state_bits: int, *, interleave: bool, splits: int, batch: int, dtype: mx.Dtype) -> str:
    """Run one product and compare it within the bound of tests/impl/test_metal_trellis.py."""
    rng = np.random.default_rng(state_bits)
    words = rng.integers(0, 2**32, (ROWS, COLUMNS // BLOCK, BLOCK * BITS // 32), dtype=np.uint32)
    scales = rng.random(ROWS).astype(np.float32)
    x = mx.array(rng.standard_normal((batch, ROWS)).astype(np.float32)).astype(dtype)
    template: list[tuple[str, Any]] = [("T", dtype), ("K", BITS), ("BT", BLOCK), ("L", state_bits), ("C", COLUMNS)]
    template += [("R", ROWS), ("M", batch), ("SPLITS", splits), ("SG_TG", SIMDGROUPS), ("INTERLEAVE", interleave)]
    (partial,) = metal_kernel("trellis", ["codes", "scales", "x"], ["partial"], source, HEADER)(
        inputs=[mx.array(trellis.lay_out(words, interleave=interleave)), mx.array(scales), x],
        template=template,
        grid=(32 * SIMDGROUPS, COLUMNS // BLOCK // SIMDGROUPS, batch * splits),
        threadgroup=(32 * SIMDGROUPS, 1, 1),
        output_shapes=[(batch, splits, COLUMNS)],
        output_dtypes=[mx.float32],
    )
    matrix, inputs = trellis.decode(words, scales, BITS, state_bits, "1mad"), np.array(x.astype(mx.float32))
    got = np.array(partial).astype(np.float64)
    worst = 0.0
    for split, rows in enumerate(trellis.split_rows(ROWS, splits)):
        part = slice(rows.start, rows.stop)
        bound = len(rows) * 2.0**-24 * trellis.absolute_product(inputs[:, part], matrix[part]) * (1 + 2.0**-10)
        error = np.abs(got[:, split] - trellis.product(inputs[:, part], matrix[part]))
        with np.errstate(invalid="ignore", divide="ignore"):
            worst = max(worst, float(np.max(np.where(error == 0, 0, np.where(np.isnan(error), np.inf, error / bound)))))
    return RIGHT if worst <= 1 else f"WRONG: {worst:.3g} times the bound"


def mlx_lm(backend: Backend) -> Iterator[Row]:
    """Run every kernel of mlx-lm through the package's own functions."""
    from tests.bench.metal_kernels import all_arms, run

    arms, seen_names = all_arms(), Launched(backend)
    with metal_text(seen_names):
        for arm in arms:
            seen_names.names.clear()
            try:
                seen = run(arm, ("forward",))
            except (MetalTextError, RuntimeError, ValueError) as error:
                yield Row("mlx-lm", arm.kernel, f"{type(error).__name__}: {error}"[:300], arm.size)
                continue
            ratio = f"largest error / bound {max(seen.ratios.values(), default=math.nan):.2g}, {arm.size}"
            verdict = RIGHT if not seen.wrong else "WRONG"
            if arm.kernel not in seen_names.names:
                verdict = "the package did not launch it"
            yield Row("mlx-lm", arm.kernel, seen.refused or verdict, ratio)


class Launched:
    """A backend that remembers which kernels ran: packages may take another way, which is right as well."""

    def __init__(self, backend: Backend) -> None:
        """Run on `backend`."""
        self._backend = backend
        self.names: set[str] = set()

    @property
    def name(self) -> str:
        """The backend's."""
        return self._backend.name

    def runner(self, text: Text) -> LaunchedRunner:
        """Return what runs `text`."""
        return LaunchedRunner(self._backend.runner(text), text.name, self.names)


class LaunchedRunner:
    """A kernel that notes its name when it runs."""

    def __init__(self, runner: Runner, name: str, names: set[str]) -> None:
        """Run with `runner`."""
        self._runner, self._name, self._names = runner, name, names

    def compile(self, call: Call) -> None:
        """Compile."""
        self._runner.compile(call)

    def run(self, call: Call) -> tuple[list[mx.array], Report]:
        """Run."""
        self._names.add(self._name)
        return self._runner.run(call)
