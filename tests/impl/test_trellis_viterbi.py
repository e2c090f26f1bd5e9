"""The search on blocks: both geometries, bit for bit, against each other and against every possible path."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from harness.baseline import trellis as baseline
from harness.baseline.trellis_search import least_error
from impl.metal import CpuBackend
from impl.trellis.codebooks import codeword_table
from impl.trellis.errors import TrellisFormatError, TrellisShapeError
from impl.trellis.viterbi import Encoded, Geometry, encode_blocks, usual_geometry

if TYPE_CHECKING:
    from impl.metal.backend import Runner
    from impl.metal.signature import Text

BLOCK = 32  # short, since a barrier of threads that are played one after the other takes its time


def numbers(blocks: int, block: int = BLOCK, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal((blocks, block)).astype(np.float32))


def states(encoded: Encoded, bits: int, state_bits: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    return baseline.states(np.array(encoded.words), bits, state_bits)


def arrays(encoded: Encoded) -> list[mx.array]:
    return [encoded.words, encoded.costs, encoded.products, encoded.squares]


def test_costs_and_sums_are_those_of_the_decoded_path() -> None:
    x, table = numbers(5, 256), codeword_table("1mad", 8)
    encoded = encode_blocks(x, table, 3)
    values = np.array(table, np.float64)[states(encoded, 3, 8)]
    wanted = np.array(x, np.float64)
    np.testing.assert_allclose(np.array(encoded.costs), ((values - wanted) ** 2).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(np.array(encoded.products), (values * wanted).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(np.array(encoded.squares), (values**2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_exact_is_the_least_of_all_paths_and_two_passes_are_near(bits: int) -> None:
    state_bits, x = 6, numbers(4)
    table = codeword_table("random", state_bits)
    exact, two, free = (encode_blocks(x, table, bits, passes) for passes in ("exact", "two", "free"))
    least = [least_error(block, np.array(table), bits) for block in np.array(x)]
    np.testing.assert_allclose(np.array(exact.costs), least, rtol=1e-5)
    assert (np.array(two.costs) >= np.array(exact.costs) * (1 - 1e-6)).all()
    assert np.array(two.costs).sum() <= 1.05 * np.array(exact.costs).sum()
    assert (np.array(free.costs) <= np.array(exact.costs)).all()
    assert np.array(free.costs).sum() < 0.995 * np.array(exact.costs).sum()


# Threads that divide the contexts; blocks for each of the workers and one left over.
GROUPS = [(2, 6, 16), (3, 7, 8), (1, 5, 2)]


@pytest.mark.parametrize(("bits", "state_bits", "threads"), GROUPS)
def test_a_group_of_threads_gives_the_bits_of_one_thread(bits: int, state_bits: int, threads: int) -> None:
    x, table = numbers(3), codeword_table("1mad", state_bits)
    for passes in ("two", "exact", "free") if state_bits == 5 else ("two",):
        alone = encode_blocks(x, table, bits, passes, Geometry(1, 2))
        group = encode_blocks(x, table, bits, passes, Geometry(threads, 2))
        assert all(mx.array_equal(one, other) for one, other in zip(arrays(alone), arrays(group), strict=True))


def test_ties_go_to_the_same_path_in_both_geometries() -> None:
    # Four values only, so that paths with the same error abound.
    table = mx.array(np.tile(np.array([-1, 1, 0.5, -0.5], np.float32), 16))
    x = mx.round(numbers(4) * 2) / 2
    alone, group = (encode_blocks(x, table, 2, "two", Geometry(threads, 4)) for threads in (1, 4))
    assert mx.array_equal(alone.words, group.words)
    assert mx.array_equal(alone.costs, group.costs)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("bits", "state_bits"), list(product((1, 2, 3, 4), (8, 9, 10))))
def test_every_geometry_gives_the_same_bits(bits: int, state_bits: int) -> None:
    x, table = numbers(2, 64), codeword_table("mul1", state_bits)
    alone = encode_blocks(x, table, bits, geometry=Geometry(1, 1))
    for threads in {2, 1 << (state_bits - bits) // 2, 1 << (state_bits - bits)}:
        group = encode_blocks(x, table, bits, geometry=Geometry(threads, 2))
        assert all(mx.array_equal(one, other) for one, other in zip(arrays(alone), arrays(group), strict=True))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_metrics_that_do_not_fit_into_threadgroup_memory_lie_elsewhere() -> None:
    geometry = Geometry(512, 1)
    assert not geometry.shared(1 << 12)
    x, table = numbers(1, 64), codeword_table("1mad", 14)
    alone, group = encode_blocks(x, table, 2), encode_blocks(x, table, 2, geometry=geometry)
    assert all(mx.array_equal(one, other) for one, other in zip(arrays(alone), arrays(group), strict=True))


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_threads_may_take_any_order_between_barriers(order: str) -> None:
    x, table = numbers(2), codeword_table("1mad", 6)
    backend = CpuBackend(lane_order=order, lane_seed=3)
    there = encode_blocks(x, table, 2, geometry=Geometry(8, 2), backend=backend)
    assert all(
        mx.array_equal(one, other) for one, other in zip(arrays(encode_blocks(x, table, 2)), arrays(there), strict=True)
    )


def test_how_many_work_at_once_changes_nothing() -> None:
    x, table = numbers(7), codeword_table("1mad", 6)
    one = encode_blocks(x, table, 2, geometry=Geometry(1, 1))
    for workers in (2, 7, 50):
        other = encode_blocks(x, table, 2, geometry=Geometry(1, workers))
        assert all(mx.array_equal(a, b) for a, b in zip(arrays(one), arrays(other), strict=True))


def test_every_usual_geometry_is_possible() -> None:
    for bits, state_bits in product((1, 2, 3, 4), range(8, 17)):
        contexts = 1 << (state_bits - bits)
        group = usual_geometry(bits, state_bits, backend=_Gpu())
        assert group.threads > 1
        assert contexts % group.threads == 0
        # Survivors take a byte each, and metrics beyond threadgroup memory eight.
        assert group.workers * contexts * 256 <= 256 << 20 or group.workers == 1
        assert usual_geometry(bits, state_bits, backend=CpuBackend()).threads == 1


class _Gpu:
    """A backend that is no processor."""

    name = "gpu"

    def runner(self, text: Text) -> Runner:
        """Run nothing."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("x", "table", "bits", "passes", "geometry", "error", "words"),
    [
        (mx.zeros((2, 32)), 6, 2, "three", None, TrellisFormatError, "none of free, two, exact"),
        (mx.zeros(32), 6, 2, "two", None, TrellisShapeError, r"float32 \[blocks, block\]"),
        (mx.zeros((2, 32), mx.float16), 6, 2, "two", None, TrellisShapeError, "float16"),
        (mx.zeros((0, 32)), 6, 2, "two", None, TrellisShapeError, "0, 32"),
        (mx.zeros((2, 32)), 6, 4, "two", None, TrellisFormatError, "use 8 to 16"),
        (mx.zeros((2, 20)), 6, 2, "two", None, TrellisFormatError, "multiple of 32"),
        (mx.zeros((2, 32)), 6, 2, "two", Geometry(3, 1), TrellisFormatError, "threads must divide"),
        (mx.zeros((2, 32)), 6, 2, "two", Geometry(1, 0), TrellisFormatError, "can't share out"),
    ],
)
def test_what_can_not_be_encoded_is_refused(
    x: mx.array, table: int, bits: int, passes: str, geometry: Geometry | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        encode_blocks(x, codeword_table("1mad", table), bits, passes, geometry)


def test_a_table_of_another_length_is_refused() -> None:
    with pytest.raises(TrellisShapeError, match=r"float32 \[2 \*\* state_bits\]"):
        encode_blocks(numbers(1), mx.zeros(60), 2)
