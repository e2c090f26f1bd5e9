// The memories that a checked kernel may touch, and the shadow of those that may be written.
#pragma once
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

namespace msl {

enum Kind : uint32_t { kInput = 0, kOutput = 1, kThreadgroup = 2, kTable = 3, kPrivate = 4 };

// One access: who, where in the text, and when. `group` 0: none.
struct Record {
  uint32_t group;  // number of the threadgroup, from 1
  uint32_t thread : 10, atomic : 1, ordering : 1, site : 20;
  uint32_t epoch;  // barriers that the threadgroup had passed
  uint32_t stamp;  // meetings that the simdgroup had had
};
// What is known of a word, or of a byte of a word whose bytes are used one by one.
struct Cell {
  Record changed;  // the last write that changed the value
  Record same;     // a later write of the same value
  Record read[2];  // later reads, of different threads and simdgroups where there are any
};

// How Python describes a memory; checks/native.py has the same structure.
struct Memory {
  uint64_t begin, bytes;
  uint64_t valid;  // of a view with gaps: one byte an element, else 0
  uint32_t kind, element_bytes, initialized, unused;
};

struct Region {
  char* begin;
  uint64_t bytes;
  const uint8_t* valid;
  uint32_t kind, element_bytes, initialized;
  Cell* cells[4];  // of the word's bytes 0 to 3; a word used as a whole has the first alone
  uint8_t* split;  // for each word: its bytes are used one by one
  uint64_t words;
};

constexpr uint32_t kMostRegions = 1024;
constexpr int64_t kNear = 16 << 20;  // how far from a memory an address still counts as meant for it
inline Region regions[kMostRegions];
inline uint32_t region_count;

inline void* reserve(uint64_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

inline void drop_regions() {
  for (uint32_t i = 0; i < region_count; i++) {
    Region& r = regions[i];
    if (r.words == 0) continue;
    for (Cell* plane : r.cells) {
      if (plane) munmap(plane, r.words * sizeof(Cell));
    }
    if (r.split) munmap(r.split, r.words);
  }
  region_count = 0;
}

// False: no memory for the shadow.
inline bool take_regions(const Memory* given, uint32_t count) {
  drop_regions();
  for (uint32_t i = 0; i < count; i++) {
    Region& r = regions[i];
    memset(&r, 0, sizeof r);
    r.begin = reinterpret_cast<char*>(given[i].begin);
    r.bytes = given[i].bytes;
    r.valid = reinterpret_cast<const uint8_t*>(given[i].valid);
    r.kind = given[i].kind;
    r.element_bytes = given[i].element_bytes;
    r.initialized = given[i].initialized;
    region_count = i + 1;
    if ((r.kind != kOutput && r.kind != kThreadgroup) || r.bytes == 0) continue;
    r.words = (r.bytes + 3) / 4;
    if (!(r.cells[0] = static_cast<Cell*>(reserve(r.words * sizeof(Cell))))) return false;
    if (!(r.split = static_cast<uint8_t*>(reserve(r.words)))) return false;
  }
  return true;
}

// From now on the word's bytes are looked at one by one. False: no memory for that.
inline bool split_word(Region& r, uint64_t word) {
  for (int b = 1; b < 4; b++) {
    if (!r.cells[b] && !(r.cells[b] = static_cast<Cell*>(reserve(r.words * sizeof(Cell))))) return false;
  }
  for (int b = 1; b < 4; b++) r.cells[b][word] = r.cells[0][word];
  r.split[word] = 1;
  return true;
}

inline bool inside(const Region& r, const char* address, uint64_t bytes) {
  uint64_t offset = static_cast<uint64_t>(address - r.begin);
  return offset <= r.bytes && bytes <= r.bytes - offset;
}

// The region at `address`, else the nearest one not too far away, else -1.
inline int region_at(const char* address) {
  static uint32_t last;
  if (last < region_count && regions[last].kind != kPrivate && inside(regions[last], address, 1)) {
    return static_cast<int>(last);
  }
  int nearest = -1;
  int64_t least = kNear;
  for (uint32_t i = 0; i < region_count; i++) {
    const Region& r = regions[i];
    if (r.kind == kPrivate) continue;
    int64_t before = r.begin - address, after = address - (r.begin + r.bytes) + 1;
    int64_t distance = before > 0 ? before : after > 0 ? after : 0;
    if (distance == 0) {
      last = i;
      return static_cast<int>(i);
    }
    if (distance < least) {
      least = distance;
      nearest = static_cast<int>(i);
    }
  }
  return nearest;
}

}  // namespace msl
