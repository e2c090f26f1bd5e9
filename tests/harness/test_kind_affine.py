"""Kind `affine`: what its files may say, its bounds, the shipped cases, and the reference against them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline import affine as baseline
from harness.case.load import load_cases, load_file
from harness.compare import Bound
from harness.errors import CaseFileError
from harness.execute import execute
from harness.kinds.affine import KIND
from harness.kinds.affine.bounds import decode_limit, product_limit, product_roundings, round_trip_limit
from harness.kinds.affine.data import EXACT_LIMIT, make_values
from harness.kinds.affine.schema import AffineGiven
from harness.outcome import Outcome
from harness.subjects.protocol import Affine, AffineArrays, Subject, Unsupported
from harness.subjects.reference.affine import ReferenceAffine
from tests.fakes.cheats import called_twice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "affine"
HEAD = "assay: 1\nkind: affine\ntitle: t\nwhy: w\n"


class OfReference(Subject):
    """The reference's affine quantization alone."""

    def affine(self) -> Affine:
        return ReferenceAffine()


@cache
def shipped() -> tuple[Instance, ...]:
    """Return every third instance of each case, its first among them, and those with times: `assay run` runs all."""
    timed = ("affine/a-block-of-keys", "affine/one-token-through-a-layer", "affine/layer-of-a-model")
    return tuple(load_cases([CASES], wanted=lambda ids: set(ids if ids[0].startswith(timed) else ids[::3])))


def load_text(folder: Path, text: str) -> list[Instance]:
    path = folder / "case.yaml"
    path.write_text(HEAD + text)
    return load_file(path)


def values_of(**given: Any) -> Any:
    return make_values(AffineGiven(**{"bits": 4, "group": 32, "dtype": "float16", **given}))


def test_the_shipped_cases_load() -> None:
    instances = shipped()
    assert 300 <= len(instances) <= 400
    assert sum(bool(one.case.time) for one in instances) == 16  # type: ignore[attr-defined]
    for path in CASES.glob("*.yaml"):
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)


def test_the_reference_passes_every_case_of_the_mode_that_it_has() -> None:
    for instance in shipped():
        result = execute(instance, OfReference())
        case = instance.case
        beyond = case.given.mode != "affine" or "gather" in case.check  # type: ignore[attr-defined]
        want = Outcome.UNSUPPORTED if beyond else Outcome.PASSED
        assert result.outcome is want, (instance.id, result.reason)


def test_every_timed_operation_can_be_called() -> None:
    small = (one for one in shipped() if "layer-of-a-model" not in one.id)
    for instance in (one for one in small if one.case.time):  # type: ignore[attr-defined]
        for operation in instance.case.time:  # type: ignore[attr-defined]
            called_twice(KIND.timed(instance.case, OfReference(), operation, 0))


def test_every_case_can_be_described() -> None:
    by_case = {one.case_name: one for one in shipped()}
    assert all(len(list(KIND.describe(one.case))) >= 8 for one in by_case.values())
    (straddling,) = (
        one
        for one in load_file(CASES / "codes-straddle-words.yaml")
        if one.id == "affine/codes-straddle-words[bits=3,inputs=96]"
    )
    text = "\n".join(KIND.describe(straddling.case))
    assert "W: float32 [3, 96], normal" in text
    assert "planes: packed uint32 [3, 9], scales and biases [3, 3]" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("given: {bits: 4, group: 64, dtype: float16, inputs: 100}\ncheck: [encode]", "write 64 or 128"),
        ("given: {bits: 4, group: 64, dtype: float16, inputs: 32}\ncheck: [encode]", "whole groups of 64; write 64"),
        (
            "given: {bits: 4, group: 32, dtype: float16, outputs: 8, orientation: plain}\ncheck: [matmul]",
            "given.outputs: a row of W has 8 values",
        ),
        ("given: {bits: 7, group: 32, dtype: float16}\ncheck: [encode]", "given.bits: 7 is not valid here"),
        ("given: {bits: 4, group: 32, dtype: float16}\ncheck: [encodes]", "did you mean 'encode'"),
        ("given: {bits: 4, group: 32, dtype: float16}\ncheck: [untouched]", "beside one of those"),
        ("given: {bits: 4, group: 32, dtype: float16}\ncheck: [decode, decode]", "'decode' stands here twice"),
        ("given: {bits: 4, group: 32, dtype: float16, batch: 2}\ncheck: [decode]", "does nothing without a product"),
        ("given: {bits: 4, group: 32, dtype: bfloat16}\ncheck: [matmul]", "nothing could fail; write `x: sparse`"),
        ("given: {bits: 1, group: 32, dtype: bfloat16, x: signs}\ncheck: [matmul]", "a bound for 128 terms"),
        ("given: {bits: 4, group: 32, dtype: float32, data: integers}\ncheck: [matmul]", "write `x: signs`"),
        ("given: {bits: 4, group: 32, dtype: float16, data: full-range}\ncheck: [matmul]", "values overflow"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CaseFileError, match=re.escape(message)) as error:
        load_text(tmp_path, text)
    assert ":5:" in str(error.value) or ":6:" in str(error.value)


