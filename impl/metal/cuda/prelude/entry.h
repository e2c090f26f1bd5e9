// From CUDA's launch of whole blocks to Metal's of exactly the grid's threads. A block is one row of as many threads as
// a full threadgroup has. The group at the edge of the grid is smaller: its threads are the block's first ones, so that
// simdgroups are the same 32 threads as in Metal, and the rest returns at once.
#pragma once

// grid and full_size of `group` are given; returns whether this thread exists.
inline bool msl_enter(__private msl_group& group, __private msl_u32& x, __private msl_u32& y, __private msl_u32& z,
                      __private msl_u32& index) {
  msl_u32 number = (msl_u32)__nvvm_read_ptx_sreg_ctaid_x() +
                   (msl_u32)__nvvm_read_ptx_sreg_nctaid_x() * (msl_u32)__nvvm_read_ptx_sreg_ctaid_y();
  for (int i = 0; i < 3; ++i) group.groups[i] = (group.grid[i] - 1u) / group.full_size[i] + 1u;
  msl_u32 planes = number / group.groups[0];
  group.position[0] = number - planes * group.groups[0];
  group.position[2] = planes / group.groups[1];
  group.position[1] = planes - group.position[2] * group.groups[1];
  if (group.position[2] >= group.groups[2]) return false;
  for (int i = 0; i < 3; ++i) {
    group.origin[i] = group.position[i] * group.full_size[i];
    msl_u32 left = group.grid[i] - group.origin[i];
    group.size[i] = left < group.full_size[i] ? left : group.full_size[i];
  }
  group.threads = group.size[0] * group.size[1] * group.size[2];
  group.full_threads = group.full_size[0] * group.full_size[1] * group.full_size[2];
  index = (msl_u32)__nvvm_read_ptx_sreg_tid_x();
  msl_u32 row = index / group.size[0];
  x = index - row * group.size[0];
  z = row / group.size[1];
  y = row - z * group.size[1];
  return index < group.threads;
}

// Fills the threadgroup variables with NaN; lowering.py writes it, with a call of msl_fill for each.
extern "C" __attribute__((convergent)) void msl_poison(msl_u32 index, msl_u32 threads);
// `bytes` is a whole number of the words that `begin` is aligned to, or a few bytes more.
extern "C" void msl_fill(__local unsigned char* begin, msl_u32 bytes, msl_u32 index, msl_u32 threads) {
  for (msl_u32 i = index; i < bytes / 4u; i += threads) ((__local msl_u32*)begin)[i] = 0xffffffffu;
  if (index < bytes % 4u) begin[(bytes & ~3u) + index] = 0xff;
}
