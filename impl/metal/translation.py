"""Writes the translation unit that clang compiles: prelude, header, the kernel, and how the runtime enters it.

clang's "C++ for OpenCL" refuses templates as kernels, so template arguments become `using` and `constexpr` lines.
`#line` lines make every message and every call site speak of the author's own lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from impl.metal.signature import ATTRIBUTES, Text, attributes, buffers, type_name
from impl.metal.vector_syntax import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from impl.metal.signature import Buffer, InputType, TemplateArgument

KERNEL = "msl_kernel"
SOURCE_FILE = "source"
HEADER_FILE = "header"

# What each attribute is, in terms of the group `g` and the thread's place `x, y, z` and number `index` in it.
_VALUES = {
    "dispatch_quadgroups_per_threadgroup": "(g->full_threads + 3u) / 4u",
    "dispatch_simdgroups_per_threadgroup": "(g->full_threads + 31u) / 32u",
    "dispatch_threads_per_threadgroup": "(uint3)(g->full_size[0], g->full_size[1], g->full_size[2])",
    "grid_origin": "(uint3)(0u, 0u, 0u)",
    "grid_size": "(uint3)(g->grid[0], g->grid[1], g->grid[2])",
    "quadgroup_index_in_threadgroup": "index / 4u",
    "quadgroups_per_threadgroup": "(g->threads + 3u) / 4u",
    "simdgroup_index_in_threadgroup": "index / 32u",
    "simdgroups_per_threadgroup": "(g->threads + 31u) / 32u",
    "thread_execution_width": "32u",
    "thread_index_in_quadgroup": "index % 4u",
    "thread_index_in_simdgroup": "index % 32u",
    "thread_index_in_threadgroup": "index",
    "thread_position_in_grid": "(uint3)(g->origin[0] + x, g->origin[1] + y, g->origin[2] + z)",
    "thread_position_in_threadgroup": "(uint3)(x, y, z)",
    "threadgroup_position_in_grid": "(uint3)(g->position[0], g->position[1], g->position[2])",
    "threadgroups_per_grid": "(uint3)(g->groups[0], g->groups[1], g->groups[2])",
    "threads_per_grid": "(uint3)(g->grid[0], g->grid[1], g->grid[2])",
    "threads_per_simdgroup": "32u",
    "threads_per_threadgroup": "(uint3)(g->size[0], g->size[1], g->size[2])",
}


def translation_unit(
    text: Text,
    inputs: Sequence[InputType],
    output_dtypes: Sequence[mx.Dtype],
    template: Sequence[tuple[str, TemplateArgument]],
    entry: Callable[[Sequence[Buffer], str], str] | None = None,
) -> str:
    """Return the text that follows `#include "precompiled.h"`, which brings the prelude and the runtime's types.

    entry: writes what calls the kernel, from its buffers and the call, in which the buffers' addresses are `buffers`,
    the group `g` and the thread's place `x`, `y`, `z` and `index`. The CPU runtime's unless given.
    """
    given = buffers(text, inputs, output_dtypes)
    header, source = rewrite(text.header, text.source)
    named = attributes(text.source)
    parameters = ",\n  ".join([b.declaration for b in given] + [f"{ATTRIBUTES[name]} {name}" for name in named])
    arguments = ", ".join(
        [f"{'*' if b.by_reference else ''}({b.cast})buffers[{i}]" for i, b in enumerate(given)]
        + [_VALUES[name] for name in named]
    )
    # In a namespace of their own they shadow names of the header, and the body begins with its own first line: a
    # pragma on floating point must.
    fixed = "".join(f"{_template_line(name, value)}\n" for name, value in template)
    return (
        f'#line 1 "{HEADER_FILE}"\n{header}\n'
        f'#line 1 "signature"\nnamespace msl_arguments {{\n{fixed}__kernel void {KERNEL}(\n  {parameters}) {{\n'
        f'#line 1 "{SOURCE_FILE}"\n{source}\n}}\n}}\nusing msl_arguments::{KERNEL};\n'
        f"{(entry or _entries)(given, f'{KERNEL}({arguments})')}"
    )


def _template_line(name: str, value: TemplateArgument) -> str:
    if isinstance(value, mx.Dtype):
        return f"using {name} = {type_name(value)};"
    return f"constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {str(value).lower()};"


def _entries(_: Sequence[Buffer], call: str) -> str:
    return f"""#line 1 "entry"
extern "C" void msl_run_thread(const __private msl_u64* buffers, const __private msl_group* g,
                               msl_u32 x, msl_u32 y, msl_u32 z, msl_u32 index) {{
  {call};
}}
extern "C" void msl_run_group(const __private msl_u64* buffers, const __private msl_group* given) {{
  // A copy: no store of the kernel can change it, so the loops below may be vectorized.
  const __private msl_group copy = *given;
  const __private msl_group* g = &copy;
  msl_u32 index = 0;
  for (msl_u32 z = 0; z < copy.size[2]; ++z)
    for (msl_u32 y = 0; y < copy.size[1]; ++y)
      for (msl_u32 x = 0; x < copy.size[0]; ++x, ++index) {call};
}}
"""
