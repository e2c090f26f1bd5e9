// <metal_simdgroup>: what the 32 threads of a simdgroup exchange (MSL specification 6.9.2). Every function takes, as a
// hidden last argument, the place in the kernel's text where it is called: lanes meet only at the same place.
#pragma once

#include "integer_functions.h"
#include "threadgroup.h"

namespace metal {

// The values that the lanes brought to one call, of type T.
template <class T>
struct msl_lanes {
  thread msl_meeting *meeting;
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
// A lane's value for another lane; what an inactive lane would have brought is undefined, and the author is told.
template <class T>
inline T msl_read(msl_lanes<T> lanes, uint lane, msl_site site) {
  if (!lanes.took_part(lane)) msl_rt_event(MSL_READ_OF_INACTIVE_LANE, site.number);
  return lanes[lane];
}

// bfloat is reduced in float and rounded once, as in MLX's kernels (bf16_math.h).
template <class T>
struct msl_accumulator { using type = T; };
template <>
struct msl_accumulator<bfloat> { using type = float; };
template <int N>
struct msl_accumulator<vec<bfloat, N>> { using type = vec<float, N>; };
template <class T>
using msl_accumulate_in = typename msl_accumulator<T>::type;

struct msl_add { template <class T> static T of(T a, T b) { return (T)(a + b); } };
struct msl_multiply { template <class T> static T of(T a, T b) { return (T)(a * b); } };
struct msl_smaller { template <class T> static T of(T a, T b) { return min(a, b); } };
struct msl_larger { template <class T> static T of(T a, T b) { return max(a, b); } };
struct msl_bit_and { template <class T> static T of(T a, T b) { return (T)(a & b); } };
struct msl_bit_or { template <class T> static T of(T a, T b) { return (T)(a | b); } };
struct msl_bit_xor { template <class T> static T of(T a, T b) { return (T)(a ^ b); } };

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
// The fold of the lanes from `first` to before `end`, beginning with `identity`.
template <class Op, class T>
__attribute__((noinline)) inline T msl_fold_from(msl_lanes<T> lanes, int identity, uint first, uint end) {
  using A = msl_accumulate_in<T>;
  A sum = (A)(msl_element<A>)identity;
  for (uint i = first; i < end; ++i)
    if (lanes.took_part(i)) sum = Op::of(sum, (A)msl_piece<msl_element<A>>(lanes[i]));
  return msl_piece<msl_element<T>>(sum);
}
template <class Op, bool inclusive, class T>
inline T msl_prefix(T value, int identity, msl_site site) {
  return msl_fold_from<Op>(msl_meet(value, site), identity, 0, msl_rt_lane() + (inclusive ? 1 : 0));
}

// Metal has these for numbers and their vectors; a `bool` becomes an int as in any call.
template <class T>
using msl_if_number = enable_if_t<is_arithmetic<msl_element<T>>::value && !is_same<msl_element<T>, bool>::value, T>;

#define MSL_SIMD_REDUCTION(NAME, OP, WHICH) \
  template <class T>                        \
  inline WHICH<T> NAME(T data, MSL_HERE) {  \
    return msl_reduce<OP>(data, site);      \
  }
MSL_SIMD_REDUCTION(simd_sum, msl_add, msl_if_number)
MSL_SIMD_REDUCTION(simd_product, msl_multiply, msl_if_number)
MSL_SIMD_REDUCTION(simd_min, msl_smaller, msl_if_number)
MSL_SIMD_REDUCTION(simd_max, msl_larger, msl_if_number)
MSL_SIMD_REDUCTION(simd_and, msl_bit_and, msl_if_integer)
MSL_SIMD_REDUCTION(simd_or, msl_bit_or, msl_if_integer)
MSL_SIMD_REDUCTION(simd_xor, msl_bit_xor, msl_if_integer)
#undef MSL_SIMD_REDUCTION

#define MSL_SIMD_PREFIX(NAME, OP, INCLUSIVE, IDENTITY)      \
  template <class T>                                        \
  inline msl_if_number<T> NAME(T data, MSL_HERE) {          \
    return msl_prefix<OP, INCLUSIVE>(data, IDENTITY, site); \
  }
MSL_SIMD_PREFIX(simd_prefix_inclusive_sum, msl_add, true, 0)
MSL_SIMD_PREFIX(simd_prefix_exclusive_sum, msl_add, false, 0)
MSL_SIMD_PREFIX(simd_prefix_inclusive_product, msl_multiply, true, 1)
MSL_SIMD_PREFIX(simd_prefix_exclusive_product, msl_multiply, false, 1)
#undef MSL_SIMD_PREFIX

// Scalars, vectors and boolN travel; MLX's complex64_t has its own overloads.
template <class T>
using msl_if_value = enable_if_t<(msl_shape<T>::size > 0), T>;

template <class T>
inline msl_if_value<T> simd_shuffle(T data, ushort lane, MSL_HERE) {
  return msl_read(msl_meet(data, site), lane % MSL_SIMD_WIDTH, site);
}
template <class T>
inline msl_if_value<T> simd_broadcast(T data, ushort lane, MSL_HERE) {
  return msl_read(msl_meet(data, site), lane % MSL_SIMD_WIDTH, site);
}
template <class T>
inline msl_if_value<T> simd_broadcast_first(T data, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  return lanes[lanes.first()];
}
template <class T>
inline msl_if_value<T> simd_shuffle_xor(T data, ushort mask, MSL_HERE) {
  return msl_read(msl_meet(data, site), (msl_rt_lane() ^ mask) % MSL_SIMD_WIDTH, site);
}
// Down and up do not wrap: the lanes at the end keep their own value.
template <class T>
inline msl_if_value<T> simd_shuffle_down(T data, ushort delta, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint from = msl_rt_lane() + delta;
  return from < MSL_SIMD_WIDTH ? msl_read(lanes, from, site) : data;
}
template <class T>
inline msl_if_value<T> simd_shuffle_up(T data, ushort delta, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_rt_lane();
  return lane >= delta ? msl_read(lanes, lane - delta, site) : data;
}
template <class T>
inline msl_if_value<T> simd_shuffle_rotate_down(T data, ushort delta, MSL_HERE) {
  return msl_read(msl_meet(data, site), (msl_rt_lane() + delta) % MSL_SIMD_WIDTH, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_rotate_up(T data, ushort delta, MSL_HERE) {
  return msl_read(msl_meet(data, site), (msl_rt_lane() - delta) % MSL_SIMD_WIDTH, site);
}
// The lanes that a shift leaves empty get `filling`, counted from the other end; `modulo` lanes shift as one group.
template <class T>
inline msl_if_value<T> simd_shuffle_and_fill_down(T data, T filling, ushort delta, ushort modulo, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_rt_lane(), base = lane - lane % modulo, from = lane % modulo + delta;
  T moved = from < modulo ? msl_read(lanes, base + from, site) : data;
  msl_lanes<T> fill = msl_meet(filling, site);
  return from < modulo ? moved : msl_read(fill, base + from % modulo, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_and_fill_up(T data, T filling, ushort delta, ushort modulo, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_rt_lane(), base = lane - lane % modulo, place = lane % modulo;
  T moved = place >= delta ? msl_read(lanes, base + place - delta, site) : data;
  msl_lanes<T> fill = msl_meet(filling, site);
  return place >= delta ? moved : msl_read(fill, base + (place + modulo - delta % modulo) % modulo, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_and_fill_down(T data, T filling, ushort delta, MSL_HERE) {
  return simd_shuffle_and_fill_down(data, filling, delta, (ushort)MSL_SIMD_WIDTH, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_and_fill_up(T data, T filling, ushort delta, MSL_HERE) {
  return simd_shuffle_and_fill_up(data, filling, delta, (ushort)MSL_SIMD_WIDTH, site);
}

// One bit for each lane.
class simd_vote {
 public:
  typedef ulong vote_t;
  constexpr explicit simd_vote(vote_t votes = 0) : votes(votes) {}
  constexpr explicit operator vote_t() const { return votes; }
  constexpr bool all() const { return (votes & 0xffffffffu) == 0xffffffffu; }
  constexpr bool any() const { return votes != 0; }

 private:
  vote_t votes;
};
inline ulong msl_ballot(bool expression, msl_site site) {
  msl_lanes<bool> lanes = msl_meet(expression, site);
  ulong votes = 0;
  for (uint i = 0; i < MSL_SIMD_WIDTH; ++i)
    if (lanes.took_part(i) && lanes[i]) votes |= 1ul << i;
  return votes;
}
inline uint msl_active(msl_site site) { return msl_meet(true, site).meeting->active; }
inline simd_vote simd_ballot(bool expression, MSL_HERE) { return simd_vote(msl_ballot(expression, site)); }
inline simd_vote simd_active_threads_mask(MSL_HERE) { return simd_vote(msl_active(site)); }
inline bool simd_all(bool expression, MSL_HERE) { return msl_ballot(!expression, site) == 0; }
inline bool simd_any(bool expression, MSL_HERE) { return msl_ballot(expression, site) != 0; }
inline bool simd_is_first(MSL_HERE) { return msl_rt_lane() == (uint)__builtin_ctz(msl_active(site)); }
// Helper threads exist in fragment functions only.
inline bool simd_is_helper_thread() { return false; }

}  // namespace metal
