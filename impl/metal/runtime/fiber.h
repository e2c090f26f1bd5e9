// A fiber: a stack of its own on which kernel threads run, one after another.
//
// makecontext and swapcontext set a fiber up once; all later switches are _setjmp and _longjmp, which save no signal
// mask and so make no system call. This is plain libc on every architecture.
#pragma once
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace msl {

// Reserved, not used: a page that was never touched costs nothing.
constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kShifts = 512;
constexpr size_t kGuardBytes = 64 * 1024;  // at least one page on every system, 64 KiB pages included

struct Fiber {
  jmp_buf context;
  jmp_buf beginning;  // to start anew when the thread on it was abandoned
  void (*body)(Fiber*);
  Fiber* next_free;
  Fiber* next_made;
};

struct Creation {
  Fiber* fiber;
  ucontext_t creator;
};
// Thread-local variables of this library live in a small block that all libraries share: pointers only.
inline thread_local Creation* creation __attribute__((tls_model("initial-exec")));

// Runs when a new fiber is entered for the first time: notes where it stands, and goes back to its creator.
inline void fiber_main() {
  Fiber* self = creation->fiber;
  ucontext_t unused;
  if (_setjmp(self->beginning) == 0) swapcontext(&unused, &creation->creator);
  for (;;) self->body(self);
}

inline void start_anew(Fiber* fiber) { __builtin_memcpy(fiber->context, fiber->beginning, sizeof(jmp_buf)); }

// Returns nullptr when the system has no more memory.
inline Fiber* new_fiber(void (*body)(Fiber*)) {
  size_t bytes = kGuardBytes + kStackBytes;
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  // Stacks grow down: a kernel that overruns its stack hits the guard instead of its neighbor.
  if (mprotect(block, kGuardBytes, PROT_NONE) != 0) {
    munmap(block, bytes);
    return nullptr;
  }
  // All blocks are alike modulo the size of a page; without a different shift each, the tops of all stacks would
  // compete for the same few lines of the cache.
  static thread_local uint32_t made_count;
  char* top = static_cast<char*>(block) + bytes - made_count++ * 13 % kShifts * 64;
  Fiber* fiber = reinterpret_cast<Fiber*>(top - ((sizeof(Fiber) + 63) & ~size_t{63}));
  fiber->body = body;
  fiber->next_free = nullptr;
  ucontext_t made;
  getcontext(&made);
  made.uc_stack.ss_sp = static_cast<char*>(block) + kGuardBytes;
  made.uc_stack.ss_size = reinterpret_cast<char*>(fiber) - static_cast<char*>(made.uc_stack.ss_sp);
  made.uc_link = nullptr;
  makecontext(&made, fiber_main, 0);
  Creation here;
  here.fiber = fiber;
  creation = &here;
  swapcontext(&here.creator, &made);
  start_anew(fiber);
  return fiber;
}

}  // namespace msl
