// What the shadow of a word says to an access: a race, or memory that nobody has written.
#pragma once
#include "ordering.h"

namespace msl {

// Threads that wrote the value which another one had written before, without order: they may read it, for it is theirs.
struct Agreed {
  const Cell* cell;
  uint32_t threads[kMostThreads / 32];
};
constexpr uint32_t kMostAgreed = 4096;
inline Agreed agreed[kMostAgreed];
inline uint32_t agreed_count;
inline uint32_t atomics_in_conflict;  // atomic operations whose result depends on the order of threads
inline uint32_t fences;

inline Agreed* agreed_on(const Cell* cell) {
  uint32_t at = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(cell) / sizeof(Cell) * 2654435761u) % kMostAgreed;
  while (agreed[at].cell && agreed[at].cell != cell) at = (at + 1) % kMostAgreed;
  return &agreed[at];
}
inline void forget_agreements() {
  if (agreed_count) memset(agreed, 0, sizeof agreed);
  agreed_count = 0;
}
inline void agree(const Cell* cell, uint32_t thread) {
  if (agreed_count >= kMostAgreed / 2) return;
  Agreed* entry = agreed_on(cell);
  if (!entry->cell) agreed_count++;
  entry->cell = cell;
  entry->threads[thread / 32] |= 1u << thread % 32;
}
// A full table agrees to everything: better no report than a wrong one.
inline bool wrote_the_same(const Cell* cell, uint32_t thread) {
  if (agreed_count == 0) return false;
  if (agreed_count >= kMostAgreed / 2) return true;
  Agreed* entry = agreed_on(cell);
  return entry->cell && (entry->threads[thread / 32] >> thread % 32 & 1u);
}
inline void disagree(const Cell* cell) {
  if (agreed_count == 0) return;
  Agreed* entry = agreed_on(cell);
  if (entry->cell) memset(entry->threads, 0, sizeof entry->threads);
}

struct Access {
  Record now;
  int32_t region;
  uint32_t kind;  // of the region
  int64_t offset;
  uint32_t bytes;
  bool reads, writes;
};

inline bool there(const Record& r, const Access& a) {
  return r.group && (a.kind == kOutput || r.group == a.now.group);
}

__attribute__((noinline, cold)) inline void race(const Access& a, const Record& other, bool other_writes) {
  if (fences) return;
  bool fresh;
  Found* f = find_fault(kRace, a.now.site, other.site, a.region, &fresh);
  if (!f || !fresh) return;
  f->detail = (a.writes ? kWrites : 0) | (other_writes ? kOtherWrites : 0) | (a.now.atomic ? kAtomic : 0) |
              (other.atomic ? kOtherAtomic : 0) | (other.group != a.now.group ? kOtherGroup : 0) |
              (other.group == a.now.group && other.epoch < a.now.epoch ? kUncovered : 0);
  f->bytes = a.bytes;
  f->offset = a.offset;
  f->group = a.now.group;
  f->other_group = other.group;
  f->thread = a.now.thread;
  f->other_thread = other.thread;
}

inline void conflict(const Access& a, const Record& other, bool other_writes) {
  if (!a.now.atomic || !other.atomic) {
    race(a, other, other_writes);
  } else if (a.now.ordering || other.ordering) {
    atomics_in_conflict++;
  }
}

inline const Cell& cell_of(const Region& r, uint64_t byte) {
  uint64_t word = byte / 4;
  return r.cells[r.split[word] ? byte % 4 : 0][word];
}

__attribute__((noinline, cold)) inline void uninitialized(const Region& r, const Access& a) {
  if (probe.fault == kUninitialized && probe.site == a.now.site) {
    for (int64_t b = a.offset; b < a.offset + a.bytes; b++) {
      if (!there(cell_of(r, static_cast<uint64_t>(b)).changed, a)) r.begin[b] = static_cast<char>(probe.fill);
    }
  }
  bool fresh;
  Found* f = find_fault(kUninitialized, a.now.site, 0, a.region, &fresh);
  if (!f || !fresh) return;
  f->bytes = a.bytes;
  f->offset = a.offset;
  f->group = a.now.group;
  f->thread = a.now.thread;
}