def test_sizes_may_be_arithmetic(tmp_path: Path) -> None:
    text = "given: {bits: 4, group: 32, dtype: float16, inputs: 64, batch: inputs + 1}\ncheck: [matmul]"
    (instance,) = load_text(tmp_path, text)
    assert instance.case.given.x_shape() == (65, 64)  # type: ignore[attr-defined]


def test_the_same_seed_makes_the_same_values() -> None:
    one, same, other = values_of(seed=3), values_of(seed=3), values_of(seed=4)
    assert np.array_equal(one.weights, same.weights)
    assert np.array_equal(one.x, same.x)
    assert not np.array_equal(one.weights, other.weights)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_sums_of_whole_numbers_stay_exact(bits: int) -> None:
    values = values_of(bits=bits, dtype="bfloat16", data="integers", x="signs", inputs=512, batch=16)
    codes = baseline.unpack(values.planes.packed, bits).astype(np.float64)
    biases = np.abs(np.repeat(values.planes.biases.astype(np.float64), 32, axis=-1))
    x = np.abs(values.x.astype(np.float64))
    # Whatever order a kernel takes, no partial sum of these is larger than the sum of magnitudes.
    for terms in (codes, biases, np.abs(values.matrix)):
        assert (x @ terms.T).max() <= EXACT_LIMIT
    assert np.array_equal(values.weights.astype(np.float64), values.matrix)
    assert set(np.unique(values.planes.scales.astype(np.float64))) == {-1.0, 1.0}


@pytest.mark.parametrize("data", ["min-dominates", "max-dominates", "symmetric", "negative", "large", "between-codes"])
def test_data_keep_their_extremes_in_every_group(data: str) -> None:
    values = values_of(data=data, outputs=4, inputs=256)
    groups = values.weights.astype(np.float64).reshape(4, 8, 32)
    spans = {(low, high) for low, high in zip(groups.min(-1).flat, groups.max(-1).flat, strict=True)}
    expected = {
        "min-dominates": {(-3, 1)},
        "max-dominates": {(-1, 3)},
        "symmetric": {(-1, 1)},
        "negative": {(-2, -1)},
        "large": {(0, 32752), (-32752, 0)},
        "between-codes": {(-15, 0)},
    }
    assert spans == expected[data]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_bounds_hold_for_arithmetic_in_the_storage_dtype(bits: int, dtype: str) -> None:
    for seed, data in enumerate(["normal", "min-dominates", "symmetric", "negative", "tiny", "between-codes"]):
        values = values_of(bits=bits, dtype=dtype, data=data, inputs=64, batch=3, x="sparse", seed=seed)
        decoded = in_steps(values.planes)
        assert Bound(decode_limit(values.planes)).check(values.matrix, decoded) is None
        limit = round_trip_limit(values.weights, values.planes)
        assert Bound(limit).check(values.weights.astype(np.float64), decoded) is None
        sums = np.zeros((3, 8), values.x.dtype)
        for column in range(64):
            sums = sums + values.x[:, column, np.newaxis] * decoded[:, column]
        expected = baseline.product(values.x, values.matrix, transpose=True)
        assert Bound(product_limit(values.x, values.planes, transpose=True)).check(expected, sums) is None


def in_steps(planes: AffineArrays) -> NDArray[Any]:
    """Decode in the dtype of the scales, each step rounded."""
    codes = baseline.unpack(planes.packed, planes.bits).astype(planes.scales.dtype)
    scales, biases = (np.repeat(plane, planes.group_size, axis=-1) for plane in (planes.scales, planes.biases))
    return codes * scales + biases


def test_a_wrong_step_exceeds_the_bounds() -> None:
    values = values_of(bits=4, outputs=4, inputs=64, x="one-hot")
    limit = decode_limit(values.planes)
    steps = np.repeat(np.abs(values.planes.scales.astype(np.float64)), 32, axis=-1)
    assert (limit < steps / 50).all()
    assert (product_limit(values.x, values.planes, transpose=True) == limit[:, 0]).all()
    assert (round_trip_limit(values.weights, values.planes) < 1.02 * steps).all()
    assert product_roundings(124, "bfloat16") < 1 <= product_roundings(125, "bfloat16")


class Refusing(Affine):
    """Has no codes of 3 bits, and none at all of 5."""

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        if planes.bits == 3:
            raise Unsupported("no codes of 3 bits")
        raise IndexError("out of range")


class OfRefusing(Subject):
    """A subject that offers only what Refusing does."""

    def affine(self) -> Affine:
        return Refusing()


def test_what_a_subject_does_not_offer_is_unsupported_and_an_accident_is_not() -> None:
    by_bits = {one.id.split("bits=")[1][0]: one for one in load_file(CASES / "decode-every-format.yaml")}
    missing, broken = execute(by_bits["3"], OfRefusing()), execute(by_bits["5"], OfRefusing())
    assert (missing.outcome, missing.reason) == (Outcome.UNSUPPORTED, "dequantize: no codes of 3 bits")
    assert broken.outcome is Outcome.ERRORED
    assert "dequantize raised IndexError: out of range" in broken.reason
