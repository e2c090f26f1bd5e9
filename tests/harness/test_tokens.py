"""Ids survive every storage: each bits x group size x dtype x range of ids that a case may use."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from harness.baseline import affine as naive_affine
from harness.dtypes import numpy_dtype
from harness.kinds.ring.tokens import LARGEST, largest_id, make_tokens, marker_channels, read_ids
from harness.subjects.protocol import AffineStorage, RingSpec

FORMATS = list(itertools.product((1, 2, 3, 4, 5, 6, 8), (32, 64, 128), ("float32", "float16", "bfloat16"), (1, 2)))


def spec(dtype: str, storage: AffineStorage | None, dim: int) -> RingSpec:
    return RingSpec(8, 1, 1, 1, dim, dim, dtype, storage, 0)


@pytest.mark.parametrize(("bits", "group", "dtype", "groups"), FORMATS)
def test_ids_survive_affine_storage(bits: int, group: int, dtype: str, groups: int) -> None:
    dim = group * groups
    last = min(largest_id(dim, group), 3000)
    tokens = make_tokens(spec(dtype, AffineStorage(bits, group), dim), numpy_dtype(dtype), 1, last, group)
    # With two digits, the far end of the range too.
    for table in (tokens.keys, tokens.values):
        decoded = naive_affine.dequantize(*naive_affine.encode(table, group, bits), group, bits)
        ids = read_ids(decoded[:, 0], group)
        assert ids[0] == -1, "a pad has no id"
        assert (ids[1:] == np.arange(1, last + 1)).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dim", [2, 3, 64])
def test_ids_survive_plain_storage_up_to_the_largest(dtype: str, dim: int) -> None:
    last = largest_id(dim, None)
    tokens = make_tokens(spec(dtype, None, dim), numpy_dtype(dtype), 1, last, None)
    assert (read_ids(tokens.keys[1:, 0].astype(np.float64), None) == np.arange(1, last + 1)).all()
    assert last == 240**2 - 1


def test_what_is_no_token_has_no_id() -> None:
    strange = np.array([[0.0, 0.0], [np.nan, 9.0], [np.inf, 9.0], [8.4, 9.0], [300.0, 9.0], [8.0, 8.0], [1e300, 8.0]])
    assert (read_ids(strange, None) == -1).all()


def test_tokens_of_one_id_do_not_depend_on_how_many_there_are() -> None:
    few = make_tokens(spec("float32", None, 8), np.dtype("float32"), 5, 10, None)
    many = make_tokens(spec("float32", None, 8), np.dtype("float32"), 5, 500, None)
    assert few.keys.tobytes() == many.keys[:11].tobytes()


def test_a_long_cache_has_noise_of_its_own_for_every_token_and_head() -> None:
    shape = RingSpec(8, 1, 2, 4, 128, 64, "bfloat16", None, 0)
    one, again, other = (make_tokens(shape, numpy_dtype("bfloat16"), seed, 2000, None) for seed in (1, 1, 2))
    for table in (one.keys, one.values):
        noise = table[1:, :, 2:].astype(np.float64)
        assert len({row.tobytes() for row in noise.reshape(-1, noise.shape[-1])}) == 2 * 2000
        assert np.abs(noise).max() < 1
        assert abs(noise.mean()) < 0.01
        assert abs(noise.std() - LARGEST / 3**0.5) < 0.01
        assert (read_ids(table[1:, 1].astype(np.float64), None) == np.arange(1, 2001)).all()
        assert (np.abs(table[0].astype(np.float64)) == 5).all(), "a pad"
    assert one.keys.tobytes() == again.keys.tobytes()
    assert not (one.keys[1:, :, 2:] == other.keys[1:, :, 2:]).all(axis=-1).any()
    asked = one.asked(np.arange(2000)[None])
    assert asked.shape == (1, 2000, 4, 128)
    assert len({row.tobytes() for row in asked[0, 1:401]}) == 400


def test_queries_do_not_look_at_the_digits() -> None:
    for storage, dim in ((None, 64), (AffineStorage(4, 32), 96)):
        tokens = make_tokens(
            spec("float32", storage, dim), np.dtype("float32"), 1, 5, storage.group_size if storage else None
        )
        for channel in marker_channels(dim, storage.group_size if storage else None):
            assert (tokens.queries[..., channel] == 0).all()
        assert np.abs(tokens.queries).max() > 0.5
