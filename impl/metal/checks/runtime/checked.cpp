// The runtime of checked kernels: the runtime of all kernels, under other names, with what instrumented text calls.
#define msl_rt_meet msl_plain_meet
#define msl_rt_threadgroup_barrier msl_plain_barrier
#define msl_rt_at msl_checked_at
#define msl_rt_enter_loop msl_checked_enter_loop
#define msl_rt_next_round msl_checked_next_round
#define msl_rt_lane msl_checked_lane
#define msl_rt_event msl_plain_event
#define msl_launch msl_plain_launch
#include "../../runtime/runtime.cpp"

#include "lending.h"
#include "shadow.h"

// The place in the kernel's own text that was passed last: where calls into the prelude come from, and where a kernel
// was when it ended badly.
extern "C" {
__attribute__((visibility("default"))) uint32_t msl_check_here;
}

namespace {

msl_poison_function poison_kernel;
const uint32_t* site_flags;  // for each site: 1 if the result of the atomic operation there is used
uint32_t site_count;
// The middles of these are what accesses outside are sent to: reads see zeros, and writes are lost. A component of a
// vector is checked by itself, and the rest of the vector lies around it.
constexpr uint64_t kSpare = 16384;
alignas(64) char zeros[2 * kSpare], rubbish[2 * kSpare];

uint32_t site_of(uint32_t site) { return site ? site : msl_check_here; }

void begin_checked_group() {
  poison_kernel();
  begin_group();
  forget_agreements();
}

// Memory of the runtime itself and this thread's own stack.
bool is_private(const char* address) {
  const Scheduler* s = active;
  const char* room = reinterpret_cast<const char*>(s->simdgroups);
  if (address >= room && address < room + s->simdgroup_room * sizeof(Simdgroup)) return true;
  const char* top = reinterpret_cast<const char*>(s->simdgroups[s->current].fiber[s->lane]);
  return address < top && address >= top - kStackBytes - kGuardBytes;
}

__attribute__((noinline, cold)) char* outside(int region, const char* address, uint64_t bytes, uint32_t site,
                                              bool writes, uint32_t detail) {
  bool fresh;
  Found* f = find_fault(writes ? (detail & kGap) == 0 && region >= 0 && regions[region].kind == kInput &&
                                         inside(regions[region], address, bytes)
                                     ? kWriteToInput
                                     : kWriteOutside
                               : kReadOutside,
                        site, 0, region, &fresh);
  if (f && fresh) {
    f->detail = detail;
    f->bytes = static_cast<uint32_t>(bytes);
    f->offset = region < 0 ? 0 : address - regions[region].begin;
    f->group = order.group;
    f->thread = thread_now();
  }
  if (!writes) memset(zeros, 0, sizeof zeros);
  return (writes ? rubbish : zeros) + kSpare;
}

// Whether the bytes belong to elements of the view.
bool in_view(const Region& r, uint64_t offset, uint64_t bytes) {
  for (uint64_t e = offset / r.element_bytes; e * r.element_bytes < offset + bytes; e++) {
    if (!r.valid[e]) return false;
  }
  return true;
}

enum Action : uint32_t { kReads = 1, kWritesTo = 2, kIsAtomic = 4, kCopies = 8 };

inline char* check(char* address, uint64_t bytes, const char* value, uint32_t site, int32_t root, uint32_t action) {
  if (bytes == 0) return address;
  bool writes = action & kWritesTo;
  site = site_of(site);
  int at = root;
  if (root < 0) {
    // Most pointers that nothing is known of are a thread's own.
    if (is_private(address)) {
      const Lent* lent = lent_before(address, bytes);
      if (!lent) return address;
      return outside(lent->region, regions[lent->region].begin + (address - lent->begin), bytes, site, writes, 0);
    }
    at = region_at(address);
    if (at < 0) return outside(at, address, bytes, site, writes, 0);
  }
  Region& r = regions[at];
  if (!inside(r, address, bytes)) return outside(at, address, bytes, site, writes, 0);
  uint64_t offset = static_cast<uint64_t>(address - r.begin);
  if (r.valid && !in_view(r, offset, bytes)) return outside(at, address, bytes, site, writes, kGap);
  if (r.kind == kInput || r.kind == kTable) return writes ? outside(at, address, bytes, site, true, 0) : address;
  bool atomic = action & kIsAtomic;
  bool ordering = atomic && (action != (kReads | kWritesTo | kIsAtomic) || (site < site_count && site_flags[site]));
  Access a;
  a.now = record_now(site, atomic, ordering);
  a.region = at;
  a.kind = r.kind;
  a.offset = static_cast<int64_t>(offset);
  a.bytes = static_cast<uint32_t>(bytes);
  a.reads = action & kReads;
  a.writes = writes;
  account(r, a, value, action & kCopies);
  return address;
}

__attribute__((noinline, cold)) int64_t arithmetic(uint32_t fault, uint32_t site, int64_t number, double value,
                                                   int64_t result) {
  site = site_of(site);
  bool fresh;
  Found* f = find_fault(fault, site, 0, -1, &fresh);
  if (f && fresh) {
    f->offset = number;
    f->value = value;
    f->group = order.group;
    f->thread = thread_now();
  }
  if (probe.fault != fault || probe.site != site) return result;
  return static_cast<int64_t>(probe.fill * 0x0101010101010101u);
}

}  // namespace

