"""MLX's own Metal helpers: those it puts before every kernel, run; the other headers that authors paste, compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from impl.metal.toolchain import find_toolchain, front_end_flags
from impl.metal.vector_syntax import rewrite
from tests.impl.prelude.run import run, values

INCLUDE = Path(mx.__file__).parent / "include"
KERNELS = INCLUDE / "mlx/backend/metal/kernels"
# Before every kernel already.
PREPENDED = {KERNELS / f"{name}.h" for name in ("utils", "bf16", "bf16_math", "complex", "defines", "logging")}
PASTED = [
    *(
        "atomic.h",
        "binary_ops.h",
        "cexpf.h",
        "erf.h",
        "expm1f.h",
        "fp4.h",
        "fp8.h",
        "quantized_utils.h",
        "reduce_utils.h",
    ),
    *("sdpa_blocked.h", "ternary_ops.h", "unary_ops.h"),
    *("steel/attn/attn.h", "steel/attn/loader.h", "steel/attn/mma.h", "steel/gemm/gemm.h", "steel/gemm/loader.h"),
    *("steel/gemm/mma.h", "steel/gemm/transforms.h", "steel/utils.h", "steel/utils/integral_constant.h"),
]


def test_index_and_scalar_helpers() -> None:
    values(
        {
            "ceildiv(7, 2)": 4,
            "Limits<float>::max": np.inf,
            "Limits<half>::finite_max": 65504,
            "float(Limits<bfloat16_t>::min)": -np.inf,
            "Limits<int>::min >> 8": -(2**23),
            "WorkPerThread<half>::n": 4,
            "log1p(0.0f)": 0,
            "hypot(3.0f, 4.0f)": 5,
            "cast_to<bool>(0.5f)": 1,
            "(complex64_t(1.0f, 2.0f) * complex64_t(3.0f, 4.0f)).real": -5,
            "(complex64_t(1.0f, 2.0f) / complex64_t(0.0f, 1.0f)).imag": -1,
            "float(complex64_t(2.0f))": 2,
        }
    )


def test_locations_of_a_strided_array_and_wide_shuffles() -> None:
    # What a kernel does with ensure_row_contiguous=False, in the three ways that MLX has for it.
    x = mx.arange(60).reshape(3, 4, 5).transpose(2, 0, 1)
    source = """
    uint i = thread_position_in_grid.x;
    LoopedElemToLoc<3, long> walk(x_ndim);
    for (uint k = 0; k < i; ++k) walk.next(x_shape, x_strides);
    uint3 place = uint3(i % 4, i / 4 % 3, i / 12);
    y[i] = x[elem_to_loc(i, x_shape, x_strides, x_ndim)];
    z[i] = x[walk.location()] + x[elem_to_loc(place, x_shape, x_strides, x_ndim)];
    uint64_t wide = 0x100000000ul * i + i;
    complex64_t c(float(i), -float(i));
    bool low = simd_shuffle(wide, 5) == 0x500000005ul, down = simd_shuffle_down(c, 3).imag == -float(min(i + 3, 31u));
    if (i < 32) w[i] = low + 2 * down;
    """
    y, z, w = run(
        source,
        {"x": x},
        {"y": ((60,), mx.int32), "z": ((60,), mx.int32), "w": ((32,), mx.int32)},
        threads=60,
        row_contiguous=False,
    )
    assert y.tolist() == np.array(x).reshape(-1).tolist()
    assert z.tolist() == (2 * np.array(x).reshape(-1)).tolist()
    # Lanes 29 to 31 keep their own value, which is the last one's for lane 31 only.
    assert w.tolist() == [3] * 29 + [1, 1, 3]


def _flattened(path: Path, seen: set[Path]) -> str:
    if path in seen or path in PREPENDED:
        return ""
    seen.add(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith('#include "mlx/'):
            lines.append(_flattened(INCLUDE / line.split('"')[1], seen))
        elif not line.startswith("#pragma once"):
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", PASTED)
def test_headers_that_authors_paste_compile(name: str, tmp_path: Path) -> None:
    header, body = rewrite(_flattened(KERNELS / name, set()), "y[0] = 1;")
    unit = f'#include "metal_prelude.h"\n{header}\n__kernel void run(device float* y) {{ {body} }}\n'
    (tmp_path / "unit.cl").write_text(unit, encoding="utf-8")
    toolchain = find_toolchain()
    flags = [*front_end_flags(), "-target", toolchain.target, "-w", "-fsyntax-only"]
    ran = subprocess.run(
        [*toolchain.clang, *flags, str(tmp_path / "unit.cl")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[:2000]
