"""Correct kernels, however close they come to a fault: nothing may be found in them, and their outputs are right."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import metal_kernel
from tests.impl.checked_kernels import CORRECT, Kernel, checked

QUICK = {"tree", "components_of_one_vector", "unused_memory"}


def _cases() -> list[object]:
    return [
        pytest.param(k, id=k.name, marks=() if k.name in QUICK else (pytest.mark.slow, pytest.mark.exhaustive))
        for k in CORRECT
    ]


@pytest.mark.parametrize("kernel", _cases())
def test_nothing_is_found_in_a_correct_kernel(kernel: Kernel) -> None:
    output, told = checked(kernel)
    assert told.findings == ()
    assert told.skipped == ()
    inputs = kernel.inputs()
    run = metal_kernel(
        kernel.name,
        ["x"],
        ["y"],
        kernel.source,
        header=kernel.header,
        ensure_row_contiguous=kernel.contiguous,
        atomic_outputs=kernel.atomic,
        backend="cpu",
    )
    (plain,) = run(
        inputs=inputs,
        grid=kernel.threads,
        threadgroup=kernel.threadgroup,
        output_shapes=[(kernel.size,)],
        output_dtypes=[kernel.dtype],
        init_value=kernel.init,
    )
    # Cores share out threadgroups, so what atomics hand out may come in another order.
    a, b = (np.sort(np.asarray(one.astype(mx.float32))) for one in (output, plain))
    np.testing.assert_array_equal(a, b)