inline void note_read(Cell& cell, const Access& a) {
  for (Record& slot : cell.read) {
    if (!there(slot, a) || slot.thread == a.now.thread || ordered(slot, a.now, a.kind)) {
      if (there(slot, a) && slot.group != a.now.group) continue;
      slot = a.now;
      return;
    }
  }
  // Both are of others without order. Two simdgroups are better witnesses than two lanes of one.
  uint32_t first = cell.read[0].thread / MSL_SIMD_WIDTH, second = cell.read[1].thread / MSL_SIMD_WIDTH;
  bool one_group = cell.read[0].group == cell.read[1].group;
  if (one_group && (a.now.group != cell.read[0].group || (first == second && a.now.thread / MSL_SIMD_WIDTH != first))) {
    cell.read[1] = a.now;
  }
}

// `same`: the bytes written are those that are there.
inline void touch(Cell& cell, const Access& a, bool same, bool initialized) {
  bool written = there(cell.changed, a);
  if (a.reads) {
    if (written && !ordered(cell.changed, a.now, a.kind) && !wrote_the_same(&cell, a.now.thread)) {
      conflict(a, cell.changed, true);
    }
    if (!a.writes) note_read(cell, a);
  }
  if (!a.writes) return;
  if (same && !a.now.atomic && (written || initialized)) {
    if (written && !ordered(cell.changed, a.now, a.kind)) agree(&cell, a.now.thread);
    // Of two writers without order either may be the witness; one that is ordered is none.
    cell.same = a.now;
    return;
  }
  if (!a.reads && written && !ordered(cell.changed, a.now, a.kind)) conflict(a, cell.changed, true);
  if (there(cell.same, a) && !ordered(cell.same, a.now, a.kind)) conflict(a, cell.same, true);
  for (const Record& r : cell.read) {
    if (!there(r, a) || ordered(r, a.now, a.kind)) continue;
    // A read that a barrier of any kind separates from this write is over.
    if (r.group == a.now.group && r.epoch < a.now.epoch) continue;
    conflict(a, r, false);
  }
  disagree(&cell);
  cell.changed = a.now;
  cell.same.group = cell.read[0].group = cell.read[1].group = 0;
}

// Bytes [from, to) of word `word`; `value` is what will be written there, or nullptr.
inline void touch_word(Region& r, uint64_t word, uint32_t from, uint32_t to, const Access& a, const char* value) {
  const char* old = r.begin + word * 4;
  if (from == 0 && to == 4 && !r.split[word]) {
    touch(r.cells[0][word], a, value && memcmp(old, value, 4) == 0, r.initialized);
    return;
  }
  if (!r.split[word] && !split_word(r, word)) return;
  bool same = value && memcmp(old + from, value, to - from) == 0;
  for (uint32_t b = from; b < to; b++) touch(r.cells[b][word], a, same, r.initialized);
}

// How many of the bytes have been written.
inline uint32_t written_bytes(const Region& r, uint64_t offset, uint32_t bytes, const Access& a) {
  uint32_t count = 0;
  for (uint64_t b = offset; b < offset + bytes; b++) count += there(cell_of(r, b).changed, a);
  return count;
}

// `whole_or_nothing`: a copy, which may take along padding that nobody wrote.
inline void account(Region& r, const Access& a, const char* value, bool whole_or_nothing) {
  uint64_t begin = static_cast<uint64_t>(a.offset), end = begin + a.bytes;
  if (a.reads && !r.initialized) {
    uint32_t written = written_bytes(r, begin, a.bytes, a);
    if (whole_or_nothing ? written == 0 : written < a.bytes) uninitialized(r, a);
  }
  for (uint64_t word = begin / 4; word * 4 < end; word++) {
    uint64_t low = word * 4;
    uint32_t from = low < begin ? static_cast<uint32_t>(begin - low) : 0;
    uint32_t to = end - low < 4 ? static_cast<uint32_t>(end - low) : 4;
    touch_word(r, word, from, to, a, value ? value + (low + from - begin) : nullptr);
  }
}

}  // namespace msl
