// <metal_simdgroup>: what the 32 threads of a simdgroup exchange (MSL specification 6.9.2). Every function takes, as a
// hidden last argument, the place in the kernel's text where it is called: lanes meet only at the same place.
#pragma once

#include "integer_functions.h"
#include "threadgroup.h"

namespace metal {

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

}  // namespace metal
#ifdef __NVPTX__
#include "../cuda/prelude/exchange.h"
#else
#include "meeting.h"
#endif
namespace metal {

template <class Op, bool inclusive, class T>
inline T msl_prefix(T value, int identity, msl_site site) {
  return msl_fold_from<Op, MSL_SIMD_WIDTH>(msl_meet(value, site), identity, 0, msl_rt_lane() + (inclusive ? 1 : 0));
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
  return msl_read_if(from < MSL_SIMD_WIDTH, lanes, from, data, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_up(T data, ushort delta, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_rt_lane();
  return msl_read_if(lane >= delta, lanes, lane - delta, data, site);
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
  T moved = msl_read_if(from < modulo, lanes, base + from, data, site);
  msl_lanes<T> fill = msl_meet(filling, site);
  return msl_read_if(from >= modulo, fill, base + from % modulo, moved, site);
}
template <class T>
inline msl_if_value<T> simd_shuffle_and_fill_up(T data, T filling, ushort delta, ushort modulo, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_rt_lane(), base = lane - lane % modulo, place = lane % modulo;
  T moved = msl_read_if(place >= delta, lanes, base + place - delta, data, site);
  msl_lanes<T> fill = msl_meet(filling, site);
  return msl_read_if(place < delta, fill, base + (place + modulo - delta % modulo) % modulo, moved, site);
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
inline simd_vote simd_ballot(bool expression, MSL_HERE) { return simd_vote(msl_ballot(expression, site)); }
inline simd_vote simd_active_threads_mask(MSL_HERE) { return simd_vote(msl_active(site)); }
inline bool simd_all(bool expression, MSL_HERE) { return msl_ballot(!expression, site) == 0; }
inline bool simd_any(bool expression, MSL_HERE) { return msl_ballot(expression, site) != 0; }
inline bool simd_is_first(MSL_HERE) { return msl_rt_lane() == (uint)__builtin_ctz(msl_active(site)); }
// Helper threads exist in fragment functions only.
inline bool simd_is_helper_thread() { return false; }

}  // namespace metal
