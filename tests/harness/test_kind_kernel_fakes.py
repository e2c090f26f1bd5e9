"""Every mistake that people make in kernels, put into the text of a shipped case, must fail that case."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from harness.case.load import load_file
from harness.execute import execute
from harness.outcome import Outcome, Result
from harness.subjects.protocol import KernelAnswer, KernelLaunch, Kernels, KernelText, Subject
from harness.subjects.reference.kernel import ReferenceKernels
from impl.metal.cpu import TIME_LIMIT_VARIABLE

if TYPE_CHECKING:
    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "kernel"
KERNELS = ReferenceKernels()


class OnThisMachine(Subject):
    """The reference's kernels alone, compiled once for all tests."""

    kernels: ClassVar[Kernels] = KERNELS

    def kernel(self) -> Kernels:
        return self.kernels


@pytest.fixture(autouse=True)
def _time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # A mistake may be to never end.
    monkeypatch.setenv(TIME_LIMIT_VARIABLE, "5")


@cache
def instances_of(case: str) -> dict[str, Instance]:
    return {one.id.partition("[")[2].rstrip("]"): one for one in load_file(CASES / f"{case}.yaml")}


def changed(instance: Instance, **given: Any) -> Instance:
    """Return the instance with other values in `given`."""
    from dataclasses import replace

    case = instance.case
    whole = case.given.model_copy(update=given)  # type: ignore[attr-defined]  # of this kind
    return replace(instance, case=case.model_copy(update={"given": whole}))


def run_with(case: str, which: str, *edits: tuple[str, str], **given: Any) -> Result:
    """Run an instance with other text."""
    instance = instances_of(case)[which]
    source, header = instance.case.given.source, instance.case.given.header  # type: ignore[attr-defined]
    for old, new in edits:
        assert old in source + header, f"the case does not say {old!r} any more"
        source, header = source.replace(old, new), header.replace(old, new)
    return execute(changed(instance, source=source, header=header, **given), OnThisMachine())


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"

