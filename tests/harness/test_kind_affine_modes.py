"""Kind `affine` beyond mode affine: views, microscaling bounds, picked matrices, and what files may say of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from harness.baseline import microscaling as baseline
from harness.case.load import load_file
from harness.compare import Bound
from harness.dtypes import numpy_dtype
from harness.errors import CaseFileError
from harness.kinds.affine import KIND
from harness.kinds.affine.bounds import product_limit
from harness.kinds.affine.data import EXACT_LIMIT, make_values
from harness.kinds.affine.layouts import laid_out
from harness.kinds.affine.matrices import decoded, magnitudes, mapped
from harness.kinds.affine.microscaling import decode_limit, round_trip_limit, scale_slack, underflow_limit
from harness.kinds.affine.schema import AffineGiven
from harness.subjects.arrays import to_numpy
from harness.subjects.views import to_mlx_view

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.subjects.protocol.affine import MicroscalingArrays

HEAD = "assay: 1\nkind: affine\ntitle: t\nwhy: w\n"
MODES = ("mxfp4", "mxfp8", "nvfp4")
VIEWS = ("transposed", "sliced", "stride-0", "contiguous", "heads-last")


def values_of(**given: Any) -> Any:
    return make_values(AffineGiven.model_validate({"dtype": "float32", "outputs": 4, "inputs": 64, **given}))


def load_text(folder: Path, text: str) -> list[Instance]:
    path = folder / "case.yaml"
    path.write_text(HEAD + text)
    return load_file(path)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint32", "uint8"])
def test_a_view_has_the_same_numbers_and_no_contiguous_memory(view: str, dtype: str) -> None:
    one = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) % 100
    array = one.astype(numpy_dtype(dtype))
    if view == "stride-0":
        array = np.broadcast_to(array[:1], array.shape).copy()
    view_of = laid_out(array, view)
    assert np.array_equal(view_of, array)
    assert view_of.flags.writeable
    assert not np.shares_memory(view_of, array)
    assert view_of.flags.c_contiguous == (view == "contiguous")
    assert (view_of.strides[0] == 0) == (view == "stride-0")
    # MLX gets the very strides.
    there = to_mlx_view(view_of)
    assert np.array_equal(to_numpy(there), array)
    if dtype != "bfloat16":
        assert np.asarray(there).strides == view_of.strides


def test_the_strides_in_mlx_are_those_it_makes_itself() -> None:
    array = mx.arange(24, dtype=mx.float32).reshape(4, 6)
    theirs = array.T
    mx.eval(theirs)
    ours = to_mlx_view(np.arange(24, dtype=np.float32).reshape(4, 6).T)
    assert np.asarray(ours).strides == np.asarray(theirs).strides
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))


def test_what_lies_around_a_slice_is_no_number() -> None:
    view = laid_out(np.ones((2, 3), np.float32), "sliced")
    before = np.lib.stride_tricks.as_strided(view, (2, 4), view.strides)[:, 3]
    assert np.isnan(before).all()
    assert laid_out(np.zeros((2, 3), np.uint8), "sliced").base is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_right_encoders_are_within_their_bounds_and_the_next_code_is_not(mode: str, dtype: str) -> None:
    for seed, data in enumerate(["normal", "symmetric", "negative", "constant"]):
        values = values_of(mode=mode, dtype=dtype, data=data, seed=seed)
        planes: MicroscalingArrays = values.planes
        distance, allowed = scale_slack(values.weights, planes)
        assert (distance <= allowed).all()
        for other in (1, 255) if mode != "nvfp4" else (2, 254):

            def move(name: str, array: NDArray[Any], by: int = other) -> NDArray[Any]:
                return array + np.uint8(by) if name == "scales" else array

            moved = mapped(planes, move)
            distance, allowed = scale_slack(values.weights, moved)
            # A scale next to the right one may do where the right one is nearly halfway.
            assert (distance > allowed).mean() > 0.8
        limit = round_trip_limit(values.weights, planes)
        exact = values.weights.astype(np.float64)
        assert (np.abs(decoded(planes) - exact) <= limit).all()
        flipped = mapped(planes, lambda name, array: array ^ np.uint32(1) if name == "packed" else array)
        wrong = np.abs(decoded(flipped) - exact) > limit
        # Only the first code of each word was changed.
        codes = 32 // planes.bits
        assert wrong[..., ::codes].mean() > 0.8
        assert not wrong.reshape(-1, codes)[:, 1:].any()


@pytest.mark.parametrize("mode", MODES)
def test_decoded_numbers_fit_into_every_dtype(mode: str) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        values = values_of(mode=mode, dtype=dtype, data="codes", inputs=256)
        stored = values.matrix.astype(numpy_dtype(dtype)).astype(np.float64)
        limit = decode_limit(values.planes, numpy_dtype(dtype))
        assert np.isfinite(stored).all()
        assert Bound(limit).check(values.matrix, stored) is None
        # Except for what is subnormal in float16 every number must be exact.
        assert (limit == 0).mean() > (0.95 if dtype == "float16" else 0.9999)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transpose", [True, False])
def test_product_bounds_hold_for_either_order_of_scaling(mode: str, *, transpose: bool) -> None:
    orientation = "transposed" if transpose else "plain"
    for dtype in ("float16", "bfloat16"):
        values = values_of(
            mode=mode, dtype=dtype, data="codes", outputs=64, x="sparse", batch=2, orientation=orientation
        )
        form = baseline.FORMATS[mode]
        scales = np.repeat(form.scales[values.planes.scales], form.group_size, axis=-1).astype(numpy_dtype(dtype))
        matrix = values.matrix.T if transpose else values.matrix
        scales = scales.T if transpose else scales
        elements = (matrix / scales.astype(np.float64)).astype(numpy_dtype(dtype))
        sums = np.zeros((2, 64), numpy_dtype(dtype))
        for k in range(64):
            # x scale first, in the dtype, as the plain orientation of MLX does it.
            sums = sums + values.x[:, k, np.newaxis] * scales[k] * elements[k]
        limit = product_limit(values.x, values.planes, transpose=transpose)
        expected = values.x.astype(np.float64) @ matrix
        assert Bound(limit).check(expected, sums) is None
        assert Bound(limit).check(expected, 1.3 * expected) is not None


def test_what_underflows_before_it_meets_its_element_is_allowed_for() -> None:
    given = {"mode": "mxfp8", "dtype": "float16", "data": "codes", "outputs": 32, "x": "sparse", "batch": 4}
    values = values_of(**given)
    small = (values.x.astype(np.float64) * 2.0**-13).astype(np.float16)
    form = baseline.FORMATS["mxfp8"]
    scales = np.repeat(form.scales[values.planes.scales], form.group_size, axis=-1)
    sums = np.zeros((4, 32))
    for k in range(64):
        # Rounded to a step of 2^-24 here and there.
        scaled = (small[:, k, np.newaxis].astype(np.float64) * scales[:, k]).astype(np.float16).astype(np.float64)
        sums += scaled * (values.matrix / scales)[:, k]
    limit = product_limit(small, values.planes, transpose=True)
    expected = small.astype(np.float64) @ values.matrix.T
    assert Bound(limit).check(expected, sums) is None
    without = limit - underflow_limit(small, values.planes, transpose=True)
    assert Bound(without).check(expected, sums) is not None


def test_zero_is_not_nearest_to_what_is_beyond_the_largest_number() -> None:
    for dtype in ("float32", "bfloat16"):
        values = values_of(mode="nvfp4", dtype=dtype, data="beyond-range")
        sizes = np.abs(values.weights.astype(np.float64))
        limit = round_trip_limit(values.weights, values.planes)
        assert (np.abs(decoded(values.planes)) == 2688).all()
        assert (sizes - 2688 <= limit).all()
        assert (limit < sizes - 2000).all()


@pytest.mark.parametrize("mode", [*MODES, "plain"])
def test_whole_numbers_stay_exact_in_every_mode(mode: str) -> None:
    values = values_of(mode=mode, dtype="bfloat16", data="integers", x="signs", inputs=512, batch=16)
    assert np.array_equal(values.matrix, np.rint(values.matrix))
    assert np.array_equal(values.weights.astype(np.float64), values.matrix)
    assert (np.abs(values.x.astype(np.float64)) @ magnitudes(values.planes).T).max() <= EXACT_LIMIT
    assert len(np.unique(values.matrix)) > 8
    if mode != "plain":
        assert len(np.unique(values.planes.scales)) == 2


def test_indices_say_what_their_words_promise() -> None:
    sizes = {"bits": 4, "group": 32, "stack": 3, "repeats": 6, "data": "integers"}
    anything = values_of(**sizes, picks=8, indices="any", seed=2)
    assert anything.blocks.shape == anything.picks.shape == (8,)
    assert anything.picks[0] == anything.picks[1]
    assert (np.diff(anything.picks.astype(int)) < 0).any()
    in_order = values_of(**sizes, picks=6, indices="sorted")
    assert in_order.blocks.tolist() == list(range(6))
    assert (np.diff(in_order.picks.astype(int)) >= 0).all()
    experts = values_of(**sizes, picks=2, indices="experts")
    assert experts.x.shape == (6, 1, 1, 64)
    assert experts.blocks.tolist() == [[block, block] for block in range(6)]
    assert experts.picks.shape == (6, 2)


def test_what_shares_a_place_is_equal() -> None:
    values = values_of(bits=4, group=32, views="stride-0", batch=3)
    assert (values.weights == values.weights[:1]).all()
    assert (values.x == values.x[:1]).all()
    assert (values.planes.packed == values.planes.packed[:1]).all()


def test_cases_of_all_modes_can_be_described(tmp_path: Path) -> None:
    text = (
        "given: {mode: nvfp4, dtype: float16, inputs: 64, stack: 3, repeats: 2, picks: 4, data: integers, x: signs}\n"
        "check: [gather]"
    )
    (one,) = load_text(tmp_path, text)
    lines = "\n".join(KIND.describe(one.case))
    assert "mode: nvfp4; in memory: contiguous" in lines
    assert "planes: packed uint32 [3, 8, 8], scales uint8 [3, 8, 4]" in lines
    assert "product: x @ W.T, [4, 1, 8]" in lines
    assert re.search(r"matrices: [012] [012] [012] [012]$", lines, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("given: {dtype: float16}\ncheck: [encode]", "given: the key 'bits' is missing"),
        ("given: {mode: mxfp4, bits: 8, dtype: float16}\ncheck: [encode]", "mode mxfp4 has no bits 8; leave it out"),
        ("given: {mode: nvfp4, group: 32, dtype: float16}\ncheck: [encode]", "has no group 32; leave it out"),
        ("given: {bits: 4, group: 16, dtype: float16}\ncheck: [encode]", "mode affine has no group 16; write 32, 64"),
        (
            "given: {mode: mxfp3, dtype: float16}\ncheck: [encode]",
            "given.mode: 'mxfp3' is not valid here; did you mean",
        ),
        ("given: {mode: nvfp4, dtype: float16, inputs: 40}\ncheck: [encode]", "whole groups of 16; write 32 or 48"),
        ("given: {mode: plain, dtype: float16}\ncheck: [encode]", "a plain matrix is only picked"),
        ("given: {mode: mxfp4, dtype: float16}\ncheck: [encode]\ntime: [quantize]", "only mode affine is timed"),
        (
            "given: {bits: 4, group: 32, dtype: float16, data: codes}\ncheck: [decode]",
            "no codes that stand for numbers",
        ),
        ("given: {mode: mxfp4, dtype: float32, data: beyond-range}\ncheck: [encode]", "only nvfp4 has a largest"),
        (
            "given: {bits: 4, group: 32, dtype: float16, picks: 2}\ncheck: [encode]",
            "does nothing without `check: [gather",
        ),
        ("given: {bits: 4, group: 32, dtype: float16}\ncheck: [gather]", "needs the key `picks`"),
        (
            "given: {bits: 4, group: 32, dtype: float16, repeats: 3, picks: 2, indices: sorted}\ncheck: [gather]",
            "given.picks: each of 3 blocks of x is taken once; write 3",
        ),
        ("given: {bits: 4, group: 32, dtype: float16, picks: 2}\ncheck: [gather, matmul]", "write a case of its own"),
        ("given: {bits: 4, group: 32, dtype: float16, views: sideways}\ncheck: [encode]", "given.views: 'sideways'"),
        (
            "given: {bits: 4, group: 32, dtype: float16, outputs: 1, views: stride-0}\ncheck: [encode]",
            "nothing has several entries to share",
        ),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CaseFileError, match=re.escape(message)):
        load_text(tmp_path, text)
