// How a compiled kernel and the runtime call each other. Included by both sides, and by them alone.
#pragma once
#include "runtime_api.h"

#ifdef __OPENCL_CPP_VERSION__
typedef unsigned long msl_u64;
#else
typedef uint64_t msl_u64;
#endif

// What all threads of one threadgroup share. `size` is the group's own: Metal cuts the last group of each row off at
// the edge of the grid (dispatchThreads), and threads_per_threadgroup then gives the smaller number.
struct msl_group {
  msl_u32 position[3];
  msl_u32 origin[3];  // position in the grid of the group's first thread
  msl_u32 size[3];
  msl_u32 full_size[3];
  msl_u32 grid[3];
  msl_u32 groups[3];
  msl_u32 threads;
  msl_u32 full_threads;
};

#define MSL_LOOP_DEPTH 4  // convergence.py: MOST_DEPTH

#ifndef __OPENCL_CPP_VERSION__
extern "C" {
// The marks of convergence.py. The thread comes to the call with this number next; it enters a loop at this depth; it
// goes round that loop once more.
void msl_rt_at(msl_u32 place);
void msl_rt_enter_loop(msl_u32 depth);
void msl_rt_next_round(msl_u32 depth);
// Runs one thread; x, y, z is its place in the threadgroup and index its number there.
typedef void (*msl_thread_function)(const msl_u64* buffers, const msl_group*, msl_u32 x, msl_u32 y, msl_u32 z,
                                    msl_u32 index);
// Runs all threads of a group, one after another: for kernels in which no thread waits for another.
typedef void (*msl_group_function)(const msl_u64* buffers, const msl_group*);
// Fills the kernel's threadgroup variables with NaN bytes.
typedef void (*msl_poison_function)();
}
#endif
