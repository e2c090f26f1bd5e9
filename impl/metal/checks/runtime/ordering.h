// Which accesses are ordered: what barriers, meetings of simdgroups and a thread's own program say.
//
// Lanes run one after another, so what happened first says nothing; what counts is whether anything orders two accesses
// in every run. Barriers count epochs of the whole threadgroup. Meetings give lanes of one simdgroup stamps: an access
// with a lower stamp than a meeting in which both lanes took part, also by way of other lanes, is ordered.
#pragma once
#include "faults.h"
#include "regions.h"

namespace msl {

constexpr uint32_t kMostThreads = 1024, kMostSimdgroups = 32;
constexpr uint32_t kMemDevice = 1, kMemThreadgroup = 2;  // metal::mem_flags

struct Ordering {
  uint32_t group;                     // running one, from 1
  uint32_t epoch;                     // barriers passed by it
  uint32_t covered_device, covered_threadgroup;  // the epoch that the last barrier with this flag began
  uint32_t flags;                     // of the barriers at which threads wait: those that all have
  uint32_t stamp[kMostSimdgroups];    // meetings so far
  uint32_t all_met[kMostSimdgroups];  // stamp of the last one with all lanes that had not returned
  uint32_t met[kMostThreads][MSL_SIMD_WIDTH];  // stamp up to which this thread comes after that lane
  uint32_t waiting[kMostSimdgroups];  // lanes at a meeting
};
inline Ordering order;

inline uint32_t thread_now() { return active->current * MSL_SIMD_WIDTH + active->lane; }

inline void begin_group() {
  order.group++;
  order.epoch = order.covered_device = order.covered_threadgroup = 0;
  order.flags = ~0u;
  memset(order.waiting, 0, sizeof order.waiting);
}

// Called by the first lane that goes on after a meeting of `lanes`.
inline void lanes_met(uint32_t simdgroup, uint32_t lanes, uint32_t running) {
  uint32_t stamp = ++order.stamp[simdgroup];
  if (lanes == running) {
    order.all_met[simdgroup] = stamp;
    return;
  }
  uint32_t joint[MSL_SIMD_WIDTH] = {};
  for (uint32_t m = lanes; m; m &= m - 1) {
    const uint32_t* known = order.met[simdgroup * MSL_SIMD_WIDTH + static_cast<uint32_t>(__builtin_ctz(m))];
    for (uint32_t i = 0; i < MSL_SIMD_WIDTH; i++) joint[i] = joint[i] > known[i] ? joint[i] : known[i];
  }
  for (uint32_t m = lanes; m; m &= m - 1) joint[__builtin_ctz(m)] = stamp;
  for (uint32_t m = lanes; m; m &= m - 1) {
    memcpy(order.met[simdgroup * MSL_SIMD_WIDTH + static_cast<uint32_t>(__builtin_ctz(m))], joint, sizeof joint);
  }
}

// Called by the first thread that goes on after a barrier.
inline void barrier_opened() {
  order.epoch++;
  if (order.flags & kMemDevice) order.covered_device = order.epoch;
  if (order.flags & kMemThreadgroup) order.covered_threadgroup = order.epoch;
  order.flags = ~0u;
}

inline Record record_now(uint32_t site, bool atomic, bool ordering) {
  uint32_t thread = thread_now();
  Record r;
  r.group = order.group;
  r.thread = thread & 1023u;
  r.atomic = atomic;
  r.ordering = ordering;
  r.site = site & 0xFFFFFu;
  r.epoch = order.epoch;
  r.stamp = order.stamp[thread / MSL_SIMD_WIDTH];
  return r;
}

// Whether the earlier access `r` comes before what `now` does in every run.
inline bool ordered(const Record& r, const Record& now, uint32_t kind) {
  if (r.group != now.group) return false;
  if (r.thread == now.thread) return true;
  if ((kind == kThreadgroup ? order.covered_threadgroup : order.covered_device) > r.epoch) return true;
  uint32_t simdgroup = now.thread / MSL_SIMD_WIDTH;
  if (r.thread / MSL_SIMD_WIDTH != simdgroup) return false;
  return r.stamp < order.all_met[simdgroup] || r.stamp < order.met[now.thread][r.thread % MSL_SIMD_WIDTH];
}

}  // namespace msl
