"""Saving and loading of every kind of cache: what comes back, what is written, and what a failure leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from impl.errors import HistoryLostError
from impl.recurrent import RecurrentCache
from impl.rings.aligned import AlignedRotatingCache, align_rotating_rows
from impl.rings.batched import BatchedRotatingCache, BatchedRotatingQuantCache
from impl.rings.group import AlignedGroup
from impl.rings.layout import RotatingAffineLayout, SpeculativeRotatingAffineLayout
from impl.rings.position import UNBOUNDED
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.saving import SavedKindError, TruncatedFileError, load_cache, save_cache
from tests.impl.rows import BITS, affine_rows, columns, feed, four, group, group_snapshot, held, one_by_one, solo
from tests.impl.token_table import GROUP, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def through(tmp_path: Path) -> Callable[[Any], Any]:
    def save_and_load(cache: Any) -> Any:
        save_cache(tmp_path / "cache.safetensors", cache)
        return load_cache(tmp_path / "cache.safetensors", type(cache))

    return save_and_load


def speculative() -> SpeculativeRotatingKVCache:
    ring = SpeculativeRotatingKVCache(4)
    ring.merge_rows(four())
    return ring


def layout(kind: type[Any] = RotatingAffineLayout) -> Any:
    packed = kind(4, GROUP, BITS)
    rows = four(BITS)
    rows[1].minimum_reusable_offset = 2
    packed.merge_rows(rows)
    return packed


def layout_columns(packed: Any) -> list[list[int]]:
    return columns(packed.quantized_attention)


@pytest.mark.parametrize("bits", [None, 2, 8])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_solo_rings(through: Callable[[Any], Any], bits: int | None, dtype: mx.Dtype) -> None:
    rings = [
        solo(4, bits=bits, dtype=dtype),
        solo(4, [1, 2], bits=bits, dtype=dtype),
        solo(4, *[[token] for token in range(1, 7)], bits=bits, dtype=dtype),
        solo(4, range(1, 10), bits=bits, dtype=dtype),
        solo(UNBOUNDED, [1, 2, 3], bits=bits, dtype=dtype),
        solo(4, range(1, 10), bits=bits, dtype=dtype).extract(2),
    ]
    for number, ring in enumerate(rings):
        ring.minimum_reusable_offset = number
        loaded = through(ring)
        assert type(loaded) is type(ring)
        assert (loaded.position, loaded.minimum_reusable_offset) == (ring.position, number)
        for cache in (loaded, ring):
            feed(cache, [20], dtype=dtype)
            feed(cache, [21, 22], dtype=dtype)
        assert columns(loaded, dtype) == columns(ring, dtype)


@pytest.mark.parametrize("bits", [None, BITS])
def test_batches_in_an_open_prefill(through: Callable[[Any], Any], bits: int | None) -> None:
    kind = BatchedRotatingCache if bits is None else BatchedRotatingQuantCache
    ring: Any = kind.merge(four(bits))
    ring.prepare_prefill([1, 3, 2, 3], right_padding=[2, 0, 1, 0])
    feed(ring, [7, -1], [103, 104], [301, 302], [210, 211])
    loaded = through(ring)
    assert loaded.position == ring.position
    assert loaded.position.has_pending_padding
    for cache in (loaded, ring):
        feed(cache, [-1], [105], [-1], [212])
        cache.finalize_prefill()
        feed(cache, [8], [106], [303], [213])
    assert columns(loaded) == columns(ring)
    assert loaded.rope_offset_arr.tolist() == ring.rope_offset_arr.tolist()


def test_announced_left_padding_that_has_not_come(through: Callable[[Any], Any]) -> None:
    loaded = through(BatchedRotatingCache(4, [2, 0]))
    feed(feed(loaded, [-1, -1, 1], [101, 102, 103]), [2], [104])
    assert loaded.row_offsets == (2, 4)
    assert columns(loaded) == [[-1, -1, 1, 2], [101, 102, 103, 104]]


def test_an_open_round_goes_along(through: Callable[[Any], Any]) -> None:
    ring = speculative()
    ring.spec_round_begin()
    feed(ring, [7, 8, 9], [103, 104, 105], [301, 302, 303], [210, 211, 212])
    loaded = through(ring)
    assert loaded.round_offsets == ring.round_offsets == (6, 2, 0, 9)
    for cache in (loaded, ring):
        cache.spec_round_rollback([1, 0, 3, 2])
        feed(cache, [17], [117], [317], [217])
    assert (loaded.row_offsets, columns(loaded)) == (ring.row_offsets, columns(ring))


@pytest.mark.parametrize("kind", [RotatingAffineLayout, SpeculativeRotatingAffineLayout])
def test_layouts(through: Callable[[Any], Any], kind: type[Any]) -> None:
    packed = layout(kind)
    packed.spec_round_begin()
    feed(packed, [7, 8], [103, 104], [301, 302], [210, 211])
    loaded = through(packed)
    assert loaded.minimum_reusable_offsets == (0, 2, 0, 0)
    for cache in (loaded, packed):
        cache.spec_round_rollback([0, 1, 2, 0])
    assert (loaded.position, layout_columns(loaded)) == (packed.position, layout_columns(packed))
    assert through(kind(4, GROUP, BITS)).batch_size is None


def test_aligned_rows_and_their_group(through: Callable[[Any], Any]) -> None:
    plain, affine, *_ = align_rotating_rows([one_by_one(4, range(1, 7)), solo(4, [101, 102])])
    affine = affine.to_quantized(GROUP, BITS)
    affine.minimum_reusable_offset = 2
    loaded = through(AlignedGroup(4, [plain, affine]))
    assert [type(row) for row in loaded.rows] == [AlignedRotatingCache] * 2
    assert [held(row) for row in loaded.rows] == [held(plain), held(affine)] == [[3, 4, 5, 6], [-1, -1, 101, 102]]
    assert loaded.minimum_reusable_offsets == (0, 2)
    assert held(through(affine)) == held(affine)
    assert through(AlignedGroup(4)).position == AlignedGroup(4).position


def test_rows_before_at_and_after_their_crossing(through: Callable[[Any], Any]) -> None:
    rows = group(solo(4, [1, 2]), solo(4, [101]), crossings=[3, 5])
    seen = []
    for token in range(3, 8):
        twin = through(rows)
        assert group_snapshot(twin)[:-1] == group_snapshot(rows)[:-1]
        seen.append((affine_rows(twin), twin.packed is not None))
        for cache in (twin, rows):
            feed(cache, [token], [100 + token])
        assert group_snapshot(twin)[:-1] == group_snapshot(rows)[:-1]
    crossed = [([False, False], False), ([True, False], False), ([True, False], False), ([True, False], False)]
    assert seen == [*crossed, ([True, True], True)]


def test_a_round_over_a_crossing_converts_only_when_it_ends(through: Callable[[Any], Any]) -> None:
    rows = group(solo(4, [1, 2]), solo(4, [101]), crossings=[3, 3])
    rows.spec_round_begin()
    feed(rows, [3, 4], [102, 103])
    loaded = through(rows)
    assert affine_rows(loaded) == [False, False]
    loaded.spec_round_rollback([2, 1])
    assert (affine_rows(loaded), loaded.minimum_reusable_offsets) == ([True, False], (4, 0))


def test_recurrent_caches(through: Callable[[Any], Any]) -> None:
    cache = RecurrentCache(2)
    assert through(cache).conv_state is through(cache).state is None
    cache.prepare_prefill([2, 4], right_padding=[2, 0])
    arrays = mx.random.normal((2, 3, 8)).astype(mx.bfloat16), mx.random.normal((2, 1, 4, 8))
    cache.update(*arrays, tokens=3)
    loaded = through(cache)
    assert mx.array_equal(loaded.conv_state, arrays[0])
    assert mx.array_equal(loaded.state, arrays[1])
    assert loaded.offsets == (2, 3)
    assert loaded.make_mask(1).tolist() == [[False], [True]]
    no_kernel = RecurrentCache(1)
    no_kernel.update(mx.zeros((1, 0, 8)), mx.zeros((1, 1, 4, 8)), tokens=1)
    assert through(no_kernel).conv_state.shape == (1, 0, 8)


def test_the_file_says_what_the_guide_says(tmp_path: Path) -> None:
    """The format is a promise: whoever changes it counts VERSION up."""
    path = tmp_path / "ring.safetensors"
    ring = solo(4, [1, 2])
    feed(ring, [3])  # now the buffer has spare columns
    save_cache(path, ring)
    found: Any = mx.load(str(path), return_metadata=True)
    tensors, metadata = found
    assert {name: array.shape for name, array in tensors.items()} == {"keys": (1, 2, 3, 64), "values": (1, 2, 3, 32)}
    assert ring.keys.shape[2] > 3
    assert {key: metadata[key] for key in ("format", "version")} == {"format": "impl-cache", "version": "1"}
    position = {
        "max_size": 4, "offsets": [3], "left_pad": [0], "ring_index": 3, "total_offset": 3, "rotated": False,
        "prefill_ends": None,
    }  # fmt: skip
    wanted = {"kind": "solo", "position": position, "storage": None, "minimum_reusable_offset": 0}
    assert json.loads(metadata["cache"]) == wanted


def test_what_is_loaded_does_not_hang_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ring.safetensors"
    save_cache(path, solo(4, [1, 2]))
    loaded = load_cache(path, RotatingKVCache)
    path.write_bytes(b"gone")
    assert columns(loaded) == [[1, 2]]


def test_saving_leaves_the_cache_alone(tmp_path: Path) -> None:
    ring = one_by_one(4, range(1, 7))
    before = [columns_of(array) for array in ring.state()]
    save_cache(tmp_path / "ring", ring)
    assert [columns_of(array) for array in ring.state()] == before
    assert [path.name for path in tmp_path.iterdir()] == ["ring"]


@pytest.mark.parametrize("failure", ["short", "raises"])
def test_a_failure_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    path = tmp_path / "ring.safetensors"
    save_cache(path, solo(4, [1, 2]))
    write = mx.save_safetensors

    def short(name: str, *rest: Any) -> None:
        write(name, *rest)
        os.truncate(name, len(Path(name).read_bytes()) - 1)

    def raises(name: str, *rest: Any) -> None:
        write(name, *rest)
        raise RuntimeError("no space left")

    monkeypatch.setattr(mx, "save_safetensors", {"short": short, "raises": raises}[failure])
    with pytest.raises(TruncatedFileError if failure == "short" else OSError):
        save_cache(path, solo(4, [1, 2, 3]))
    assert columns(load_cache(path)) == [[1, 2]]
    assert [found.name for found in tmp_path.iterdir()] == ["ring.safetensors"]


def test_other_classes_are_not_saved(tmp_path: Path) -> None:
    class Mine(RotatingKVCache):
        """Remembers something else, perhaps."""

    for other in (Mine(4), [RotatingKVCache(4)], None):
        with pytest.raises(SavedKindError, match=r"can't be saved; caches of these kinds can: solo, batched"):
            save_cache(tmp_path / "ring", other)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_another_class_than_was_asked_for(tmp_path: Path) -> None:
    save_cache(tmp_path / "ring", solo(4, [1, 2], bits=BITS))
    assert isinstance(load_cache(tmp_path / "ring"), RotatingQuantizedKVCache)
    with pytest.raises(SavedKindError, match="holds a RotatingQuantizedKVCache, not a RotatingKVCache"):
        load_cache(tmp_path / "ring", RotatingKVCache)


def test_a_loaded_lossy_ring_knows_what_it_lost(through: Callable[[Any], Any]) -> None:
    lossy = through(one_by_one(8, range(1, 7)).extract(2))
    with pytest.raises(HistoryLostError):
        lossy.trim(1)
