"""Kernels for the tests of the checks: faulty ones with what must be found in them, and correct ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.metal import metal_kernel
from impl.metal.checks import Checked, CheckingBackend, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

RAMP = tuple(range(64))


@dataclass(frozen=True)
class Kernel:
    """A kernel with one input `x` and one output `y`, and a launch of it."""

    name: str
    source: str
    header: str = ""
    threads: tuple[int, int, int] = (64, 1, 1)
    threadgroup: tuple[int, int, int] = (64, 1, 1)
    inputs: Callable[[], list[mx.array]] = lambda: [mx.array(RAMP, mx.float32)]
    size: int = 64
    dtype: mx.Dtype = mx.float32
    contiguous: bool = True
    atomic: bool = False
    init: float | None = None


@dataclass(frozen=True)
class Faulty:
    """A kernel, and for its one finding the fault, the lines and words of the message."""

    kernel: Kernel
    fault: Fault
    lines: tuple[int, ...]
    words: str


def checked(kernel: Kernel, **settings: Any) -> tuple[mx.array, Checked]:
    """Run with checks; return the output and what was found."""
    told: list[Checked] = []
    inputs = kernel.inputs()
    run = metal_kernel(
        kernel.name,
        ["x", "z"][: len(inputs)],
        ["y"],
        kernel.source,
        header=kernel.header,
        ensure_row_contiguous=kernel.contiguous,
        atomic_outputs=kernel.atomic,
        backend=CheckingBackend(told.append, **settings),
    )
    (output,) = run(
        inputs=inputs,
        grid=kernel.threads,
        threadgroup=kernel.threadgroup,
        output_shapes=[(kernel.size,)],
        output_dtypes=[kernel.dtype],
        init_value=kernel.init,
    )
    (one,) = told
    return output, one


def _every_second() -> list[mx.array]:
    return [mx.array(tuple(range(128)), mx.float32)[::2]]


def _integers() -> list[mx.array]:
    return [mx.array(RAMP, mx.int32)]


FAULTY = [
    Faulty(
        Kernel("write_past", "uint i = thread_position_in_grid.x;\ny[i] = x[i];\nif (i == 63)\n  y[i + 1] = 0;"),
        Fault.OUT_OF_BOUNDS_WRITE,
        (4,),
        "writes y[64], but y has 64 elements",
    ),
    Faulty(
        Kernel("read_before", "uint i = thread_position_in_grid.x;\ny[i] =\n  x[int(i) - 1];"),
        Fault.OUT_OF_BOUNDS_READ,
        (3,),
        "thread 0 reads x[-1], but x has 64 elements",
    ),
    Faulty(
        Kernel(
            "read_far", "uint i = thread_position_in_grid.x;\nconst device float* p = x + i * 100000000u;\ny[i] = *p;"
        ),
        Fault.OUT_OF_BOUNDS_READ,
        (3,),
        "thread 1 reads x[100000000]",
    ),
    Faulty(
        Kernel(
            "helper_reads_past",
            "uint i = thread_position_in_grid.x;\ny[i] = next(x, i);",
            header="inline float next(const device float* p, uint i) {\n  return p[i + 1];\n}\n",
        ),
        Fault.OUT_OF_BOUNDS_READ,
        (2,),
        "reads x[64]",
    ),
    Faulty(
        Kernel(
            "vector_past",
            "uint i = thread_position_in_grid.x;\nfloat4 v = *(device float4*)(x + i);\ny[i] = v.x + v.w;",
        ),
        Fault.OUT_OF_BOUNDS_READ,
        (2,),
        "thread 61 reads x[61] and 3 after it, but x has 64 elements",
    ),
    Faulty(
        Kernel(
            "threadgroup_past",
            "threadgroup float other[64];\nthreadgroup float s[63];\nthreadgroup float third[64];\n"
            "uint i = thread_position_in_grid.x;\nother[i] = third[i] = 1;\ns[i] = x[i];\n"
            "y[i] = i < 63 ? s[i] : other[i] + third[i];",
        ),
        Fault.OUT_OF_BOUNDS_WRITE,
        (6,),
        "thread 63 writes s[63], but s has 63 elements",
    ),
    Faulty(
        Kernel(
            "private_past",
            "uint i = thread_position_in_grid.x;\nfloat sums[4] = {0};\nfloat after[4] = {0};\n"
            "for (uint k = 0; k <= 4; ++k)\n  sums[k] = x[i];\ny[i] = sums[i & 3] + after[i & 3];",
        ),
        Fault.OUT_OF_BOUNDS_WRITE,
        (5,),
        "writes sums[4], but sums has 4 elements",
    ),
    Faulty(
        Kernel(
            "helper_past_private",
            "uint i = thread_position_in_grid.x;\nfloat w[4] = {0}, after[4] = {0};\nfill(w, x[i]);\n"
            "y[i] = w[i & 3] + after[i & 3];",
            header="inline void fill(thread float* to, float v) {\n  for (uint k = 0; k < 5; ++k)\n    to[k] = v;\n}\n",
        ),
        Fault.OUT_OF_BOUNDS_WRITE,
        (3,),
        "writes w[4], but w has 4 elements",
    ),
    Faulty(
        Kernel(
            "table_past",
            "uint i = thread_position_in_grid.x;\ny[i] = table[i / 16];",
            header="constant float table[3] = {1, 2, 3};\n",
        ),
        Fault.OUT_OF_BOUNDS_READ,
        (2,),
        "thread 48 reads table[3], but table has 3 elements",
    ),
    Faulty(
        Kernel("gap", "uint i = thread_position_in_grid.x;\ny[i] = x[i];", inputs=_every_second, contiguous=False),
        Fault.OUT_OF_BOUNDS_READ,
        (2,),
        "thread 1 reads x[1] as it lies in memory, between the elements of this view",
    ),
    Faulty(
        Kernel("to_input", "uint i = thread_position_in_grid.x;\n((device float*)x)[i] = 0;\ny[i] = 1;"),
        Fault.OUT_OF_BOUNDS_WRITE,
        (2,),
        "writes x[0], which is an input",
    ),
    Faulty(
        Kernel(
            "missing_barrier",
            "threadgroup float s[64];\nuint i = thread_position_in_grid.x;\ns[i] = x[i];\ny[i] =\n  s[63 - i];",
        ),
        Fault.RACE,
        (5, 3),
        "with no threadgroup_barrier(mem_flags::mem_threadgroup) between",
    ),
    Faulty(
        Kernel(
            "wrong_flag",
            "threadgroup float s[64];\nuint i = thread_position_in_grid.x;\ns[i] = x[i];\n"
            "threadgroup_barrier(mem_flags::mem_device);\ny[i] = s[63 - i];",
        ),
        Fault.RACE,
        (5, 3),
        "the barrier between them lacks mem_flags::mem_threadgroup",
    ),
    Faulty(
        Kernel(
            "wrong_flag_for_device",
            "uint i = thread_position_in_grid.x;\ny[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "float v = y[63 - i];\nthreadgroup_barrier(mem_flags::mem_device);\ny[i] = v;",
        ),
        Fault.RACE,
        (4, 2),
        "the barrier between them lacks mem_flags::mem_device",
    ),
    Faulty(
        # As in mlx-lm's losses: all numbers are right in forward order.
        Kernel(
            "read_then_overwritten",
            "threadgroup float s[32];\nuint i = thread_position_in_grid.x, lane = i % 32, group = i / 32;\n"
            "if (i < 32) s[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "float v = s[lane];\nfloat sum = simd_sum(v);\nif (lane == 0)\n  s[group] = sum;\n"
            "threadgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = v + s[0];",
        ),
        Fault.RACE,
        (8, 5),
        "s[0], which",
    ),
    Faulty(
        Kernel(
            "lanes_without_order",
            "threadgroup float s[32];\nuint i = thread_position_in_grid.x;\ns[i] = x[i];\ny[i] = s[i ^ 1];",
            threads=(32, 1, 1),
            threadgroup=(32, 1, 1),
            size=32,
        ),
        Fault.RACE,
        (4, 3),
        "or simdgroup_barrier between",
    ),
    Faulty(
        Kernel(
            "atomic_and_plain",
            "threadgroup atomic_uint count;\nuint i = thread_position_in_grid.x;\n"
            "if (i == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);\n"
            "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed);\n"
            "y[i] = *(threadgroup uint*)&count;\n",
        ),
        Fault.RACE,
        (6, 5),
        "count[0], which",
    ),
    Faulty(
        Kernel("groups", "uint i = thread_position_in_grid.x;\ny[i % 32] = x[i];", threadgroup=(32, 1, 1), size=32),
        Fault.RACE,
        (2, 2),
        "nothing orders threadgroups of one launch",
    ),
    Faulty(
        Kernel(
            "read_of_another_group",
            "uint i = thread_position_in_grid.x;\nif (i < 32)\n  y[i] = x[i];\nelse\n  y[i] = y[i - 32];",
            threadgroup=(32, 1, 1),
        ),
        Fault.RACE,
        (5, 3),
        "nothing orders threadgroups of one launch",
    ),
    Faulty(
        Kernel("unwritten", "uint i = thread_position_in_grid.x;\nif (i != 7 && i < 60)\n  y[i] = x[i];"),
        Fault.UNWRITTEN_OUTPUT,
        (),
        "5 of 64 elements of y are written by no thread, the first is y[7] (flat: 7, 60 to 63)",
    ),
    Faulty(
        Kernel(
            "uninitialized",
            "threadgroup float s[64];\nuint i = thread_position_in_grid.x;\nif (i > 0) s[i] = x[i];\n"
            "threadgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = s[63 - i];",
        ),
        Fault.UNINITIALIZED_READ,
        (5,),
        "thread 63 reads s[0], which no thread of its threadgroup has written",
    ),
    Faulty(
        Kernel("output_before_written", "uint i = thread_position_in_grid.x;\ny[i] +=\n  x[i];"),
        Fault.UNINITIALIZED_READ,
        (2,),
        "reads y[0], which no thread has written",
    ),
    Faulty(
        Kernel(
            "private_without_value",
            "uint i = thread_position_in_grid.x;\nfloat sums[4];\nfor (uint k = 0; k < 4; ++k) sums[k] += x[i];\n"
            "y[i] = sums[i & 3];",
        ),
        Fault.UNINITIALIZED_READ,
        (2,),
        "sums is used without ever having been given a value",
    ),
    Faulty(
        Kernel(
            "divergent_barrier",
            "uint i = thread_position_in_grid.x;\nif (x[i] < 20)\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "else\n  threadgroup_barrier(mem_flags::mem_device);\ny[i] = x[i];",
        ),
        Fault.DIVERGENT_BARRIER,
        (5,),
        "threads of one threadgroup wait at different barriers",
    ),
    Faulty(
        Kernel(
            "barrier_after_return",
            "uint i = thread_position_in_grid.x;\ny[i] = x[i];\nif (i > 40) return;\n"
            "threadgroup_barrier(mem_flags::mem_threadgroup);",
        ),
        Fault.DIVERGENT_BARRIER,
        (4,),
        "some threads return without reaching this barrier",
    ),
    Faulty(
        Kernel(
            "inactive_lane",
            "uint i = thread_position_in_grid.x;\nfloat v = x[i];\nif (i & 1)\n  v = simd_shuffle_xor(v, 1);\n"
            "y[i] = v;",
        ),
        Fault.INACTIVE_LANE_READ,
        (4,),
        "uses the value of a lane that takes no part here",
    ),
    Faulty(
        Kernel(
            "division_by_zero",
            "uint i = thread_position_in_grid.x;\nint d = x[i] - 3;\ny[i] = 7 / d;",
            inputs=_integers,
            dtype=mx.int32,
        ),
        Fault.UNDEFINED_ARITHMETIC,
        (3,),
        "thread 3 divides 7 by zero",
    ),
    Faulty(
        Kernel(
            "smallest_by_minus_one",
            "uint i = thread_position_in_grid.x;\nint least = INT_MIN + x[i];\ny[i] = least % (x[0] - 1);",
            inputs=_integers,
            dtype=mx.int32,
        ),
        Fault.UNDEFINED_ARITHMETIC,
        (3,),
        "divides -2147483648, the smallest number of its type, by -1",
    ),
    Faulty(
        Kernel("shift_too_far", "uint i = thread_position_in_grid.x;\ny[i] = 1u << i;", dtype=mx.uint32),
        Fault.UNDEFINED_ARITHMETIC,
        (2,),
        "thread 32 shifts a number of 32 bits by 32",
    ),
    Faulty(
        Kernel("conversion", "uint i = thread_position_in_grid.x;\ny[i] =\n  uint(x[i] - 1);", dtype=mx.uint32),
        Fault.UNDEFINED_ARITHMETIC,
        (3,),
        "converts -1 to an unsigned integer of 32 bits",
    ),
]

_TREE = """
    threadgroup float s[64];
    uint i = thread_position_in_grid.x;
    s[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = 32; step > 0; step /= 2) {
        if (i < step) s[i] += s[i + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[i] = s[0];
"""
_MATRIX = """
    simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_load(a, x, 8);
    simdgroup_load(b, x, 8, ulong2(0), true);
    simdgroup_multiply_accumulate(c, a, b, c);
    simdgroup_store(c, y, 8);
"""
CORRECT = [
    Kernel("copy", "uint i = thread_position_in_grid.x; y[i] = x[i];"),
    Kernel("tree", _TREE),
    Kernel(
        "same_value",
        "threadgroup float s[1]; uint i = thread_position_in_grid.x; s[0] = 5;"
        "float v = simd_sum(1.0f); y[i] = s[0] + v; ",
    ),
    Kernel(
        "same_flag_of_groups",
        "uint i = thread_position_in_grid.x; if (x[i] > 40) y[0] = 1;",
        threadgroup=(8, 1, 1),
        size=1,
        init=0,
    ),
    Kernel(
        "atomic_sum",
        "uint i = thread_position_in_grid.x; atomic_fetch_add_explicit(&y[i % 4], x[i], memory_order_relaxed);",
        threadgroup=(16, 1, 1),
        size=4,
        atomic=True,
        init=0,
    ),
    Kernel(
        # Which element comes first depends on the order of threads, as the author accepts.
        "compaction",
        "uint i = thread_position_in_grid.x; uint at = atomic_fetch_add_explicit((device atomic_uint*)&y[0], 1u, "
        "memory_order_relaxed); y[1 + at] = i;",
        threadgroup=(16, 1, 1),
        size=65,
        dtype=mx.uint32,
        init=0,
    ),
    Kernel(
        "histogram",
        "threadgroup atomic_uint bins[8]; uint i = thread_position_in_grid.x;"
        "if (i < 8) atomic_store_explicit(&bins[i], 0u, memory_order_relaxed);"
        "threadgroup_barrier(mem_flags::mem_threadgroup);"
        "atomic_fetch_add_explicit(&bins[uint(x[i]) % 8], 1u, memory_order_relaxed);"
        "threadgroup_barrier(mem_flags::mem_threadgroup);"
        "if (i < 8) y[i] = atomic_load_explicit(&bins[i], memory_order_relaxed);",
        size=8,
        dtype=mx.uint32,
    ),
    Kernel(
        "simdgroup_barrier",
        "threadgroup float s[64]; uint i = thread_position_in_grid.x; s[i] = x[i];"
        "simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[i ^ 7];",
    ),
    Kernel(
        "simd_operation_in_a_branch",
        "threadgroup float s[64]; uint i = thread_position_in_grid.x; s[i] = x[i];"
        "if (i & 1) { float sum = simd_sum(s[i]); s[i] = sum; simdgroup_barrier(mem_flags::mem_threadgroup);"
        " y[i] = s[i ^ 2] + sum; } else y[i] = 0;",
    ),
    Kernel(
        "float3_in_threadgroup_memory",
        "threadgroup float3 s[64]; uint i = thread_position_in_grid.x; s[i] = float3(x[i], 1, 2);"
        "threadgroup_barrier(mem_flags::mem_threadgroup); float3 v = s[63 - i]; y[i] = v.x + v.y + v.z;",
    ),
    Kernel(
        "components_of_one_vector",
        "threadgroup float4 s[16]; uint i = thread_position_in_grid.x; "
        "if (i % 4 == 0) s[i / 4].x = x[i]; else if (i % 4 == 1) s[i / 4].y = x[i];"
        "else s[i / 4][i % 4] = x[i]; "
        "threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[i / 4][i % 4] + s[i / 4].y;",
    ),
    Kernel(
        "swizzles",
        "threadgroup float4 s[32]; uint i = thread_position_in_grid.x; if (i % 2) s[i / 2].yw = float2(x[i], 1);"
        "else s[i / 2].xz = float2(x[i], 2); threadgroup_barrier(mem_flags::mem_threadgroup);"
        "float4 v = s[i / 2]; y[i] = v.x + v.y + v.z + v.w;",
    ),
    Kernel(
        "structs_with_padding",
        "threadgroup P s[64]; uint i = thread_position_in_grid.x; P p; p.a = 1; p.b = x[i]; s[i] = p;"
        "threadgroup_barrier(mem_flags::mem_threadgroup); P q = s[63 - i]; y[i] = q.a + q.b;",
        header="struct P { char a; float b; };\n",
    ),
    Kernel(
        "bytes_of_one_word",
        "threadgroup uchar s[64]; uint i = thread_position_in_grid.x; s[i] = uchar(x[i]);"
        "threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[63 - i];"
        "((device uchar*)y)[i * 4] = 0;",
    ),
    Kernel("half_output", "uint i = thread_position_in_grid.x; y[i] = half(x[i]);", dtype=mx.float16),
    Kernel("early_return", "uint i = thread_position_in_grid.x; if (i >= 50) return; y[i] = simd_max(x[i]);", size=50),
    Kernel(
        "unused_neighbor",
        "uint i = thread_position_in_grid.x; if (i >= 50) return; float v = x[i], w = simd_shuffle_down(v, 1);"
        "y[i] = i + 1 < 50 ? v + w : v;",
        size=50,
    ),
    Kernel(
        "unused_memory",
        "threadgroup float s[32]; uint i = thread_position_in_grid.x; if (i % 32 == 0) s[i / 32] = x[i];"
        "threadgroup_barrier(mem_flags::mem_threadgroup); float v = s[i % 32]; y[i] = i % 32 < 2 ? v : 0;",
    ),
    Kernel(
        "unused_conversion",
        "uint i = thread_position_in_grid.x; float r = 1 / x[i]; int n = int(r * 1e12f); uint s = 1u << i;"
        "y[i] = (r < 1e-3f ? n : 0) + (i < 32 ? s : 0);",
    ),
    Kernel(
        "value_in_every_branch",
        "uint i = thread_position_in_grid.x; float v, w[4]; float3 u; if (i > 5) v = x[i]; else v = 1;"
        "for (uint k = 0; k < 4; ++k) w[k] = k; u.x = v; u.y = w[i & 3]; y[i] = u.x + u.y;",
    ),
    Kernel(
        "strided",
        "uint i = thread_position_in_grid.x; y[i] = x[i * x_strides[0]] + x_shape[0] + x_ndim;",
        inputs=_every_second,
        contiguous=False,
    ),
    Kernel(
        "backwards",
        "uint i = thread_position_in_grid.x; y[i] = x[int(i) * int(x_strides[0])];",
        inputs=lambda: [mx.array(RAMP, mx.float32)[::-1]],
        contiguous=False,
    ),
    Kernel(
        "broadcast_row",
        "uint i = thread_position_in_grid.x; y[i] = x[elem_to_loc(i, x_shape, x_strides, x_ndim)];",
        inputs=lambda: [mx.broadcast_to(mx.arange(8.0)[:, None], (8, 8))],
        contiguous=False,
    ),
    Kernel(
        "in_place_with_init",
        "uint i = thread_position_in_grid.x; if (i < 10) y[i] += x[i];",
        init=1,
    ),
    Kernel(
        "ragged_last_group",
        "threadgroup float s[24]; uint t = thread_index_in_threadgroup, i = thread_position_in_grid.x;"
        "s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[threads_per_threadgroup.x - 1 - t];",
        threadgroup=(24, 1, 1),
    ),
    Kernel(
        "private_by_pointer",
        "uint i = thread_position_in_grid.x; float w[4] = {1, 2, 3, 4}; thread float* p = w; fill(w, x[i]);"
        "p += 2; y[i] = p[1] + p[-2];",
        header="inline void fill(thread float* w, float v) { for (uint k = 0; k < 4; ++k) w[k] += v * k; }\n",
    ),
    Kernel(
        "private_lent_in_turn",
        "uint i = thread_position_in_grid.x; float sum = 0; for (uint k = 0; k < 3; ++k) {"
        "{ float a[4] = {1, 2, 3, 4}; fill(a, x[i]); if (k == 1) continue; sum += a[3]; }"
        "{ float b[16] = {1}; for (uint j = 0; j < 16; j += 4) fill(b + j, x[i]); sum += b[15]; } } y[i] = sum;",
        header="inline void fill(thread float* w, float v) { for (uint k = 0; k < 4; ++k) w[k] += v * k; }\n",
    ),
    Kernel(
        "threadgroup_pointer_to_a_helper",
        "threadgroup float s[64]; uint i = thread_position_in_grid.x; put(s, i, x[i]);"
        "threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[63 - i];",
        header="inline void put(threadgroup float* s, uint i, float v) { s[i] = v; }\n",
    ),
    Kernel("matrix", _MATRIX, threads=(32, 1, 1), threadgroup=(32, 1, 1)),
    Kernel(
        "execution_barrier_after_reads",
        "threadgroup float s[64]; uint i = thread_position_in_grid.x; s[i] = x[i];"
        "threadgroup_barrier(mem_flags::mem_threadgroup); float v = s[63 - i];"
        "threadgroup_barrier(mem_flags::mem_none); s[i] = v; y[i] = s[i];",
    ),
]