MSL_EXPORTED char* msl_check_read(char* address, uint64_t bytes, uint32_t site, int32_t root) {
  return check(address, bytes, nullptr, site, root, kReads);
}
MSL_EXPORTED char* msl_check_write(char* address, uint64_t bytes, const char* value, uint32_t site, int32_t root) {
  return check(address, bytes, value, site, root, kWritesTo);
}
// For a vector that is loaded to change a component: the check of the store speaks of it.
MSL_EXPORTED char* msl_check_peek(char* address, uint64_t bytes) {
  if (is_private(address)) return address;
  int at = region_at(address);
  // Neighbors of the component may lie beyond the end.
  bool near = at >= 0 && address + bytes > regions[at].begin && address < regions[at].begin + regions[at].bytes;
  return near ? address : zeros + kSpare;
}
// `reads`, `writes`: a load, a store, or with both what changes a value.
MSL_EXPORTED char* msl_check_atomic(char* address, uint64_t bytes, uint32_t site, int32_t root, uint32_t action) {
  return check(address, bytes, nullptr, site, root, action | kIsAtomic);
}
MSL_EXPORTED char* msl_check_copy_from(char* address, uint64_t bytes, uint32_t site, int32_t root) {
  return check(address, bytes, nullptr, site, root, kReads | kCopies);
}
MSL_EXPORTED char* msl_check_fill(char* address, uint64_t bytes, uint8_t byte, uint32_t site, int32_t root) {
  static char filled[4096];
  if (bytes > sizeof filled) return check(address, bytes, nullptr, site, root, kWritesTo);
  memset(filled, byte, bytes);
  return check(address, bytes, filled, site, root, kWritesTo);
}

// For a thread's own array of `limit` bytes: what to add to a pointer at `offset`, so that `bytes` fit.
MSL_EXPORTED int64_t msl_check_offset(int64_t offset, uint64_t bytes, uint64_t limit, uint32_t site, int32_t root,
                                      uint32_t writes) {
  if (static_cast<uint64_t>(offset) <= limit && bytes <= limit - static_cast<uint64_t>(offset)) return 0;
  outside(root, regions[root].begin + offset, bytes, site_of(site), writes, 0);
  return -offset;
}

// These take the result that the kernel would go on with, and return the one it goes on with.
MSL_EXPORTED int64_t msl_check_division(int64_t number, int64_t divisor, int64_t result, uint32_t bits,
                                        uint32_t is_signed, uint32_t site) {
  if (divisor == 0) return arithmetic(kDivideByZero, site, number, 0, result);
  bool overflows = is_signed && divisor == -1 && number == static_cast<int64_t>(~uint64_t{0} << (bits - 1));
  return overflows ? arithmetic(kDivideOverflow, site, number, 0, result) : result;
}
MSL_EXPORTED int64_t msl_check_shift(int64_t amount, int64_t result, uint32_t bits, uint32_t site) {
  return static_cast<uint64_t>(amount) < bits ? result : arithmetic(kShiftTooFar, site, amount, bits, result);
}
MSL_EXPORTED int64_t msl_check_conversion(double value, int64_t result, uint32_t bits, uint32_t is_signed,
                                          uint32_t site) {
  double end = is_signed ? 0x1p-1 : 1.0;
  for (uint32_t i = 0; i < bits; i++) end *= 2;
  // The number is cut off before it must fit, so that -0.5 becomes 0u; beyond 2^53 there are whole numbers only.
  bool fits = value < end && (is_signed ? (bits > 53 ? value >= -end : value > -end - 1) : value > -1);
  return fits ? result : arithmetic(kConversion, site, bits | (is_signed ? 256 : 0), value, result);
}

// A variable of a thread begins to be, without a value.
MSL_EXPORTED void msl_check_fresh(char* address, uint64_t bytes, uint32_t number) {
  bool meant = probe.fault == kFresh && (probe.site == 0 || probe.site == number);
  memset(address, static_cast<int>(meant ? probe.fill : kUsualFill), bytes);
}
MSL_EXPORTED void msl_check_lend(char* begin, uint64_t bytes, int32_t number) { lend(begin, bytes, number); }
MSL_EXPORTED void msl_check_take_back(char* begin) { take_back(begin); }
MSL_EXPORTED void msl_check_flags(uint32_t flags) { order.flags &= flags; }
MSL_EXPORTED void msl_check_fence() { fences++; }

