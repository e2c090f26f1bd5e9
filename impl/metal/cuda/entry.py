"""The kernel that CUDA launches: it finds this thread's place and calls Metal's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impl.metal.cuda.lowering import ENTRY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from impl.metal.signature import Buffer

SIZES = ("grid_x", "grid_y", "grid_z", "group_x", "group_y", "group_z")


def entry(buffers: Sequence[Buffer], call: str) -> str:
    """Return the entry's text: the addresses of `buffers` are its parameters, then SIZES; `call` calls the kernel."""
    parameters = [f"{buffer.cast} buffer_{i}" for i, buffer in enumerate(buffers)] + [f"int {name}" for name in SIZES]
    addresses = ", ".join(f"(msl_u64)buffer_{i}" for i in range(len(buffers))) or "0"
    sizes = ", ".join(f"(msl_u32){name}" for name in SIZES)
    return f"""#line 1 "entry"
__kernel void {ENTRY_NAME}({", ".join(parameters)}) {{
  const __private msl_u64 buffers[] = {{{addresses}}};
  const __private msl_u32 sizes[] = {{{sizes}}};
  msl_group group;
  msl_u32 x, y, z, index;
  for (int i = 0; i < 3; ++i) {{
    group.grid[i] = sizes[i];
    group.full_size[i] = sizes[3 + i];
  }}
  if (!msl_enter(group, x, y, z, index)) return;
  msl_poison(index, group.threads);
  const __private msl_group* g = &group;
  {call};
}}
"""
