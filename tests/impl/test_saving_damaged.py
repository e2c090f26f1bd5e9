"""Files that are damaged, foreign or contradict themselves: one named error each, and words that tell what is wrong."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from impl.rings.aligned import align_rotating_rows
from impl.rings.group import AlignedGroup
from impl.rings.layout import RotatingAffineLayout
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.saving import (
    NotASavedCacheError,
    NotSafetensorsError,
    SavedCacheError,
    SavedKindError,
    SavedShapeError,
    SavedStateError,
    SavedTensorsError,
    SavedVersionError,
    TruncatedFileError,
    load_cache,
    save_cache,
)
from tests.impl.rows import BITS, four, group, one_by_one, solo
from tests.impl.token_table import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Header = dict[str, Any]
    Tensors = dict[str, mx.array]


def layout() -> RotatingAffineLayout:
    packed = RotatingAffineLayout(4, GROUP, BITS)
    packed.merge_rows(four(BITS))
    return packed


def batch() -> SpeculativeRotatingKVCache:
    ring = SpeculativeRotatingKVCache(4)
    ring.merge_rows(four())
    return ring


def apart() -> AlignedGroup:
    return AlignedGroup(4, align_rotating_rows([one_by_one(4, range(1, 7)), solo(4, [101, 102], bits=BITS)]))


CACHES: dict[str, Callable[[], Any]] = {
    "wrapped": lambda: one_by_one(4, range(1, 7)),
    "affine": lambda: solo(4, [1, 2], bits=BITS),
    "batch": batch,
    "layout": layout,
    "apart": apart,
    "group": lambda: group(solo(4, [1, 2]), solo(4, [101]), crossings=[3, 5]),
}


def rewritten(path: Path, change: Callable[[Header, Tensors], object]) -> None:
    """Write the file anew with a changed description or other tensors: whole, and wrong."""
    found: Any = mx.load(str(path), return_metadata=True)
    tensors, metadata = found
    mx.eval(tensors)
    header = json.loads(metadata["cache"])
    change(header, tensors)
    mx.save_safetensors(str(path), tensors, {**metadata, "cache": json.dumps(header)})


def put(place: str, value: Any) -> Callable[[Header, Tensors], None]:
    """Change one value of the description."""
    *path, last = (int(key) if key.isdigit() else key for key in place.split("."))

    def change(header: Header, _: Tensors) -> None:
        inner: Any = header
        for key in path:
            inner = inner[key]
        inner[last] = value

    return change


def cast(name: str, dtype: mx.Dtype) -> Callable[[Header, Tensors], None]:
    return lambda _, tensors: tensors.update({name: tensors[name].astype(dtype)})


def cut(name: str, axis: int) -> Callable[[Header, Tensors], None]:
    def change(_: Header, tensors: Tensors) -> None:
        tensors[name] = mx.split(tensors[name], [1], axis=axis)[0]

    return change


WRONG: list[tuple[str, Callable[[Header, Tensors], object], type[SavedCacheError], str]] = [
    ("wrapped", put("kind", "solid"), SavedKindError, "of kind 'solid', and this release knows solo"),
    ("wrapped", put("kind", 3), SavedStateError, "kind must be a text, not 3"),
    ("wrapped", put("color", 1), SavedStateError, "unknown keys ['color']"),
    ("wrapped", lambda h, _: h["position"].pop("rotated"), SavedStateError, "position.rotated is missing"),
    ("wrapped", put("position.rotated", 1), SavedStateError, "position.rotated must be true or false, not 1"),
    ("wrapped", put("position", [1]), SavedStateError, "position must be an object, not [1]"),
    ("wrapped", put("position.ring_index", 2.0), SavedStateError, "must be an integer from 0 to 2147483647, not 2.0"),
    ("wrapped", put("position.ring_index", True), SavedStateError, "must be an integer from 0 to 2147483647, not True"),
    ("wrapped", put("position.ring_index", -1), SavedStateError, "position.ring_index must be an integer from 0"),
    ("wrapped", put("position.ring_index", 5), SavedStateError, "lies outside a rotated buffer of 4"),
    ("wrapped", put("position.max_size", 0), SavedStateError, "position.max_size must be an integer from 1"),
    ("wrapped", put("position.max_size", 5), SavedShapeError, "keys is [1, 2, 4, 64], and must be [1, any, 5, any]"),
    ("wrapped", put("position.offsets", [6, 6]), SavedStateError, "must be 1 numbers, one per row, not [6, 6]"),
    ("wrapped", put("position.offsets", [2**31]), SavedStateError, "not 2147483648"),
    ("wrapped", put("position.offsets", [7]), SavedStateError, "is no position of a ring of one request"),
    ("wrapped", put("position.offsets", [3]), SavedStateError, "row 0 holds 4 tokens, and has only seen 3"),
    ("wrapped", put("position.left_pad", [1]), SavedStateError, "is no position of a ring of one request"),
    ("wrapped", put("position.prefill_ends", [6]), SavedStateError, "is no position of a ring of one request"),
    ("wrapped", put("position.total_offset", 3), SavedStateError, "4 columns are in use, and only 3 were ever"),
    ("wrapped", put("minimum_reusable_offset", -1), SavedStateError, "minimum_reusable_offset must be an integer"),
    ("wrapped", put("storage", {"group_size": 48, "bits": 4}), SavedStateError, "no affine format has group_size 48"),
    ("wrapped", put("storage", {"group_size": 32, "bits": 4}), SavedTensorsError, "tensor keys.scales is missing"),
    ("wrapped", lambda _, t: t.pop("values"), SavedTensorsError, "tensor values is missing"),
    ("wrapped", lambda _, t: t.update(more=t["keys"]), SavedTensorsError, "tensors ['more'] belong to nothing"),
    ("wrapped", cast("keys", mx.uint32), SavedShapeError, "tensor keys is mlx.core.uint32, and must be mlx.core.fl"),
    ("wrapped", cut("values", 1), SavedShapeError, "values is [1, 1, 4, 32], and must be [1, 2, 4, any]"),
    ("wrapped", cut("values", 2), SavedShapeError, "values is [1, 2, 1, 32], and must be [1, 2, 4, any]"),
    ("wrapped", lambda _, t: t.update(keys=t["keys"][0]), SavedShapeError, "is [2, 4, 64], and must be [1, any, 4"),
    ("affine", put("storage", None), SavedTensorsError, "tensor keys is missing"),
    ("affine", put("storage.bits", 8), SavedShapeError, "keys.packed is [1, 2, 2, 8], and must be [1, 2, 2, 16]"),
    ("affine", put("storage.depth", 8), SavedStateError, "storage has unknown keys ['depth']"),
    ("affine", cast("keys.packed", mx.int32), SavedShapeError, "keys.packed is mlx.core.int32"),
    ("affine", cast("keys.biases", mx.float16), SavedShapeError, "keys.biases is mlx.core.float16, and must be mlx"),
    ("affine", cut("keys.biases", 3), SavedShapeError, "keys.biases is [1, 2, 2, 1], and must be [1, 2, 2, 2]"),
    ("batch", put("position.offsets", [6, 1, 0, 9]), SavedStateError, "row 1 holds 2 tokens, and has only seen 1"),
    ("batch", put("position.offsets", [6, 2, 0]), SavedStateError, "position.left_pad must be 3 numbers"),
    ("batch", put("position.left_pad", [0, 2, 5, 0]), SavedStateError, "row 2 has 5 columns of padding, and 4"),
    ("batch", put("position.rotated", "yes"), SavedStateError, "position.rotated must be true or false, not 'yes'"),
    ("batch", put("round", [6, 2, 0]), SavedStateError, "round must be 4 numbers"),
    ("batch", put("storage", {"group_size": 32, "bits": 4}), SavedTensorsError, "tensor keys.scales is missing"),
    ("layout", put("minimum_reusable_offsets", [0]), SavedStateError, "must be 4 numbers, one per row, not [0]"),
    ("layout", put("ring.position.left_pad", [0, 0, 0, 0]), SavedStateError, "row 1 holds 4 tokens, and has only"),
    ("apart", put("rows.1.ring.position.ring_index", 3), SavedShapeError, "[1, 2, 4, 2], and must be [1, any, 3, any]"),
    ("apart", put("rows.0.ring.position.total_offset", 9), SavedStateError, "cannot share the columns of a group"),
    ("apart", put("max_size", 5), SavedStateError, "cannot share the columns of a group of max_size 5"),
    ("apart", lambda h, _: h["rows"].pop(), SavedTensorsError, "['rows.1.ring.keys.biases', "),
    ("group", put("row_crossing_tokens", [3]), SavedStateError, "row_crossing_tokens must be 2 numbers"),
    ("group", put("row_crossing_tokens", [2, 5]), SavedStateError, "row 0 has 2 tokens, is plain, and had to cross"),
    ("group", put("group.rows", None), SavedStateError, "group.rows must be a list, not None"),
    ("group", put("bits", 7), SavedStateError, "no affine format has group_size 32 and 7 bits"),
]


@pytest.mark.parametrize(
    ("cache", "change", "error", "words"),
    WRONG,
    ids=[f"{number}-{words[:24]}" for number, (*_, words) in enumerate(WRONG)],
)
def test_files_that_contradict_themselves(
    tmp_path: Path, cache: str, change: Callable[[Header, Tensors], object], error: type[SavedCacheError], words: str
) -> None:
    path = tmp_path / "cache.safetensors"
    save_cache(path, CACHES[cache]())
    rewritten(path, change)
    with pytest.raises(SavedCacheError) as caught:
        load_cache(path)
    assert words in str(caught.value)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_was_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "cache.safetensors"
    save_cache(path, solo(4, [1]))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    lengths = {
        0: "within the length of its header",
        7: "within the length",
        9: "within its header of",
        length + 7: "he",
    }
    for size, words in {**lengths, length + 8: "its tensors need", len(data) - 1: "its tensors need"}.items():
        path.write_bytes(data[:size])
        with pytest.raises(TruncatedFileError, match=words):
            load_cache(path)
    path.write_bytes(data + b"x")
    with pytest.raises(NotSafetensorsError, match="has 1 bytes behind its last tensor"):
        load_cache(path)


def lead(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 this is some other file, and a longer one",
        lead(b"[1, 2]"),
        lead(b"{not json}"),
        lead(b'{"a": 1}'),
        lead(b'{"a": {"data_offsets": []}}'),
        lead(b'{"a": {"data_offsets": [0, "x"]}}'),
        lead(b'{"__metadata__": 3}'),
        lead(b'{"\xff": 3}'),
        lead(b"{" + b"[" * 3000),
        struct.pack("<Q", 1 << 60) + b"{}",
    ],
)
def test_files_of_other_sorts(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cache.safetensors"
    path.write_bytes(data)
    with pytest.raises(NotSafetensorsError):
        load_cache(path)


def test_a_header_that_only_mlx_finds_wrong(tmp_path: Path) -> None:
    path = tmp_path / "cache.safetensors"
    header = {
        "__metadata__": {"format": "impl-cache", "version": "1", "cache": "{}"},
        "a": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]},
    }
    path.write_bytes(lead(json.dumps(header).encode()) + bytes(4))
    with pytest.raises(NotSafetensorsError, match="MLX can't read it"):
        load_cache(path)


@pytest.mark.parametrize(
    ("metadata", "error", "words"),
    [
        ({}, NotASavedCacheError, "no cache of save_cache"),
        ({"format": "mlx"}, NotASavedCacheError, "no cache of save_cache"),
        ({"format": "impl-cache"}, SavedVersionError, "version None of the format, and this release reads 1"),
        ({"format": "impl-cache", "version": "2"}, SavedVersionError, "version 2 of the format"),
        ({"format": "impl-cache", "version": "1"}, NotASavedCacheError, "no JSON object"),
        ({"format": "impl-cache", "version": "1", "cache": "[1]"}, NotASavedCacheError, "no JSON object"),
    ],
)
def test_safetensors_files_of_something_else(
    tmp_path: Path, metadata: dict[str, str], error: type[SavedCacheError], words: str
) -> None:
    path = tmp_path / "weights.safetensors"
    mx.save_safetensors(str(path), {"weight": mx.zeros((2, 2))}, metadata)
    with pytest.raises(error, match=words):
        load_cache(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_cache(tmp_path / "nothing.safetensors")
    with pytest.raises(OSError, match="can't be written"):
        save_cache(tmp_path / "no folder" / "ring.safetensors", solo(4))
