"""The functions that NVIDIA's processors lack, measured on the CPU, where the same text compiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CpuBackend, cuda, metal_kernel
from tests.bench.metal_cuda_parts import FUNCTIONS, angles, last_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

TWO = {"pow", "atan2", "fmod"}
OWN = [name for name in FUNCTIONS if name not in {"sqrt", "rsqrt"}]
# Its text and not its name, which is all that a cache of kernels would know of a change.
HEADER = (Path(cuda.__file__).parent / "prelude" / "math.h").read_text(encoding="utf-8").replace("#pragma once", "")
INFINITY, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def measured() -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Return two inputs of every size, and all functions of them, one a row."""
    x = angles(60_000, 5)
    return [x, x[np.random.default_rng(6).permutation(len(x))]], evaluated(
        x, x[np.random.default_rng(6).permutation(len(x))]
    )


def evaluated(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return all functions of the inputs, one a row; one kernel, because compiling takes the time."""
    lines = [
        f"o[{n} * threads_per_grid.x + i] = msl_{name}f(x[i]{', y[i]' * (name in TWO)});" for n, name in enumerate(OWN)
    ]
    kernel = metal_kernel(
        "functions",
        ["x", "y"],
        ["o"],
        "uint i = thread_position_in_grid.x;\n" + "\n".join(lines),
        HEADER,
        backend=CpuBackend(),
    )
    (got,) = kernel(
        inputs=[mx.array(x), mx.array(y)],
        grid=(len(x), 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[(len(OWN), len(x))],
        output_dtypes=[mx.float32],
    )
    return np.array(got)


@pytest.mark.parametrize("name", OWN)
def test_error_is_within_metals_bound(name: str, measured: Any) -> None:
    inputs, got = measured
    function, most = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        wanted = function(*(one.astype(np.float64) for one in inputs[: 1 + (name in TWO)]))
    errors = last_places(got[OWN.index(name)], wanted)
    at = int(np.argmax(errors))
    assert errors[at] <= most, [one[at] for one in inputs]


def test_edges_are_those_of_c() -> None:
    given = [0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0.5, -0.5, 2, -2, 3, -3, 1e30, 2**24, -(2**25), 7.5]
    special = np.array(given, np.float32)
    x, y = (axis.ravel() for axis in np.meshgrid(special, special))
    got = evaluated(x, y)
    for name in OWN:
        with np.errstate(all="ignore"):
            wanted = FUNCTIONS[name][0](*(one.astype(np.float64) for one in (x, y)[: 1 + (name in TWO)]))
        errors = last_places(got[OWN.index(name)], wanted)
        assert (errors <= max(FUNCTIONS[name][1], 1)).all(), (name, x[errors.argmax()], y[errors.argmax()])
        if name in TWO | {"sin", "atan", "sinh"}:  # the sign of zero
            zero = (wanted == 0) & (got[OWN.index(name)] == 0)
            assert (np.signbit(wanted[zero]) == np.signbit(got[OWN.index(name)][zero])).all(), name