MISTAKES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "reads its neighbor": ("exponential-of-every-size", "n=33,group=32", [("x[i]", "x[i + 1]")]),
    "writes one place further": ("exponential-of-every-size", "n=33,group=32", [("y[i] =", "y[i + 1] =")]),
    "computes halves in float": (
        "rounding-after-every-operation",
        "dtype=float16,n=96",
        [
            ("T product = a[i] * b[i];", "float product = float(a[i]) * b[i];"),
            ("T sum", "float sum"),
            ("+ c[i]", "+ float(c[i])"),
        ],
    ),
    "takes int for the operand": ("bit-functions", "dtype=uint8,bits=8", [("clz(v)", "clz(uint(v))")]),
    "converts in the place of as_type": ("as-type-keeps-bits", "", [("as_type<uint>(x[i])", "uint(x[i])")]),
    "swaps the halves of a pair": (
        "as-type-keeps-bits",
        "",
        [("half2(half(x[i]), half(1))", "half2(half(1), half(x[i]))")],
    ),
    "writes while it swizzles": ("swizzles", "quads=8", [("v.zw = v.yx;", "v.z = v.y; v.y = v.x; v.w = v.y;")]),
    "divides as Python does": (
        "integer-division-and-shifts",
        "dtype=int32",
        [("a[i] % b[i]", "((a[i] % b[i]) + b[i]) % b[i]")],
    ),
    "shuffles the other way": (
        "simdgroup-shuffles",
        "dtype=uint32",
        [("simd_shuffle_up(v, 3)", "simd_shuffle_down(v, 3)")],
    ),
    "sums inclusively": ("simdgroup-prefix-sums", "n=33", [("simd_prefix_exclusive_sum", "simd_prefix_inclusive_sum")]),
    "counts full simdgroups": (
        "simdgroup-reductions",
        "dtype=float32,n=65",
        [("i / 32", "threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup")],
    ),
    "has no barrier": ("reversal-through-threadgroup-memory", "group=64", [(BARRIER, "")]),
    "trusts in step": ("tree-reduction", "rows=1,n=1000", [(BARRIER + "\n}", "}")]),
    "shares too early": ("softmax-of-rows", "dtype=float32,columns=300", [("shared[1]);\n" + BARRIER, "shared[1]);")]),
    "loses digits of the variance": (
        "layer-norm",
        "columns=96,dtype=float32,low=1000",
        [
            ("variance += away * away;", "variance += float(in[k]) * float(in[k]);"),
            ("simd_sum(variance) / columns + eps", "simd_sum(variance) / columns - mean * mean + eps"),
        ],
    ),
    "guards with the wrong side": (
        "transposition-in-tiles",
        "height=31,width=65",
        [("row < width && column < height", "row < height && column < width")],
    ),
    "leaves bins as they are": (
        "histogram-in-threadgroup-memory",
        "n=1000",
        [("atomic_store_explicit(&bins[lane], 0, memory_order_relaxed);", "")],
    ),
    "takes the last of the best": (
        "argmax-with-ties",
        "columns=96",
        [("simd_min(best == most ? where : 0xffffffffu)", "simd_max(best == most ? where : 0)")],
    ),
    "keeps no barrier after the sums": (
        "scan-of-a-block",
        "n=700",
        [("before += sums[s];\n  " + BARRIER, "before += sums[s];")],
    ),
    "reads codes from the top": ("int4-product", "n=7,k=64", [("(4 * j)", "(28 - 4 * j)")]),
    "has no work for seven rows": (
        "int4-product",
        "n=7,k=64",
        [("if (lane == 0)", "if (lane == 0 && row / 2 * 2 + 1 < uint(w_shape[0]))")],
    ),
    "takes negative indices as they are": (
        "gather-and-scatter",
        "n=33",
        [("if (row < 0) row += x_shape[0];", "row = row & 7;\nif (index[at.y] < 0) row = 0;")],
    ),
    "counts the rounds of others": (
        "barriers-in-a-loop-of-unknown-length",
        "blocks=1",
        [("steps++;", "steps = rounds;")],
    ),
    "loads the other way round": ("simdgroup-matrix-product", "tiles=2,dtype=float32", [(", ulong2(0, 0), true", "")]),
    "forgets the overload": (
        "templates-and-overloads",
        "dtype=float32,times=1,sign=1",
        [("twice(int(i))", "twice(float(i))")],
    ),
    "takes strides for granted": (
        "strided-inputs",
        "view=transposed,dtype=float32,rows=7",
        [("x[row * x_strides[0] + column * x_strides[1]]", "x[i]")],
    ),
    "swaps the axes of the strides": (
        "strided-inputs",
        "view=sliced,dtype=uint8,rows=7",
        [("row * x_strides[0] + column * x_strides[1]", "row * x_strides[1] + column * x_strides[0]")],
    ),
    "shares what is each thread's own": (
        "pointers-to-helpers",
        "n=32",
        [
            ("float own[4];", "threadgroup float own[4];"),
            ("thread float* out", "threadgroup float* out"),
            ("total(own)", "(own[0] + own[1] + own[2] + own[3])"),
        ],
    ),
    "takes the full size at the border": (
        "grids-of-three-axes",
        "x=5,y=3,z=2",
        [("size = threads_per_threadgroup", "size = dispatch_threads_per_threadgroup")],
    ),
    "clears what it does not write": (
        "what-outputs-hold-before",
        "init=3,dtype=int32",
        [("if (x[i] % 3 == 0) y[i] = T(x[i]);", "y[i] = x[i] % 3 == 0 ? T(x[i]) : T(0);")],
    ),
    "overwrites the tile": (
        "tiled-matrix-product",
        "rows=8,inner=33,columns=17",
        [("}\n  " + BARRIER + "\n}", "}\n}")],
    ),
    "leaves partial tiles alone": (
        "tiled-matrix-product",
        "rows=8,inner=7,columns=8",
        [
            (
                "left[at.y][at.x] = row < M && k < K ? float(a[row * K + k]) : 0;",
                "if (row < M && k < K) left[at.y][at.x] = float(a[row * K + k]);",
            )
        ],
    ),
    "has the angle in half": (
        "rotary-embedding",
        "heads=1,channels=64,position=4001",
        [("float angle =", "half angle =")],
    ),
    "passes scalars on unsigned": (
        "scalars-beside-arrays",
        "shift=-7",
        [("shift < 0", "uint(shift) > 7u && shift > 0")],
    ),
}


