// The runtime of Metal text on a CPU: launches a compiled kernel over a grid. Uses libc and POSIX threads only, so it
// needs no C++ library at run time.
#include "conversions.h"
#include "floating_point.h"
#include "launch.h"
#include "pool.h"
#include "scheduler.h"
#include "stop.h"

using namespace msl;

extern "C" struct msl_launch_request {
  uint32_t grid[3];
  uint32_t threadgroup[3];
  uint32_t order;  // an Order
  uint32_t flush_denormals;
  uint32_t workers;
  uint32_t waits;  // some thread may wait for another: fibers are needed
  uint64_t seed;
  uint64_t time_limit_ns;  // 0: none
  const msl_u64* buffers;
  // One of each for every worker: its copy of the kernel has its own threadgroup variables.
  const msl_thread_function* run_thread;
  const msl_group_function* run_group;
  const msl_poison_function* poison;
  const int32_t (*places)[MSL_LOOP_DEPTH];
  Counts counts;
  uint32_t fault_signal;
  uint64_t fault_address;
};

namespace {

struct Job {
  msl_launch_request* request;
  Slot* slot;
  uint32_t full_size[3], groups[3];
  uint64_t group_count, next, chunk;
  pthread_mutex_t lock;
};

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

msl_group describe(const Job& job, uint64_t number) {
  msl_group group;
  uint64_t position[3] = {number % job.groups[0], number / job.groups[0] % job.groups[1],
                          number / job.groups[0] / job.groups[1]};
  group.threads = group.full_threads = 1;
  for (int d = 0; d < 3; d++) {
    uint32_t grid = job.request->grid[d], full = job.full_size[d];
    group.position[d] = static_cast<uint32_t>(position[d]);
    group.origin[d] = group.position[d] * full;
    group.size[d] = grid - group.origin[d] < full ? grid - group.origin[d] : full;
    group.full_size[d] = full;
    group.grid[d] = grid;
    group.groups[d] = job.groups[d];
    group.threads *= group.size[d];
    group.full_threads *= full;
  }
  return group;
}

void run_without_fibers(Scheduler* s, const msl_group* group, msl_group_function run_group) {
  if (s->order == kForward) {
    run_group(s->buffers, group);
    return;
  }
  // A random order without a table: a walk with a step that has no common divisor with the number of threads.
  uint32_t n = group->threads, step = n > 1 ? n - 1 : 1, at = n - 1;
  if (s->order == kRandom) {
    at = random_below(s, n);
    for (;;) {
      step = 1 + random_below(s, n);
      uint32_t a = n, b = step;
      while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
      }
      if (a == 1) break;
    }
  }
  for (uint32_t k = 0; k < n; k++, at = static_cast<uint32_t>((uint64_t{at} + step) % n)) {
    uint32_t x = at % group->size[0], rest = at / group->size[0];
    s->run_thread(s->buffers, group, x, rest % group->size[1], rest / group->size[1], at);
  }
}

Scheduler* own_scheduler() {
  if (!active) active = static_cast<Scheduler*>(calloc(1, sizeof(Scheduler)));
  return active;
}

void work(void* argument, uint32_t worker) {
  Job& job = *static_cast<Job*>(argument);
  const msl_launch_request& request = *job.request;
  Scheduler* s = own_scheduler();
  uint32_t most = job.full_size[0] * job.full_size[1] * job.full_size[2];
  if (!s || !make_room(s, (most + MSL_SIMD_WIDTH - 1) / MSL_SIMD_WIDTH)) {
    __atomic_store_n(&job.slot->stop, kOutOfMemory, __ATOMIC_SEQ_CST);
    return;
  }
  Counts counts = {};
  s->counts = &counts;
  s->buffers = request.buffers;
  s->run_thread = request.run_thread[worker];
  s->places = request.places;
  s->order = static_cast<Order>(request.order);
  s->out_of_memory = false;
  FloatingPoint floating_point;
  SpareStack spare_stack;
  Escape way_out;
  way_out.armed = 0;
  way_out.slot = job.slot;
  escape = &way_out;
  __atomic_store_n(&job.slot->thread_ids[worker], thread_id(), __ATOMIC_SEQ_CST);
  if (_setjmp(way_out.context) == 0) {
    floating_point.set(request.flush_denormals);
    way_out.armed = 1;
    for (uint64_t first; (first = __atomic_fetch_add(&job.next, job.chunk, __ATOMIC_RELAXED)) < job.group_count;) {
      uint64_t end = first + job.chunk < job.group_count ? first + job.chunk : job.group_count;
      for (uint64_t n = first; n < end && !__atomic_load_n(&job.slot->stop, __ATOMIC_RELAXED); n++) {
        msl_group group = describe(job, n);
        // From the seed and the group alone: the order does not depend on which worker runs it.
        s->random = mix(request.seed ^ mix(n)) | 1;
        request.poison[worker]();
        if (!request.waits) {
          run_without_fibers(s, &group, request.run_group[worker]);
        } else if (!run_with_fibers(s, &group)) {
          __atomic_store_n(&job.slot->stop, kOutOfMemory, __ATOMIC_SEQ_CST);
        }
      }
    }
  }
  way_out.armed = 0;
  __atomic_store_n(&job.slot->thread_ids[worker], 0, __ATOMIC_SEQ_CST);
  escape = nullptr;
  if (__atomic_load_n(&job.slot->stop, __ATOMIC_SEQ_CST)) reclaim_fibers(s);
  pthread_mutex_lock(&job.lock);
  for (uint32_t kind = 0; kind < kFindings; kind++) {
    if (counts.count[kind] && !job.request->counts.count[kind]) job.request->counts.site[kind] = counts.site[kind];
    job.request->counts.count[kind] += counts.count[kind];
  }
  pthread_mutex_unlock(&job.lock);
}

pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;

int take_slot() {
  for (int i = 0; i < kMostLaunches; i++) {
    if (slots[i].in_use) continue;
    slots[i].stop = kDone;
    __atomic_store_n(&slots[i].in_use, 1, __ATOMIC_SEQ_CST);
    return i;
  }
  return -1;
}

}  // namespace



// Returns a Status. `request.grid` and `request.threadgroup` are positive.
MSL_EXPORTED uint32_t msl_launch(msl_launch_request* request) {
  Job job = {};
  job.request = request;
  pthread_mutex_init(&job.lock, nullptr);
  job.group_count = 1;
  for (int d = 0; d < 3; d++) {
    uint32_t grid = request->grid[d], threadgroup = request->threadgroup[d];
    job.full_size[d] = threadgroup < grid ? threadgroup : grid;
    job.groups[d] = (grid + job.full_size[d] - 1) / job.full_size[d];
    job.group_count *= job.groups[d];
  }
  uint32_t workers = request->workers < job.group_count ? request->workers : static_cast<uint32_t>(job.group_count);
  if (workers > kMostWorkers) workers = kMostWorkers;
  // Neighbors stay together for the caches; eight shares a worker even out groups that take longer.
  job.chunk = job.group_count / (uint64_t{workers} * 8);
  if (job.chunk == 0) job.chunk = 1;
  pthread_mutex_lock(&launching);
  int slot = take_slot();
  if (slot >= 0) begin_interrupts();
  pthread_mutex_unlock(&launching);
  if (slot < 0) return kCannotLaunch;
  job.slot = &slots[slot];
  timer_t timer;
  bool timed = request->time_limit_ns != 0;
  if (timed && !start_timer(&timer, slot, request->time_limit_ns)) {
    __atomic_store_n(&job.slot->stop, kCannotLaunch, __ATOMIC_SEQ_CST);
  } else {
    run_on_threads(work, &job, workers);
    if (timed) timer_delete(timer);
  }
  uint32_t status = __atomic_load_n(&job.slot->stop, __ATOMIC_SEQ_CST);
  request->fault_signal = static_cast<uint32_t>(job.slot->fault_signal);
  request->fault_address = job.slot->fault_address;
  pthread_mutex_lock(&launching);
  end_interrupts();
  __atomic_store_n(&job.slot->in_use, 0, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&launching);
  pthread_mutex_destroy(&job.lock);
  return status;
}

MSL_EXPORTED msl_meeting* msl_rt_meet(const void* value, uint32_t bytes, uint32_t site) {
  Scheduler* s = active;
  uint32_t lane = s->lane;
  Simdgroup& g = s->simdgroups[s->current];
  g.site[lane] = site;
  g.bytes[lane] = bytes;
  g.value[lane] = value;
  g.at_simd |= 1u << lane;
  return wait_turn(s, g, lane);
}

MSL_EXPORTED void msl_rt_threadgroup_barrier(uint32_t site) {
  Scheduler* s = active;
  uint32_t lane = s->lane;
  Simdgroup& g = s->simdgroups[s->current];
  g.site[lane] = site;
  g.at_barrier |= 1u << lane;
  wait_turn(s, g, lane);
}

MSL_EXPORTED void msl_rt_at(uint32_t place) { active->simdgroups[active->current].place[active->lane] = place; }

MSL_EXPORTED void msl_rt_enter_loop(uint32_t depth) {
  active->simdgroups[active->current].rounds[active->lane][depth] = 0;
}

MSL_EXPORTED void msl_rt_next_round(uint32_t depth) {
  active->simdgroups[active->current].rounds[active->lane][depth]++;
}

MSL_EXPORTED uint32_t msl_rt_lane() { return active->lane; }

MSL_EXPORTED void msl_rt_event(uint32_t kind, uint32_t site) {
  if (kind == MSL_READ_OF_INACTIVE_LANE) count(active, kInactiveRead, site);
}
