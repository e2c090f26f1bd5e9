// Ends a launch from outside: Ctrl-C, or a time limit. Works in a kernel that loops forever without any call, because
// the thread that runs it is made to jump out by a signal. Kernel code owns nothing, so nothing is lost by that.
#pragma once
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace msl {

enum Status : uint32_t { kDone = 0, kInterrupted = 1, kTimeLimit = 2, kOutOfMemory = 3, kCannotLaunch = 4, kFault = 5 };

constexpr int kMostLaunches = 32;  // at one time, in all threads of the process
constexpr int kMostWorkers = 256;

// Launches in flight. Static, because a signal may look at a slot at any moment.
struct Slot {
  int in_use;
  uint32_t stop;  // a Status
  int fault_signal;  // with kFault
  uint64_t fault_address;
  int thread_ids[kMostWorkers];  // 0: not in kernel code
};
inline Slot slots[kMostLaunches];
inline struct sigaction handler_before;
constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
inline struct sigaction fault_handlers_before[4];
inline int interrupts_wanted;

struct Escape {
  jmp_buf context;
  volatile sig_atomic_t armed;
  Slot* slot;
};
inline thread_local Escape* escape __attribute__((tls_model("initial-exec")));

inline int stop_signal() { return SIGRTMAX - 4; }

inline int thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

inline void stop_launch(Slot& slot, Status why) {
  uint32_t running = kDone;
  __atomic_compare_exchange_n(&slot.stop, &running, why, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  int self = thread_id();
  bool self_too = false;
  for (int& id : slot.thread_ids) {
    int target = __atomic_load_n(&id, __ATOMIC_SEQ_CST);
    if (target == self) self_too = true;
    else if (target) syscall(SYS_tgkill, getpid(), target, stop_signal());
  }
  // Last, because it may not return.
  if (self_too) syscall(SYS_tgkill, getpid(), self, stop_signal());
}

inline void on_stop_signal(int, siginfo_t* info, void*) {
  if (info->si_code == SI_TIMER) {
    stop_launch(slots[info->si_value.sival_int], kTimeLimit);
    return;
  }
  Escape* here = escape;
  if (here && here->armed) {
    here->armed = 0;
    _longjmp(here->context, 1);
  }
}

// Memory that is not there, a stack that is full, a division by zero (a GPU gives some number instead).
inline void on_fault(int number, siginfo_t* info, void*) {
  Escape* here = escape;
  if (!here || !here->armed) {
    // Not a kernel's: the handler before this one gets it, as soon as the instruction is tried again.
    for (int i = 0; i < 4; i++) {
      if (kFaults[i] == number) sigaction(number, &fault_handlers_before[i], nullptr);
    }
    return;
  }
  here->armed = 0;
  uint32_t running = kDone;
  if (__atomic_compare_exchange_n(&here->slot->stop, &running, kFault, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    here->slot->fault_signal = number;
    here->slot->fault_address = reinterpret_cast<uint64_t>(info->si_addr);
  }
  _longjmp(here->context, 1);
}

// The handler of a full stack needs another one.
struct SpareStack {
  char* memory;
  stack_t before;
  SpareStack() {
    constexpr size_t kBytes = 64 * 1024;
    static thread_local char* kept;
    if (!kept) kept = static_cast<char*>(malloc(kBytes));
    memory = kept;
    stack_t spare = {};
    spare.ss_sp = memory;
    spare.ss_size = kBytes;
    spare.ss_flags = memory ? 0 : SS_DISABLE;
    sigaltstack(&spare, &before);
  }
  ~SpareStack() { sigaltstack(&before, nullptr); }
};

inline void on_interrupt(int number, siginfo_t* info, void* context) {
  // First whoever else wants to know (Python notes the interrupt here), because the jump below may not return.
  if (handler_before.sa_flags & SA_SIGINFO) {
    handler_before.sa_sigaction(number, info, context);
  } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(number);
  }
  for (Slot& slot : slots) {
    if (__atomic_load_n(&slot.in_use, __ATOMIC_SEQ_CST)) stop_launch(slot, kInterrupted);
  }
}

inline void install(int number, void (*handler)(int, siginfo_t*, void*), struct sigaction* before, int flags = 0) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  // NODEFER: a handler that jumps out must not leave its signal blocked.
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER | flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, before);
}

// Between these two SIGINT stops launches; outside of them it is whoever's it was. The caller holds a lock.
inline void begin_interrupts() {
  if (interrupts_wanted++ == 0) {
    install(stop_signal(), on_stop_signal, nullptr);
    for (int i = 0; i < 4; i++) install(kFaults[i], on_fault, &fault_handlers_before[i], SA_ONSTACK);
    install(SIGINT, on_interrupt, &handler_before);
    // A process that ignores SIGINT, such as one started in the background, goes on ignoring it.
    if (!(handler_before.sa_flags & SA_SIGINFO) && handler_before.sa_handler == SIG_IGN) {
      sigaction(SIGINT, &handler_before, nullptr);
    }
  }
}

inline void end_interrupts() {
  if (--interrupts_wanted) return;
  for (int i = 0; i < 4; i++) sigaction(kFaults[i], &fault_handlers_before[i], nullptr);
  struct sigaction now;
  sigaction(SIGINT, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_interrupt) sigaction(SIGINT, &handler_before, nullptr);
}

inline bool start_timer(timer_t* timer, int slot, uint64_t limit_ns) {
  struct sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = stop_signal();
  event.sigev_value.sival_int = slot;
  if (timer_create(CLOCK_MONOTONIC, &event, timer) != 0) return false;
  struct itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(limit_ns / 1000000000u);
  when.it_value.tv_nsec = static_cast<long>(limit_ns % 1000000000u);
  timer_settime(*timer, 0, &when, nullptr);
  return true;
}

}  // namespace msl
