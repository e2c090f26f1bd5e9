"""What an observation holds, and what is said when an answer here differs from it, or when its file is wrong."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from harness.baseline import affine as naive_affine
from harness.case.load import load_file
from harness.compare import Bound, Exact, Lsb, Nmse, Ulp
from harness.errors import RecordingError
from harness.execute import execute
from harness.kinds import KIND_NAMES
from harness.kinds.affine.layouts import laid_out
from harness.outcome import Observed, Outcome
from harness.recording.policies import DEFAULTS, describe, policy_of
from harness.recording.replay import Recorded, read_observation
from harness.recording.tensors import pack, unpack
from harness.recording.values import ValueWriter, read_value
from harness.subjects.protocol import (
    AffineArrays,
    AffineStorage,
    Answer,
    PlainArrays,
    RingSpec,
    RowsApart,
    Unsupported,
)
from harness.subjects.reference import Reference
from tests.fakes.mixed import NaiveMixed, NaiveRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.outcome import Result
    from harness.subjects.protocol import Subject

    Calls = list[dict[str, Any]]
    Tensors = dict[str, NDArray[Any]]

CASES = Path(__file__).parents[2] / "cases"
# A case of a kind that shows more than its first one: arrays of every sort.
SAMPLES = {
    "affine": "affine/encode-every-format",
    "attention": "attention/padding-queries-are-finite",
    "donor": "donor/lent-to-layers-that-take-plain-arrays",
    "recurrent": "recurrent/prefill-in-chunks",
    "ring": "ring/crossing-in-the-middle-of-everything",
    "trellis": "trellis/splits-cover-every-row",
}
RING = """
assay: 1
kind: ring
title: A title
why: A reason
given: {window: 4, head_dim: 64, kv_heads: 1, dtype: float32, storage: affine8x32, seed: 5}
steps:
  - append: 3
  - decode: 3
  - trim: 1
