"""Runs a piece of Metal text on the CPU backend and returns what it stored, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import metal_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FLOATS = {"float": mx.float32, "half": mx.float16, "bfloat16_t": mx.bfloat16}
INTEGERS = {
    "int8_t": mx.int8,
    "uint8_t": mx.uint8,
    "int16_t": mx.int16,
    "uint16_t": mx.uint16,
    "int": mx.int32,
    "uint32_t": mx.uint32,
    "int64_t": mx.int64,
    "uint64_t": mx.uint64,
}


def mostly_slow(names: Iterable[str], quick: Iterable[str]) -> list[Any]:
    """Return parameters for pytest: `quick` ones run always, the others with `-m slow` (each compiles a kernel)."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.slow) for name in names]


def run(
    source: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, tuple[Sequence[int], mx.Dtype]],
    *,
    threads: int = 1,
    group: int | None = None,
    header: str = "",
    template: Mapping[str, Any] | None = None,
    init_value: float | None = None,
    atomic_outputs: bool = False,
    row_contiguous: bool = True,
) -> list[Any]:
    """Return one array an output; bfloat16 comes back as float32."""
    kernel = metal_kernel(
        "probe", list(inputs), list(outputs), source, header, row_contiguous, atomic_outputs, backend="cpu"
    )
    arrays = kernel(
        inputs=[x if isinstance(x, mx.array) else mx.array(x) for x in inputs.values()],
        template=list((template or {}).items()),
        grid=(threads, 1, 1),
        threadgroup=(group or threads, 1, 1),
        output_shapes=[shape for shape, _ in outputs.values()],
        output_dtypes=[dtype for _, dtype in outputs.values()],
        init_value=init_value,
    )
    return [np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a) for a in arrays]


# Stores a scalar or all components of a vector as floats, and returns the place after them.
_PUT = """
template <typename V, typename E> inline device float *put_all(device float *y, V v, int n) {
  for (int i = 0; i < n; ++i) y[i] = float(E(v[i]));
  return y + n;
}
inline device float *put(device float *y, float v) { *y = v; return y + 1; }
template <typename E> inline device float *put(device float *y, vec<E, 2> v) { return put_all<vec<E, 2>, E>(y, v, 2); }
template <typename E> inline device float *put(device float *y, vec<E, 3> v) { return put_all<vec<E, 3>, E>(y, v, 3); }
template <typename E> inline device float *put(device float *y, vec<E, 4> v) { return put_all<vec<E, 4>, E>(y, v, 4); }
inline device float *put(device float *y, bool2 v) { return put_all<bool2, bool>(y, v, 2); }
inline device float *put(device float *y, bool3 v) { return put_all<bool3, bool>(y, v, 3); }
inline device float *put(device float *y, bool4 v) { return put_all<bool4, bool>(y, v, 4); }
"""


def values(
    probes: Mapping[str, Any], *, before: str = "", header: str = "", inputs: Mapping[str, Any] | None = None
) -> None:
    """Evaluate every expression and compare with its value (a number or the components of a vector), exactly.

    `before` is the text that declares what the expressions use.
    """
    wanted = [np.atleast_1d(np.asarray(v, np.float64)) for v in probes.values()]
    stores = "\n".join(f"at = put(at, {expression});" for expression in probes)
    source = f"device float *at = y;\n{before}\n{stores}\n"
    total = sum(w.size for w in wanted)
    (got,) = run(
        source, inputs or {"x": np.arange(1, 9, dtype=np.float32)}, {"y": ((total,), mx.float32)}, header=_PUT + header
    )
    place = 0
    for expression, want in zip(probes, wanted, strict=True):
        seen = got[place : place + want.size]
        place += want.size
        np.testing.assert_array_equal(seen, want, err_msg=expression)
