// Threads of the operating system that wait for work. Started when first needed, and kept.
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "stop.h"

namespace msl {

struct Pool {
  pthread_mutex_t lock;
  pthread_cond_t work, finished;
  void (*task)(void*, uint32_t);
  void* argument;
  uint64_t round;
  uint32_t wanted, started, running;
  bool busy;
};
inline Pool* pool;
inline pid_t pool_owner;
inline pthread_mutex_t pool_creation = PTHREAD_MUTEX_INITIALIZER;

inline void* pool_thread(void* argument) {
  Pool& p = *static_cast<Pool*>(argument);
  pthread_mutex_lock(&p.lock);
  uint32_t number = ++p.started;
  pthread_cond_signal(&p.finished);
  uint64_t seen = p.round;
  for (;;) {
    while (p.round == seen || number > p.wanted) {
      seen = p.round;
      pthread_cond_wait(&p.work, &p.lock);
    }
    seen = p.round;
    pthread_mutex_unlock(&p.lock);
    p.task(p.argument, number);
    pthread_mutex_lock(&p.lock);
    if (--p.running == 0) pthread_cond_signal(&p.finished);
  }
}

// The caller holds the pool's lock.
inline void start_threads(Pool& p, uint32_t count) {
  // Signals of the process are for its other threads; the one that ends a launch, and faults, are for these too.
  sigset_t blocked, before;
  sigfillset(&blocked);
  const int kept[] = {stop_signal(), SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  for (int number : kept) sigdelset(&blocked, number);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  while (p.started < count) {
    uint32_t before_it = p.started;
    pthread_t thread;
    if (pthread_create(&thread, &detached, pool_thread, &p) != 0) break;
    while (p.started == before_it) pthread_cond_wait(&p.finished, &p.lock);
  }
  pthread_attr_destroy(&detached);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Calls task(argument, w) for w = 0 on this thread and for w = 1 .. count - 1 on others, as many as there can be.
// When another launch has the threads already, this one runs on its own thread alone.
inline void run_on_threads(void (*task)(void*, uint32_t), void* argument, uint32_t count) {
  if (count <= 1) {
    task(argument, 0);
    return;
  }
  pthread_mutex_lock(&pool_creation);
  // A fork has this memory but not these threads.
  if (!pool || pool_owner != getpid()) {
    Pool* made = static_cast<Pool*>(calloc(1, sizeof(Pool)));
    pthread_mutex_init(&made->lock, nullptr);
    pthread_cond_init(&made->work, nullptr);
    pthread_cond_init(&made->finished, nullptr);
    pool = made;
    pool_owner = getpid();
  }
  Pool& p = *pool;
  pthread_mutex_unlock(&pool_creation);
  pthread_mutex_lock(&p.lock);
  bool mine = !p.busy;
  if (mine) {
    p.busy = true;
    if (p.started < count - 1) start_threads(p, count - 1);
    p.task = task;
    p.argument = argument;
    p.wanted = p.running = p.started < count - 1 ? p.started : count - 1;
    p.round++;
    pthread_cond_broadcast(&p.work);
  }
  pthread_mutex_unlock(&p.lock);
  task(argument, 0);
  if (!mine) return;
  pthread_mutex_lock(&p.lock);
  while (p.running) pthread_cond_wait(&p.finished, &p.lock);
  p.busy = false;
  pthread_mutex_unlock(&p.lock);
}

}  // namespace msl
