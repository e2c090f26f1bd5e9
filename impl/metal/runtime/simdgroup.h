// The state of a threadgroup's threads, and how the lanes of a simdgroup meet.
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include "fiber.h"
#include "launch.h"

namespace msl {

enum Order : uint32_t { kForward = 0, kReverse = 1, kRandom = 2 };

enum Finding : uint32_t {
  kDivergentSimd = 0,       // lanes of a simdgroup waited at different places; those at one place met
  kDivergentBarrier = 1,    // threads of a group waited at different barriers
  kBarrierAfterReturn = 2,  // threads had returned when others waited at a barrier
  kInactiveRead = 3,
  kFindings = 4
};

struct Counts {
  uint64_t count[kFindings];
  uint32_t site[kFindings];  // of the first one
};

struct Simdgroup {
  uint32_t ready, at_simd, at_barrier, done;
  uint32_t fresh;  // ready lanes that have not begun
  uint32_t place[MSL_SIMD_WIDTH];  // number of the call in the kernel's text
  alignas(16) uint32_t rounds[MSL_SIMD_WIDTH][MSL_LOOP_DEPTH];
  uint32_t site[MSL_SIMD_WIDTH];
  uint32_t bytes[MSL_SIMD_WIDTH];
  const void* value[MSL_SIMD_WIDTH];
  Fiber* fiber[MSL_SIMD_WIDTH];
  msl_meeting meeting;
};

struct Scheduler {
  const msl_u64* buffers;
  const msl_group* group;
  msl_thread_function run_thread;
  const int32_t (*places)[MSL_LOOP_DEPTH];  // for each call in the kernel's text the loops it is in
  Order order;
  uint64_t random;
  Counts* counts;
  Simdgroup* simdgroups;
  uint32_t simdgroup_room, simdgroup_count;
  uint32_t current;  // simdgroup
  uint32_t lane;
  Fiber* free_fibers;
  Fiber* made_fibers;
  jmp_buf home;
  bool out_of_memory;
};

inline thread_local Scheduler* active __attribute__((tls_model("initial-exec")));

inline void count(Scheduler* s, Finding kind, uint32_t site) {
  if (s->counts->count[kind]++ == 0) s->counts->site[kind] = site;
}

inline uint32_t random_below(Scheduler* s, uint32_t limit) {  // xorshift64
  uint64_t x = s->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  s->random = x;
  return static_cast<uint32_t>((x >> 32) * limit >> 32);
}

inline uint32_t pick_lane(Scheduler* s, uint32_t lanes) {
  if (s->order == kForward) return static_cast<uint32_t>(__builtin_ctz(lanes));
  if (s->order == kReverse) return 31u - static_cast<uint32_t>(__builtin_clz(lanes));
  uint32_t skip = random_below(s, static_cast<uint32_t>(__builtin_popcount(lanes)));
  while (skip--) lanes &= lanes - 1;
  return static_cast<uint32_t>(__builtin_ctz(lanes));
}

template <class Word>
inline void gather(Simdgroup& g, uint32_t lanes) {
  Word* out = reinterpret_cast<Word*>(g.meeting.values);
  for (uint32_t m = lanes; m; m &= m - 1) {
    int i = __builtin_ctz(m);
    __builtin_memcpy(out + i, g.value[i], sizeof(Word));
  }
}

// Negative when lane a is behind lane b: it would come to b's place later. Zero when they are at the same place.
inline int compare_progress(Scheduler* s, const Simdgroup& g, int a, int b) {
  const int32_t* loops_a = s->places[g.place[a]];
  const int32_t* loops_b = s->places[g.place[b]];
  for (int d = 0; d < MSL_LOOP_DEPTH && loops_a[d] >= 0 && loops_a[d] == loops_b[d]; d++) {
    if (g.rounds[a][d] != g.rounds[b][d]) return g.rounds[a][d] < g.rounds[b][d] ? -1 : 1;
  }
  if (g.place[a] != g.place[b]) return g.place[a] < g.place[b] ? -1 : 1;
  if (g.site[a] != g.site[b]) return g.site[a] < g.site[b] ? -1 : 1;
  return 0;
}

// Lets the lanes that are the farthest behind meet; the others wait, for these may come to their place.
__attribute__((noinline)) inline void meet(Scheduler* s, Simdgroup& g) {
  int last = __builtin_ctz(g.at_simd);
  uint32_t lanes = 0;
  for (uint32_t m = g.at_simd; m; m &= m - 1) {
    int i = __builtin_ctz(m);
    bool alike = g.place[i] == g.place[last] && g.site[i] == g.site[last] &&
                 __builtin_memcmp(g.rounds[i], g.rounds[last], sizeof g.rounds[i]) == 0;
    int order = alike ? 0 : compare_progress(s, g, i, last);
    if (order < 0) {
      last = i;
      lanes = 0;
    }
    if (order <= 0) lanes |= 1u << i;
  }
  uint32_t site = g.site[last], bytes = g.bytes[last];
  if (lanes != (g.at_simd | g.at_barrier)) count(s, kDivergentSimd, site);
  if (bytes) {
    if (lanes != ~0u) memset(g.meeting.values, 0xFF, MSL_SIMD_WIDTH * bytes);
    if (bytes == 4) {
      gather<uint32_t>(g, lanes);
    } else if (bytes == 2) {
      gather<uint16_t>(g, lanes);
    } else if (bytes == 8) {
      gather<uint64_t>(g, lanes);
    } else {
      for (uint32_t m = lanes; m; m &= m - 1) {
        uint32_t i = static_cast<uint32_t>(__builtin_ctz(m));
        memcpy(g.meeting.values + i * bytes, g.value[i], bytes);
      }
    }
  }
  g.meeting.active = lanes;
  g.meeting.computed = 0;
  g.at_simd &= ~lanes;
  g.ready = lanes;
}

}  // namespace msl