check: [visible, stored, attention, positions]
"""


@dataclass(frozen=True)
class Kept:
    """An instance with the file that an observation of it made."""

    instance: Instance
    data: bytes


@cache
def ring() -> Kept:
    return kept(RING, NaiveMixed())


def kept(text: str, subject: Subject) -> Kept:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(text)
        [instance] = load_file(path)
    return observed(instance, subject)


def observed(instance: Instance, subject: Subject) -> Kept:
    result = execute(instance, subject, observe=True)
    assert result.outcome is Outcome.PASSED, result
    assert isinstance(result, Observed)
    return Kept(instance, result.file)


def against(tmp_path: Path, recorded: Kept, subject: Subject, data: bytes | None = None, **changes: str) -> Result:
    path = tmp_path / "observation.safetensors"
    path.write_bytes(recorded.data if data is None else data)
    sha256 = changes.pop("sha256", hashlib.sha256(path.read_bytes()).hexdigest())
    return execute(recorded.instance, subject, against=Recorded(path, sha256, **changes))


def altered(recorded: Kept, change: Callable[[Calls, Tensors], object]) -> bytes:
    """Return a whole file that says something else."""
    tensors, metadata = unpack(recorded.data, "a file")
    calls = json.loads(metadata["calls"])
    change(calls, tensors)
    return pack(tensors, {**metadata, "calls": json.dumps(calls)})


def leaves(value: Any) -> Iterator[tuple[dict[str, Any], tuple[str, str]]]:
    """Yield the JSON of every array, with the dataclass and field that it stands in."""
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict) and item.get("$") == "array":
                yield item, (str(value.get("$")), key)
            yield from leaves(item)


# Kernels run compiled text, which should not happen in this process: test_recording_folder records them.
@pytest.mark.parametrize("kind", [kind for kind in KIND_NAMES if kind != "kernel"])
def test_every_kind_is_recorded_and_repeated_here(tmp_path: Path, kind: str) -> None:
    named = SAMPLES.get(kind)
    path = CASES / f"{named}.yaml" if named else min((CASES / kind).glob("*.yaml"))
    instance = load_file(path)[-1]
    recorded = observed(instance, Reference())
    result = against(tmp_path, recorded, Reference())
    assert result.outcome is Outcome.PASSED, result
    assert result.comparisons >= 1
    # Whoever adds a computed array to a protocol says by `judged_by` how far it may be off.
    tensors, metadata = unpack(recorded.data, "a file")
    found = [
        (call["call"], place, policy_of(leaf, tensors[leaf["tensor"]], np.zeros(()), place))
        for call in json.loads(metadata["calls"])
        for leaf, place in leaves({"$": "call", "result": call.get("result")})
    ]
    assert [where for *where, policy in found if policy is None] == []


def test_an_observation_can_be_read_without_us() -> None:
    """The format is a promise: whoever changes it counts VERSION up."""
    tensors, metadata = unpack(ring().data, "a file")
    assert (metadata["format"], metadata["version"]) == ("assay-observation", "1")
    first, second, *_, last = json.loads(metadata["calls"])
    assert (first["on"], first["call"], first["during"]) == (0, "ring", "opening the cache")
    assert (
        first["given"]["spec"] | {"window": 4, "storage": {"$": "AffineStorage", "bits": 8, "group_size": 32}}
        == (first["given"]["spec"])
    )
    assert first["result"] == {"$": "object", "number": 1}
    assert (second["on"], second["call"], second["during"]) == (1, "append", "step 1 (append 3)")
    assert second["given"]["keys"] == {"$": "array", "tensor": "1.keys"}
    assert tensors["1.keys"].shape == (1, 1, 3, 64)
    assert second["result"]["keys"]["parts"][0]["packed"]["tensor"] == "1.result.keys.parts.0.packed"
    limit = tensors[second["result"]["output"]["policy"]["limit"]]
    assert limit.dtype == np.float32
    assert 0 < limit.max() < 1e-2
    assert (last["call"], last["result"]) == ("rope_offsets", [5])
    assert not {"handed_out", "remarks"} & {call["call"] for call in json.loads(metadata["calls"])}


def test_equal_tensors_are_kept_once() -> None:
    writer = ValueWriter(lambda _: 0)
    array = np.arange(4, dtype=np.float32)
    written = writer.write([array, array.copy(), array.reshape(2, 2)], "x")
    assert [leaf["tensor"] for leaf in written] == ["x.0", "x.0", "x.2"]
    assert list(writer.tensors) == ["x.0", "x.2"]


def test_what_is_kept_does_not_change_with_the_array() -> None:
    writer = ValueWriter(lambda _: 0)
    array = np.zeros(3, np.float32)
    writer.write(array, "x")
    array[:] = 7
    assert writer.tensors["x"].tolist() == [0, 0, 0]


def test_values_come_back_as_they_were() -> None:
    plain = PlainArrays(np.ones((1, 1, 2, 4), ml_dtypes.bfloat16))
    planes = AffineArrays(np.ones((1, 1), np.uint32), np.ones(1, np.float16), np.ones(1, np.float16), 32, 4)
    spec = RingSpec(4, 1, 1, 1, 64, 64, "float32", AffineStorage(4, 32), 0, crossing=(3, 4))
    value = [
        None, True, 3, 0.5, float("inf"), np.dtype(ml_dtypes.bfloat16), spec, {"a": [1, 2]},
        Answer(RowsApart((plain, planes)), plain, "causal", None),
    ]  # fmt: skip
    writer = ValueWriter(lambda _: 0)
    text = json.dumps(writer.write(value, "v"))
    tensors, _ = unpack(pack(writer.tensors, {}), "a file")
    back = read_value(json.loads(text), tensors, {}, "v")
    assert back[:8] == value[:8]
    answer = back[8]
    assert isinstance(answer, Answer)
    assert answer.mask == "causal"
    assert isinstance(answer.keys, RowsApart)
    assert answer.keys.parts[0].data.dtype == ml_dtypes.bfloat16  # type: ignore[union-attr]  # the plain one
    assert isinstance(answer.keys.parts[1], AffineArrays)


def flip(name: str, bit: int = 0, index: int = 0) -> Callable[[Calls, Tensors], None]:
    def change(_: Calls, tensors: Tensors) -> None:
        raw = tensors[name].view(f"u{tensors[name].dtype.itemsize}").reshape(-1)
        raw[index] ^= raw.dtype.type(1 << bit)

    return change


def code(name: str, by: int, places: int = 1) -> Callable[[Calls, Tensors], None]:
    """Change some codes of packed 8-bit words that are neither the least nor the largest."""

    def change(_: Calls, tensors: Tensors) -> None:
        codes = tensors[name].view(np.uint8).reshape(-1)
        inner = np.flatnonzero((codes > 4) & (codes < 250))[:places]
        codes[inner] += np.uint8(by)

    return change


def shifted(name: str, factor: float) -> Callable[[Calls, Tensors], None]:
    """Move an output by so many of its limits."""

    def change(calls: Calls, tensors: Tensors) -> None:
        del calls
        tensors[name] = (tensors[name] + factor * tensors[f"{name}.limit"]).astype(tensors[name].dtype)

    return change


def result_of(number: int, value: Any) -> Callable[[Calls, Tensors], None]:
    return lambda calls, _: calls[number].update(result=value)


def raises(name: str) -> Callable[[Calls, Tensors], None]:
    def change(calls: Calls, _: Tensors) -> None:
        [trim] = [call for call in calls if call["call"] == "trim"]
        del trim["result"]
        trim["raised"] = name

    return change


KEYS = "1.result.keys.parts.0"
SCALES = f"{KEYS}.scales"
TRIM = next(i for i, call in enumerate(json.loads(unpack(ring().data, "")[1]["calls"])) if call["call"] == "trim")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flip(f"{KEYS}.scales", 3), ("step 1 (append 3): append, keys, parts[0], scales [0, 0, 0, 0]", "1 of 6")),
        (flip(f"{KEYS}.biases"), ("biases [0, 0, 0, 0]", "1 of 6")),
        (code(f"{KEYS}.packed", 2), ("keys, parts[0], packed [", "1 of 192 codes are off by more than one (codes)")),
        (code(f"{KEYS}.packed", 1, 3), ("packed [", "3 of 192 codes are off by one; 2 may be (codes)")),
        (shifted("1.result.output", 2.5), ("append, output [", "exceed theirs")),
        (flip("1.result.mask"), ("append, mask [0, 0, 0, 0]", "1 of 9 elements differ")),
        (result_of(TRIM, 2), ("trim, step 3 (trim 1): trim", "recorded: 2 here: 1")),
        (result_of(TRIM, True), ("trim, step", "recorded: True here: 1")),
        (raises("Refused"), ("trim, step", "recorded: raises Refused here: returns")),
        (lambda _, t: t.update({SCALES: t[SCALES][:, :, :2]}), ("scales shape", "[1, 1, 2, 2] here")),
        (lambda _, t: t.update({SCALES: t[SCALES].astype(np.float64)}), ("scales dtype", "float64")),
    ],
)  # fmt: skip
def test_an_answer_that_differs(
    tmp_path: Path, change: Callable[[Calls, Tensors], object], words: tuple[str, str]
) -> None:
    result = against(tmp_path, ring(), NaiveMixed(), altered(ring(), change))
    assert result.outcome is Outcome.FAILED, result
    [finding] = result.findings
    text = f"{finding.check}, {finding.where} {finding.expected} {finding.actual} {finding.note}"
    for word in words:
        assert word in text
    assert (finding.expected.partition(":")[0], finding.actual.partition(":")[0]) == ("recorded", "here")


@pytest.mark.parametrize(
    "change",
    [
        code(f"{KEYS}.packed", 1),
        code(f"{KEYS}.packed", 1, 2),
        shifted("1.result.output", 1.9),
        lambda _, t: t.update({f"{KEYS}.biases": t[f"{KEYS}.biases"]}),
        result_of(1, {"$": "anything"}),
    ],
)
def test_a_difference_that_devices_may_have(tmp_path: Path, change: Callable[[Calls, Tensors], object]) -> None:
    result = against(tmp_path, ring(), NaiveMixed(), altered(ring(), change))
    assert result.outcome is Outcome.PASSED, result


class OtherTies(NaiveRows):
    """Another device: one code of each block falls to the other side, and attention follows it."""

    amount = 1

    def arrays(self, planes: tuple[Any, ...]) -> Any:
        shown = super().arrays(planes)
        parts = []
        for part in shown.parts:
            packed = part.packed.copy()
            code("x", self.amount)([], {"x": packed})
            parts.append(AffineArrays(packed, part.scales, part.biases, part.group_size, part.bits))
        return RowsApart(tuple(parts))


class OtherAttention(OtherTies):
    """As far away as the codes, and a little wrong besides."""

    def attend(self, *given: Any) -> Any:
        return super().attend(*given) * np.float32(1.001)


def device(ring_class: type[NaiveRows]) -> NaiveMixed:
    fake = NaiveMixed()
    fake.ring_class = ring_class  # type: ignore[misc]  # the class variable of this one object
    return fake


def test_attention_may_follow_codes_that_fell_to_the_other_side_and_no_further(tmp_path: Path) -> None:
    near = against(tmp_path, ring(), device(OtherTies))
    assert near.outcome is Outcome.PASSED, near
    far = against(tmp_path, ring(), device(OtherAttention))
    assert (far.outcome, far.findings[0].check) == (Outcome.FAILED, "append")
    assert "output [" in far.findings[0].where


class Trims(NaiveRows):
    def trim(self, tokens: int) -> int:
        raise ValueError(f"no trim of {tokens}")


def test_what_raises_here_and_did_not_there(tmp_path: Path) -> None:
    result = against(tmp_path, ring(), device(Trims))
    assert result.outcome is Outcome.FAILED
    [finding] = result.findings
    assert (finding.expected, finding.actual) == ("recorded: returns", "here: raises ValueError: no trim of 1")


class NoTrim(NaiveRows):
    def trim(self, tokens: int) -> int:
        raise Unsupported(f"trim of {tokens} on this device")


def test_what_is_not_offered_here(tmp_path: Path) -> None:
    result = against(tmp_path, ring(), device(NoTrim))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.reason == "step 3 (trim 1): trim: trim of 1 on this device"


def rename(calls: Calls, _: Tensors) -> None:
    calls[1]["call"] = "apend"


def other_object(calls: Calls, _: Tensors) -> None:
    calls[1]["on"] = 9


def short_limit(_: Calls, tensors: Tensors) -> None:
    tensors["1.result.output.limit"] = tensors["1.result.output.limit"][:, :, :1]


def leaf_of(calls: Calls) -> dict[str, Any]:
    leaf: dict[str, Any] = calls[1]["result"]["output"]
    return leaf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, t: t.pop(SCALES), f"call 1 (append), result.keys.parts.0.scales: tensor {SCALES} is missing"),
        (lambda _, t: t.pop("1.keys"), "call 1 (append), given.keys: tensor 1.keys is missing"),
        (lambda _, t: t.pop("1.result.output.limit"), "its limit: tensor 1.result.output.limit is missing"),
        (short_limit, "its limit is [1, 1, 1, 64], and the array is not"),
        (rename, "call 1 (apend): is no call that this release knows"),
        (other_object, "call 1 (append): object 9 was never made"),
        (lambda calls, _: calls[1]["given"].update(kys=3), "takes keys, values, queries, and was given keys"),
        (lambda calls, _: calls[1].update(given={}), "here: raises"),
        (lambda calls, _: leaf_of(calls)["policy"].update(name="near"), "policy 'near' is none that this release"),
        (lambda calls, _: leaf_of(calls).update(policy={"name": "lsb"}), "call 1 (append): can't be read (KeyError"),
        (result_of(1, 3), "here: Answer"),
    ],
)  # fmt: skip
def test_a_file_that_can_not_be_followed(
    tmp_path: Path, change: Callable[[Calls, Tensors], object], words: str
) -> None:
    result = against(tmp_path, ring(), NaiveMixed(), altered(ring(), change))
    if result.outcome is Outcome.FAILED:
        assert words in result.findings[0].actual
        return
    assert result.outcome is Outcome.ERRORED, result
    assert words in result.reason
    assert "observation.safetensors" in result.reason


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    data = ring().data
    middle = bytearray(data)
    middle[-5] ^= 1
    sha256 = hashlib.sha256(data).hexdigest()
    for wrong, words in (
        (data[:5], "is cut off: it has 5 bytes, fewer than the length of a header"),
        (data[:900], "is cut off: it has 900 bytes, and its header"),
        (data[:-1], f"is cut off: it has {len(data) - 1} bytes, and its tensors need {len(data)}"),
        (bytes(middle), "is damaged: it is not the file that the index was made of"),
        (b"no such thing at all", "does not begin as a safetensors file"),
    ):
        result = against(tmp_path, ring(), NaiveMixed(), wrong, sha256=sha256)
        assert result.outcome is Outcome.ERRORED
        assert words in result.reason
    result = against(tmp_path, ring(), NaiveMixed(), problem="the case changed")
    assert (result.outcome, result.reason) == (Outcome.ERRORED, "the case changed")
    gone = Recorded(tmp_path / "gone.safetensors", sha256)
    assert "can't be read: No such file" in execute(ring().instance, NaiveMixed(), against=gone).reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "2"}, "is 'assay-observation 2', and this release reads 'assay-observation 1'"),
        ({"format": "mlx"}, "is 'mlx 1'"),
        ({"instance": "ring/other"}, "is of instance ring/other, not "),
        ({"calls": "[1"}, "its list of calls is not JSON"),
        ({"calls": "[1]"}, "its list of calls is none"),
    ],
)
def test_a_file_of_another_sort(tmp_path: Path, change: dict[str, str], words: str) -> None:
    tensors, metadata = unpack(ring().data, "a file")
    path = tmp_path / "x.safetensors"
    path.write_bytes(pack(tensors, {**metadata, **change}))
    with pytest.raises(RecordingError, match=r"x\.safetensors: ") as caught:
        read_observation(Recorded(path, hashlib.sha256(path.read_bytes()).hexdigest()), ring().instance.id)
    assert words in str(caught.value)


@pytest.mark.parametrize("policy", [Exact(), Lsb(0.25), Ulp(3), Nmse(0.01), Bound(np.full((2, 3), 0.1))])
def test_policies_survive(policy: Any) -> None:
    writer = ValueWriter(lambda _: 0)
    array = np.ones((2, 3), np.float32)
    leaf = {"$": "array", "tensor": writer.keep(array, "x"), "policy": describe(policy, array, "x", writer)}
    limit = writer.tensors["x.limit"].astype(np.float64) if isinstance(policy, Bound) else None
    back = policy_of(json.loads(json.dumps(leaf)), array, limit, ("", ""))
    assert type(back) is type(policy)
    if isinstance(back, Bound):
        assert (back.limit >= 0.1).all()
        assert (back.limit < 0.1 + 1e-7).all()
    elif isinstance(back, Lsb):
        assert back == policy


def test_limits_are_never_rounded_down() -> None:
    writer = ValueWriter(lambda _: 0)
    limits = np.array([0.1, 1 / 3, 1e-50, 0.0, np.inf, 1e300])
    describe(Bound(limits), np.zeros(6, np.float32), "x", writer)
    kept_limits = writer.tensors["x.limit"]
    assert (kept_limits.astype(np.float64) >= limits).all()
    assert kept_limits[3] == 0


def test_arrays_that_nobody_judged() -> None:
    floats, ints = np.zeros(1, np.float32), np.zeros(1, np.int64)
    assert policy_of({}, floats, None, ("Answer", "output")) is None
    assert policy_of({}, ints, None, ("", "")) == Exact()
    assert policy_of({}, floats, None, ("PlainArrays", "data")) == Exact()
    assert DEFAULTS["AffineArrays", "packed"] == Lsb()


@pytest.mark.parametrize("view", ["transposed", "sliced", "stride-0"])
def test_a_view_comes_back_with_its_strides(view: str) -> None:
    array = laid_out(np.repeat(np.arange(12, dtype=np.float32).reshape(1, 3, 4), 2, axis=0), view)
    writer = ValueWriter(lambda _: 0)
    leaf = json.loads(json.dumps(writer.write(array, "x")))
    tensors, _ = unpack(pack(writer.tensors, {}), "a file")
    back = read_value(leaf, tensors, {}, "x")
    assert back.strides == array.strides
    assert (back == array).all()
    with pytest.raises(RecordingError, match="do not fit"):
        read_value({**leaf, "strides": [1 << 40, 1, 1]}, tensors, {}, "x")


def test_zeros_of_both_signs_are_one_number(tmp_path: Path) -> None:
    def negative(_: Calls, tensors: Tensors) -> None:
        tensors[f"{KEYS}.biases"] = np.where(
            tensors[f"{KEYS}.biases"] == 0, np.float32(-0.0), tensors[f"{KEYS}.biases"]
        )

    planes = naive_affine.encode(np.zeros((1, 32), np.float32), 32, 8)
    assert planes[2][0, 0] == 0
    assert against(tmp_path, ring(), NaiveMixed(), altered(ring(), negative)).outcome is Outcome.PASSED
