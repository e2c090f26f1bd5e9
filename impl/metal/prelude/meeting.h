// What the lanes of a simdgroup exchange, through the runtime's meetings. cuda/prelude/exchange.h has the same functions
// for a warp.
#pragma once

namespace metal {

// The values that the lanes brought to one call, of type T.
template <class T>
struct msl_lanes {
  thread msl_meeting *meeting;
  uint active() const { return meeting->active; }
  bool took_part(uint lane) const { return meeting->active >> lane & 1; }
  uint first() const { return __builtin_ctz(meeting->active); }
  T operator[](uint lane) const { return ((const thread T *)meeting->values)[lane]; }
};
template <class T>
inline msl_lanes<T> msl_meet(T value, msl_site site) {
  static_assert(sizeof(T) <= MSL_MAX_VALUE_BYTES, "a simdgroup function takes scalars and vectors");
  msl_lanes<T> lanes;
  lanes.meeting = msl_rt_meet(&value, sizeof(T), site.number);
  return lanes;
}
// A lane's value for another lane (where `wanted`); what an inactive lane would have brought is undefined, and the
// author is told.
template <class T>
inline T msl_read(msl_lanes<T> lanes, uint lane, msl_site site) {
  if (!lanes.took_part(lane)) msl_rt_event(MSL_READ_OF_INACTIVE_LANE, site.number);
  return lanes[lane];
}
template <class T>
inline T msl_read_if(bool wanted, msl_lanes<T> lanes, uint lane, T otherwise, msl_site site) {
  return wanted ? msl_read(lanes, lane, site) : otherwise;
}

// Lanes first .. first + count - 1, in ascending order. Not inlined: a kernel with many reductions compiles in half the
// time, and one lane in 32 comes here.
template <class Op, class T>
__attribute__((noinline)) inline T msl_fold(msl_lanes<T> lanes, uint first, uint count) {
  msl_accumulate_in<T> sum;
  bool empty = true;
  for (uint i = first; i < first + count; ++i) {
    if (!lanes.took_part(i)) continue;
    auto value = msl_piece<msl_element<msl_accumulate_in<T>>>(lanes[i]);
    sum = empty ? value : Op::of(sum, value);
    empty = false;
  }
  return msl_piece<msl_element<T>>(sum);
}
// The same for all lanes, so only the first to come computes it.
template <class Op, class T>
inline T msl_reduce(T value, msl_site site) {
  msl_lanes<T> lanes = msl_meet(value, site);
  if (!lanes.meeting->computed) {
    *(thread T *)lanes.meeting->result = msl_fold<Op>(lanes, 0, MSL_SIMD_WIDTH);
    lanes.meeting->computed = 1;
  }
  return *(const thread T *)lanes.meeting->result;
}
// The fold of the lanes from `first` to before `end`, beginning with `identity`; they lie within `most` lanes.
template <class Op, uint most, class T>
__attribute__((noinline)) inline T msl_fold_from(msl_lanes<T> lanes, int identity, uint first, uint end) {
  using A = msl_accumulate_in<T>;
  A sum = (A)(msl_element<A>)identity;
  for (uint i = first; i < end; ++i)
    if (lanes.took_part(i)) sum = Op::of(sum, (A)msl_piece<msl_element<A>>(lanes[i]));
  return msl_piece<msl_element<T>>(sum);
}
inline ulong msl_ballot(bool expression, msl_site site) {
  msl_lanes<bool> lanes = msl_meet(expression, site);
  ulong votes = 0;
  for (uint i = 0; i < MSL_SIMD_WIDTH; ++i)
    if (lanes.took_part(i) && lanes[i]) votes |= 1ul << i;
  return votes;
}
inline uint msl_active(msl_site site) { return msl_meet(true, site).meeting->active; }

}  // namespace metal
