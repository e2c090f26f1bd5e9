// The faults found in a launch: each pair of places once, with the circumstances of its first time.
#pragma once
#include <stdint.h>

#include "../../runtime/simdgroup.h"

namespace msl {

enum Fault : uint32_t {
  kReadOutside = 0,
  kWriteOutside = 1,
  kRace = 2,
  kUninitialized = 3,
  kDivideByZero = 4,
  kDivideOverflow = 5,
  kShiftTooFar = 6,
  kConversion = 7,
  kWriteToInput = 8,
  kInactiveLane = 9,
  kFresh = 10,  // a probe's alone
};
enum Detail : uint32_t {
  kWrites = 1,        // the later access writes
  kOtherWrites = 2,   // the earlier access wrote
  kOtherGroup = 4,    // of another threadgroup
  kUncovered = 8,     // a barrier stands between, without the flag for this memory
  kGap = 16,          // between the elements of a view
  kAtomic = 32,       // the later access is atomic
  kOtherAtomic = 64,  // the earlier one
};

// checks/native.py has the same structure.
struct Found {
  uint32_t fault, site, other_site, detail;
  int32_t region;  // -1: none
  uint32_t bytes;
  int64_t offset;  // in bytes from the region's beginning; the number at fault in arithmetic
  double value;
  uint32_t group, other_group, thread, other_thread;
  uint64_t count;
};

constexpr uint32_t kMostFound = 256;
inline Found found[kMostFound];
inline uint32_t found_count;

// The entry for this fault at these places; `fresh` tells that it is to be filled in. nullptr: there are too many.
inline Found* find_fault(uint32_t fault, uint32_t site, uint32_t other_site, int32_t region, bool* fresh) {
  *fresh = false;
  for (uint32_t i = 0; i < found_count; i++) {
    Found& f = found[i];
    if (f.fault == fault && f.site == site && f.other_site == other_site && f.region == region) {
      f.count++;
      return &f;
    }
  }
  if (found_count == kMostFound) return nullptr;
  Found& f = found[found_count++];
  f = Found();
  f.fault = fault;
  f.site = site;
  f.other_site = other_site;
  f.region = region;
  f.count = 1;
  *fresh = true;
  return &f;
}

// A launch made again to find out whether it matters what is where nothing is: memory that nobody wrote, lanes that take
// no part, variables without a first value, results of undefined arithmetic. Those at one place hold other bytes than in
// the launch before.
struct Probe {
  uint32_t fault;  // the fault that it is about; 0 for no probe
  uint32_t site;   // kFresh: the variable's number, 0 for all
  uint32_t fill;
};
inline Probe probe;
constexpr uint32_t kUsualFill = 0xFF;

}  // namespace msl