def test_what_is_not_changed_passes() -> None:
    tried = {(case, which) for case, which, _ in MISTAKES.values()}
    for case, which in sorted(tried):
        result = run_with(case, which)
        assert result.outcome is Outcome.PASSED, (case, which, result.reason)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_fails_its_case(name: str) -> None:
    case, which, edits = MISTAKES[name]
    result = run_with(case, which, *edits)
    assert result.outcome is Outcome.FAILED, result.reason
    assert result.findings[0].check in ("output", "lane-order")


def test_a_grid_that_is_rounded_down_leaves_the_tail() -> None:
    result = run_with("exponential-of-every-size", "n=65,group=32", grid=[64])
    found = result.findings[0]
    assert (found.where, found.actual) == ("y[64]", "no thread wrote it")


def test_a_guard_that_is_off_by_one_writes_behind_the_end() -> None:
    edits = ("y[i] = metal::exp(x[i]);", "if (i > uint(x_shape[0])) return;\ny[i] = metal::exp(x[i]);")
    result = run_with("exponential-of-every-size", "n=65,group=32", edits, grid=[96])
    assert result.findings[0].where == "y, element 65 of 65"
    edits = (edits[0], edits[1].replace("i > ", "i >= "))
    assert run_with("exponential-of-every-size", "n=65,group=32", edits, grid=[96]).outcome is Outcome.PASSED


def test_a_missing_barrier_shows_in_another_lane_order() -> None:
    # In ascending order the lane below has always written already.
    edits = (
        (BARRIER, ""),
        ("shared[size - 1 - lane]", "shared[size - 1 - (lane & ~31u)] * 0 + shared[lane - (lane > 0)]"),
    )
    chained = (edits[1][0], "shared[lane - (lane > 0)]")
    result = run_with("reversal-through-threadgroup-memory", "group=33", edits[0], chained)
    assert result.outcome is Outcome.FAILED


def test_a_kernel_that_writes_into_its_input_is_seen() -> None:
    edits = ("y[i] =", "((device float*)x)[i] = 1;\ny[i] =")
    result = run_with("exponential-of-every-size", "n=33,group=32", edits)
    assert result.outcome is Outcome.FAILED


def test_a_runner_that_keeps_kernels_by_name_is_seen() -> None:
    class ByName(ReferenceKernels):
        """Takes the first kernel of a name for all of them."""

        def __init__(self) -> None:
            super().__init__()
            self.first: dict[str, KernelText] = {}

        def launch(self, text: KernelText, launch: KernelLaunch, *, lane_order: str | None = None) -> KernelAnswer:
            return super().launch(self.first.setdefault(text.name, text), launch, lane_order=lane_order)

    class Wrong(OnThisMachine):
        """Has these kernels."""

        kernels: ClassVar[Kernels] = ByName()

    for instance in instances_of("two-kernels-of-one-name").values():
        assert execute(instance, Wrong()).outcome is Outcome.FAILED
        assert execute(instance, OnThisMachine()).outcome is Outcome.PASSED


def test_a_text_that_does_not_compile_is_told_with_its_line() -> None:
    result = run_with("exponential-of-every-size", "n=33,group=32", ("metal::exp", "metal::expp"))
    assert result.outcome is Outcome.ERRORED
    assert "source:2:" in result.reason
    assert "expp" in result.reason


def test_metal_that_is_not_covered_is_unsupported_and_not_wrong() -> None:
    declared = ("metal::exp(x[i])", "metal::exp(x[i]);\ntexture2d<float> t")
    result = run_with("exponential-of-every-size", "n=33,group=32", declared)
    assert result.outcome is Outcome.UNSUPPORTED
    assert "texture" in result.reason
