// What the prelude asks of the runtime (runtime/*.cpp). Both sides include this file: the prelude in clang's "C++ for
// OpenCL", where pointers carry an address space, and the runtime in plain C++, where they do not.
#pragma once

#ifdef __OPENCL_CPP_VERSION__
#define MSL_PRIVATE __private
typedef unsigned int msl_u32;
#else
#include <stdint.h>
#define MSL_PRIVATE
typedef uint32_t msl_u32;
#endif

#define MSL_SIMD_WIDTH 32
#define MSL_MAX_VALUE_BYTES 32

// Identifies a call site inside the kernel's text. As a default argument it is evaluated where the caller stands:
//     template <class T> T simd_sum(T value, msl_u32 site = MSL_SITE)
// It is a plain number so that a report can name line and column: site >> 10 and site & 1023.
#define MSL_SITE ((msl_u32)__builtin_LINE() << 10 | ((msl_u32)__builtin_COLUMN() & 1023u))

// The lanes of one simdgroup that met at one call site.
struct msl_meeting {
  // Lane i's value begins at i * bytes, with the `bytes` that were given to msl_rt_meet, so this is an array of T.
  // Lanes that did not take part hold 0xFF bytes.
  alignas(64) unsigned char values[MSL_SIMD_WIDTH * MSL_MAX_VALUE_BYTES];
  // For work that is the same for all lanes, such as a reduction: the first lane that finds `computed` 0 does it,
  // puts the answer into `result` and sets `computed`; the others read it. Lanes run one after another: no atomics.
  alignas(64) unsigned char result[64];
  msl_u32 computed;
  msl_u32 active;  // bit i: lane i took part
};

extern "C" {
// Waits for the other lanes of this simdgroup that come to the same call site, and shows what all of them brought.
// `value` is read until the call returns; the meeting stays valid until this lane's next call of msl_rt_meet, and
// must not be used after it. bytes <= MSL_MAX_VALUE_BYTES; 0 (with any pointer) makes it a simdgroup barrier.
MSL_PRIVATE struct msl_meeting* msl_rt_meet(const MSL_PRIVATE void* value, msl_u32 bytes, msl_u32 site);

// Waits for every thread of the threadgroup that has not returned.
void msl_rt_threadgroup_barrier(msl_u32 site);

// The number of this thread in its simdgroup, 0 to 31.
msl_u32 msl_rt_lane(void);

// Counts an event that the kernel's author wants to know of. Never stops the kernel.
enum msl_event {
  MSL_READ_OF_INACTIVE_LANE = 0,  // a shuffle or broadcast read a lane that did not take part
  MSL_EVENT_KINDS = 4
};
void msl_rt_event(msl_u32 kind, msl_u32 site);
}
