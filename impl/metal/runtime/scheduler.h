// Runs one threadgroup: its threads as fibers that meet in simdgroups of 32 and at barriers.
//
// A thread that must wait hands over straight to the next one that can run; nothing goes by way of a central loop.
// The order: every thread runs until it waits; then, in each simdgroup, the lanes that wait at one place meet and go on;
// when all that is left waits at barriers, these open. So simdgroups keep step as they nearly do on a GPU, and a kernel
// that lacks a barrier mostly gives what it gives there. In random order any simdgroup may run ahead of the others.
#pragma once
#include <stdlib.h>

#include "fiber.h"
#include "launch.h"
#include "simdgroup.h"

namespace msl {

// The next simdgroup with threads that can run, or -1. In random order also one whose lanes wait for a meeting.
inline int next_simdgroup(Scheduler* s) {
  uint32_t n = s->simdgroup_count;
  bool random = s->order == kRandom;
  uint32_t first = random ? random_below(s, n) : s->current;
  for (uint32_t k = 0; k < n; k++) {
    uint32_t i = s->order == kReverse ? (first + n - k) % n : (first + k) % n;
    if (s->simdgroups[i].ready || (random && s->simdgroups[i].at_simd)) return static_cast<int>(i);
  }
  return -1;
}

// One meeting in every simdgroup that waits for one. False: none does.
inline bool meet_everywhere(Scheduler* s) {
  bool any = false;
  for (uint32_t i = 0; i < s->simdgroup_count; i++) {
    if (!s->simdgroups[i].at_simd) continue;
    meet(s, s->simdgroups[i]);
    any = true;
  }
  if (any) s->current = s->order == kReverse ? s->simdgroup_count - 1 : 0;
  return any;
}

// Nobody can run: all threads have returned or wait at a barrier. Returns false when all have returned.
inline bool open_barrier(Scheduler* s) {
  uint32_t waiting = 0, site = 0;
  bool returned = false, differ = false;
  for (uint32_t i = 0; i < s->simdgroup_count; i++) {
    Simdgroup& g = s->simdgroups[i];
    returned |= g.done != 0;
    for (uint32_t m = g.at_barrier; m; m &= m - 1) {
      uint32_t at = g.site[__builtin_ctz(m)];
      if (waiting++ && at != site) differ = true;
      site = at;
    }
  }
  if (!waiting) return false;
  if (differ) count(s, kDivergentBarrier, site);
  if (returned) count(s, kBarrierAfterReturn, site);
  for (uint32_t i = 0; i < s->simdgroup_count; i++) {
    Simdgroup& g = s->simdgroups[i];
    g.ready = g.at_barrier;
    g.at_barrier = 0;
  }
  s->current = s->order == kReverse ? s->simdgroup_count - 1 : 0;
  return true;
}

// Chooses the next thread to run: sets current and lane, and takes it off the ready ones. False: all have returned.
inline bool choose(Scheduler* s) {
  for (;;) {
    Simdgroup& g = s->simdgroups[s->current];
    if (g.ready) {
      s->lane = pick_lane(s, g.ready);
      g.ready &= ~(1u << s->lane);
      return true;
    }
    int next = next_simdgroup(s);
    if (next >= 0) {
      s->current = static_cast<uint32_t>(next);
      if (!s->simdgroups[s->current].ready) meet(s, s->simdgroups[s->current]);
    } else if (!meet_everywhere(s) && !open_barrier(s)) {
      return false;
    }
  }
}

inline bool begin_if_fresh(Scheduler* s) {
  Simdgroup& g = s->simdgroups[s->current];
  uint32_t bit = 1u << s->lane;
  bool fresh = g.fresh & bit;
  g.fresh &= ~bit;
  return fresh;
}

// Runs fresh threads on this fiber until one of them has to wait, then whatever comes after its return.
inline void fiber_body(Fiber* self) {
  Scheduler* s = active;
  for (;;) {
    uint32_t index = s->current * MSL_SIMD_WIDTH + s->lane;
    uint32_t simdgroup = s->current, bit = 1u << s->lane;
    const msl_group* group = s->group;
    uint32_t x = index % group->size[0], rest = index / group->size[0];
    s->simdgroups[simdgroup].fiber[s->lane] = self;
    s->run_thread(s->buffers, group, x, rest % group->size[1], rest / group->size[1], index);
    s = active;
    s->simdgroups[simdgroup].done |= bit;
    if (!choose(s)) break;
    if (begin_if_fresh(s)) continue;  // the warm stack serves the next thread
    self->next_free = s->free_fibers;
    s->free_fibers = self;
    if (_setjmp(self->context) == 0) _longjmp(s->simdgroups[s->current].fiber[s->lane]->context, 1);
    s = active;  // taken from the free list for a fresh thread, whose place `current` and `lane` give
  }
  self->next_free = s->free_fibers;
  s->free_fibers = self;
  if (_setjmp(self->context) == 0) _longjmp(s->home, 1);
}

inline Fiber* take_fiber(Scheduler* s) {
  Fiber* fiber = s->free_fibers;
  if (fiber) {
    s->free_fibers = fiber->next_free;
    return fiber;
  }
  fiber = new_fiber(fiber_body);
  if (!fiber) return nullptr;
  fiber->next_made = s->made_fibers;
  return s->made_fibers = fiber;
}

// After threads were abandoned in the middle: makes every fiber fit for new ones.
inline void reclaim_fibers(Scheduler* s) {
  s->free_fibers = nullptr;
  for (Fiber* fiber = s->made_fibers; fiber; fiber = fiber->next_made) {
    start_anew(fiber);
    fiber->next_free = s->free_fibers;
    s->free_fibers = fiber;
  }
}

// Gives control away until this thread is chosen again, and returns its simdgroup's meeting. Callers end with it, so
// that the compiler makes it a jump: a return after a switch is mispredicted, since the processor expects it to go where
// the thread before came from, and then there is but one.
inline msl_meeting* wait_turn(Scheduler* s, Simdgroup& g, uint32_t lane) {
  Fiber* self = g.fiber[lane];
  choose(s);  // never false: this thread waits
  Fiber* next;
  if (begin_if_fresh(s)) {
    next = take_fiber(s);
    if (!next) {
      s->out_of_memory = true;
      _longjmp(s->home, 1);
    }
  } else {
    next = s->simdgroups[s->current].fiber[s->lane];
    if (next == self) return &g.meeting;
  }
  if (_setjmp(self->context) == 0) _longjmp(next->context, 1);
  return &g.meeting;
}

inline bool make_room(Scheduler* s, uint32_t simdgroups) {
  if (simdgroups <= s->simdgroup_room) return true;
  void* room = nullptr;
  if (posix_memalign(&room, 64, simdgroups * sizeof(Simdgroup)) != 0) return false;
  free(s->simdgroups);
  s->simdgroups = static_cast<Simdgroup*>(room);
  s->simdgroup_room = simdgroups;
  return true;
}

// Runs all threads of `group`. False: out of memory.
inline bool run_with_fibers(Scheduler* s, const msl_group* group) {
  // Rounds of loops are only compared by lanes that are inside, after both set them to zero.
  uint32_t n = group->threads, simdgroups = (n + MSL_SIMD_WIDTH - 1) / MSL_SIMD_WIDTH;
  if (!make_room(s, simdgroups)) return false;
  s->group = group;
  s->simdgroup_count = simdgroups;
  for (uint32_t i = 0; i < simdgroups; i++) {
    Simdgroup& g = s->simdgroups[i];
    uint32_t lanes = n - i * MSL_SIMD_WIDTH;
    g.ready = g.fresh = lanes >= MSL_SIMD_WIDTH ? ~0u : (1u << lanes) - 1;
    g.at_simd = g.at_barrier = g.done = 0;
  }
  s->current = s->order == kReverse ? simdgroups - 1 : s->order == kRandom ? random_below(s, simdgroups) : 0;
  choose(s);
  begin_if_fresh(s);
  Fiber* first = take_fiber(s);
  if (!first) return false;
  if (_setjmp(s->home) == 0) _longjmp(first->context, 1);
  return !active->out_of_memory;
}

}  // namespace msl
