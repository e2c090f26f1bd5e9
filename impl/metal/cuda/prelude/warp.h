// What the prelude asks of a runtime (prelude/runtime_api.h), in NVIDIA's instructions.
#pragma once

#include "../../prelude/runtime_api.h"

// The lanes that come to a place in the kernel's text together. Calls stand in the kernel itself, where masks.py puts
// the lanes in their place.
extern "C" __attribute__((convergent)) msl_u32 msl_rt_lanes(void);

extern "C" inline msl_u32 msl_rt_lane(void) { return (msl_u32)__nvvm_read_ptx_sreg_laneid(); }

// Not the aligned kind, which wants whole warps: lanes that have returned count as arrived, and the others may have
// come on different ways.
extern "C" void msl_rt_threadgroup_barrier(msl_u32) { __nvvm_barrier_sync(0); }

extern "C" inline void msl_rt_event(msl_u32, msl_u32) {}

// The lanes of this warp that the launch has, at the kernel's begin. Not inline: masks.py calls it.
extern "C" msl_u32 msl_entry_lanes(void) {
  msl_u32 here = (msl_u32)__nvvm_read_ptx_sreg_tid_x(), all = (msl_u32)__nvvm_read_ptx_sreg_ntid_x();
  msl_u32 left = all - (here & ~31u);
  return left >= 32u ? 0xffffffffu : (1u << left) - 1u;
}
