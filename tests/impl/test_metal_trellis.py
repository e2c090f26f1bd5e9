"""A trellis product as Metal text against the baseline: every state width, layout and number of splits.

The same test takes the balanced-scatter text of mlx-bun 0.4.0 unmodified, when METAL_ASSAY_SEED names the file that
holds it (`package/src/model/trellis-balanced-scatter.ts`, or a diff with it); the project itself has no copy.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from harness.baseline import trellis
from impl.metal import CpuBackend, metal_kernel

BITS, BLOCK, ROWS, COLUMNS, SIMDGROUPS = 3, 256, 21, 1024, 2
HEADER = """
inline int trellis_y(uint state) {
    uint word = state * 34038481u + 76625530u;
    return int((word & 255u) + ((word >> 8) & 255u) + ((word >> 16) & 255u) + (word >> 24)) - 510;
}
"""
# A simdgroup has a block of columns, a lane every 32nd of them: nothing is unrolled, nothing is clever.
OURS = """
    uint block = threadgroup_position_in_grid.y * (uint)SG_TG + simdgroup_index_in_threadgroup;
    uint blocks = (uint)C / (uint)BT, words = (uint)(BT * K) / 32u;
    uint sample = threadgroup_position_in_grid.z / (uint)SPLITS, split = threadgroup_position_in_grid.z % (uint)SPLITS;
    if (block >= blocks || sample >= (uint)M) return;
    uint each = ((uint)R + (uint)SPLITS - 1u) / (uint)SPLITS;
    for (uint column = thread_index_in_simdgroup; column < (uint)BT; column += 32u) {
        float sum = 0;
        for (uint row = split * each; row < min((uint)R, (split + 1u) * each); ++row) {
            const device uint* code = INTERLEAVE ? codes + ((block / 2u * (uint)R + row) * 2u + block % 2u) * words
                                                 : codes + (row * blocks + block) * words;
            uint state = 0;
            for (uint i = 0; i < (uint)L; ++i) {
                uint bit = (((uint)BT - 1u - column) * (uint)K + i) % (uint)(BT * K);
                state |= (code[bit / 32u] >> (bit % 32u) & 1u) << i;
            }
            float weight = float(trellis_y(state)) * (1.0f / 147.800537109375f) * float(scales[row]);
            sum = fma(weight, float(x[sample * (uint)R + row]), sum);
        }
        partial[(sample * (uint)SPLITS + split) * (uint)C + block * (uint)BT + column] = sum;
    }
"""


def seed_text() -> str:
    """Return the text that METAL_ASSAY_SEED names, empty without one."""
    path = os.environ.get("METAL_ASSAY_SEED", "")
    if not path:
        return ""
    text = Path(path).read_text(encoding="utf-8").partition("BALANCED_SCATTER_SOURCE = String.raw`")[2]
    return re.sub(r"^\+", "", text.partition("`;")[0], flags=re.MULTILINE)


NO_SEED = pytest.mark.skipif(not seed_text(), reason="METAL_ASSAY_SEED is not set")
TEXTS = [
    pytest.param(OURS, id="ours"),
    pytest.param(seed_text(), id="mlx-bun", marks=NO_SEED),
]


def check(source: str, state_bits: int, interleave: bool, splits: int, batch: int, dtype: mx.Dtype, order: str) -> None:
    rng = np.random.default_rng(state_bits)
    words = rng.integers(0, 2**32, (ROWS, COLUMNS // BLOCK, BLOCK * BITS // 32), dtype=np.uint32)
    scales = rng.random(ROWS).astype(np.float32)
    x = mx.array(rng.standard_normal((batch, ROWS)).astype(np.float32)).astype(dtype)
    backend = CpuBackend(lane_order=order, lane_seed=1)
    kernel = metal_kernel("trellis", ["codes", "scales", "x"], ["partial"], source, HEADER, backend=backend)
    template: list[tuple[str, Any]] = [("T", dtype), ("K", BITS), ("BT", BLOCK), ("L", state_bits), ("C", COLUMNS)]
    template += [("R", ROWS), ("M", batch), ("SPLITS", splits), ("SG_TG", SIMDGROUPS), ("INTERLEAVE", interleave)]
    (partial,) = kernel(
        inputs=[mx.array(trellis.lay_out(words, interleave=interleave)), mx.array(scales), x],
        template=template,
        grid=(32 * SIMDGROUPS, COLUMNS // BLOCK // SIMDGROUPS, batch * splits),
        threadgroup=(32 * SIMDGROUPS, 1, 1),
        output_shapes=[(batch, splits, COLUMNS)],
        output_dtypes=[mx.float32],
    )
    matrix = trellis.decode(words, scales, BITS, state_bits, "1mad")
    inputs = np.array(x.astype(mx.float32))
    for split, rows in enumerate(trellis.split_rows(ROWS, splits)):
        part = slice(rows.start, rows.stop)
        got = np.array(partial[:, split], np.float64)
        # The weight is the baseline's to the bit; each fused multiply-add rounds once.
        bound = len(rows) * 2.0**-24 * trellis.absolute_product(inputs[:, part], matrix[part]) * (1 + 2.0**-10)
        assert (np.abs(got - trellis.product(inputs[:, part], matrix[part])) <= bound).all()


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("interleave", [False, True])
def test_trellis_product(source: str, interleave: bool) -> None:
    check(source, 12, interleave, 4, 2, mx.float32, "forward")


@pytest.mark.slow
@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("state_bits", range(8, 13))
@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("splits", [1, 4, 30])
def test_every_trellis_product(source: str, state_bits: int, interleave: bool, splits: int) -> None:
    for order in ("forward", "reverse", "random"):
        check(source, state_bits, interleave, splits, 1, mx.float32, order)
    if splits == 4:
        check(source, state_bits, interleave, splits, 3, mx.bfloat16, "forward")