MSL_EXPORTED msl_meeting* msl_checked_meet(const void* value, uint32_t bytes, uint32_t site) {
  (void)site;
  uint32_t here = msl_check_here, simdgroup = active->current, bit = 1u << active->lane;
  order.waiting[simdgroup] |= bit;
  msl_meeting* meeting = msl_plain_meet(value, bytes, here);
  msl_check_here = here;
  if (order.waiting[simdgroup] & bit) {
    order.waiting[simdgroup] &= ~meeting->active;
    const Scheduler* s = active;
    uint32_t lanes = s->group->threads - simdgroup * MSL_SIMD_WIDTH;
    uint32_t all = lanes >= MSL_SIMD_WIDTH ? ~0u : (1u << lanes) - 1;
    lanes_met(simdgroup, meeting->active, all & ~s->simdgroups[simdgroup].done);
    if (probe.fault == kInactiveLane && probe.site == here) {
      for (uint32_t m = ~meeting->active; m; m &= m - 1) {
        memset(meeting->values + static_cast<uint32_t>(__builtin_ctz(m)) * bytes, static_cast<int>(probe.fill), bytes);
      }
    }
  }
  return meeting;
}

MSL_EXPORTED void msl_checked_threadgroup_barrier(uint32_t site) {
  (void)site;
  uint32_t here = msl_check_here, epoch = order.epoch;
  msl_plain_barrier(here);
  msl_check_here = here;
  if (order.epoch == epoch) barrier_opened();
}

MSL_EXPORTED void msl_checked_event(uint32_t kind, uint32_t site) {
  (void)site;
  if (kind != MSL_READ_OF_INACTIVE_LANE) return;
  bool fresh;
  Found* f = find_fault(kInactiveLane, msl_check_here, 0, -1, &fresh);
  msl_plain_event(kind, msl_check_here);
  if (!f || !fresh) return;
  f->group = order.group;
  f->thread = thread_now();
}

// What a checked launch has beside the request of all launches; checks/native.py has the same structure.
extern "C" struct msl_check_request {
  msl_launch_request* launch;
  const Memory* memories;
  msl_poison_function poison;
  const uint32_t* site_flags;
  uint32_t memory_count, site_count;
  Probe probe;
  // Filled in.
  const Found* found;
  uint32_t found_count, here, atomics_in_conflict, fences;
};

// One at a time in a process. Returns a Status.
MSL_EXPORTED uint32_t msl_checked_launch(msl_check_request* request) {
  if (request->memory_count > kMostRegions || !take_regions(request->memories, request->memory_count)) {
    return kOutOfMemory;
  }
  found_count = 0;
  memset(lenders, 0, sizeof lenders);
  atomics_in_conflict = fences = 0;
  msl_check_here = 0;
  order.group = 0;
  poison_kernel = request->poison;
  site_flags = request->site_flags;
  site_count = request->site_count;
  probe = request->probe;
  msl_poison_function begin = begin_checked_group;
  request->launch->poison = &begin;
  request->launch->waits = 1;
  request->launch->workers = 1;
  uint32_t status = msl_plain_launch(request->launch);
  request->found = found;
  request->found_count = found_count;
  request->here = msl_check_here;
  request->atomics_in_conflict = atomics_in_conflict;
  request->fences = fences;
  return status;
}

// After a launch: marks in `unwritten`, one byte an element, the elements of memory `number` with unwritten bytes.
MSL_EXPORTED void msl_check_unwritten(uint32_t number, uint8_t* unwritten) {
  const Region& r = regions[number];
  for (uint64_t b = 0; b < r.bytes; b++) {
    if (!cell_of(r, b).changed.group) unwritten[b / r.element_bytes] = 1;
  }
}

// A block for a buffer with nothing near it on either side, or nullptr. Vectors that begin just
// before its end can be loaded as a whole.
constexpr uint64_t kSlack = 256;
MSL_EXPORTED char* msl_check_reserve(uint64_t bytes) {
  uint64_t around = static_cast<uint64_t>(kNear), size = (bytes + kSlack + 0xFFFF) & ~uint64_t{0xFFFF};
  void* block = mmap(nullptr, size + 2 * around, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(block) + around;
  if (size && mprotect(begin, size, PROT_READ | PROT_WRITE) != 0) {
    munmap(block, size + 2 * around);
    return nullptr;
  }
  return begin;
}
MSL_EXPORTED void msl_check_release(char* begin, uint64_t bytes) {
  uint64_t around = static_cast<uint64_t>(kNear), size = (bytes + kSlack + 0xFFFF) & ~uint64_t{0xFFFF};
  munmap(begin - around, size + 2 * around);
}
