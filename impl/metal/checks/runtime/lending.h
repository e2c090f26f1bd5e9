// Arrays that threads lend to helper functions: checks/lending.py. Each is followed by spare bytes.
#pragma once
#include "ordering.h"

namespace msl {

struct Lent {
  char* begin;
  uint32_t bytes;
  int32_t region;
};
constexpr uint32_t kMostLent = 16;  // of one thread at one time; more are not watched
constexpr uint32_t kSpareBytes = 64;
struct Lender {
  uint32_t group, count;  // of another group: none
  Lent lent[kMostLent];
};
inline Lender lenders[kMostThreads];

inline Lender& lender_now() {
  Lender& lender = lenders[thread_now() % kMostThreads];
  if (lender.group != order.group) lender.count = 0;
  lender.group = order.group;
  return lender;
}

inline void take_back(char* begin) {
  Lender& lender = lender_now();
  for (uint32_t i = lender.count; i-- > 0;) {
    if (lender.lent[i].begin == begin) lender.lent[i] = lender.lent[--lender.count];
  }
}

inline void lend(char* begin, uint64_t bytes, int32_t region) {
  // A loop begins the life of its variables in every round, also where the round before was left in the middle.
  take_back(begin);
  Lender& lender = lender_now();
  if (lender.count == kMostLent) return;
  lender.lent[lender.count++] = {begin, static_cast<uint32_t>(bytes), region};
}

// The array past whose end these bytes go, if there is one.
inline const Lent* lent_before(const char* address, uint64_t bytes) {
  const Lender& lender = lender_now();
  for (uint32_t i = 0; i < lender.count; i++) {
    const Lent& one = lender.lent[i];
    const char* end = one.begin + one.bytes;
    if (address + bytes > end && address >= one.begin && address < end + kSpareBytes) return &one;
  }
  return nullptr;
}

}  // namespace msl
