// <metal_quadgroup>: the same between four neighboring lanes (MSL specification 6.9.3).
#pragma once

#include "simdgroup.h"

namespace metal {

constexpr constant uint msl_quad_width = 4;
inline uint msl_quad_base() { return msl_rt_lane() & ~(msl_quad_width - 1); }
inline uint msl_quad_lane() { return msl_rt_lane() & (msl_quad_width - 1); }

template <class Op, bool inclusive, class T>
inline T msl_quad_prefix(T value, int identity, msl_site site) {
  return msl_fold_from<Op, msl_quad_width>(msl_meet(value, site), identity, msl_quad_base(),
                                           msl_rt_lane() + (inclusive ? 1 : 0));
}

#define MSL_QUAD_REDUCTION(NAME, OP, WHICH)                                     \
  template <class T>                                                            \
  inline WHICH<T> NAME(T data, MSL_HERE) {                                      \
    return msl_fold<OP>(msl_meet(data, site), msl_quad_base(), msl_quad_width); \
  }
MSL_QUAD_REDUCTION(quad_sum, msl_add, msl_if_number)
MSL_QUAD_REDUCTION(quad_product, msl_multiply, msl_if_number)
MSL_QUAD_REDUCTION(quad_min, msl_smaller, msl_if_number)
MSL_QUAD_REDUCTION(quad_max, msl_larger, msl_if_number)
MSL_QUAD_REDUCTION(quad_and, msl_bit_and, msl_if_integer)
MSL_QUAD_REDUCTION(quad_or, msl_bit_or, msl_if_integer)
MSL_QUAD_REDUCTION(quad_xor, msl_bit_xor, msl_if_integer)
#undef MSL_QUAD_REDUCTION

#define MSL_QUAD_PREFIX(NAME, OP, INCLUSIVE, IDENTITY)           \
  template <class T>                                             \
  inline msl_if_number<T> NAME(T data, MSL_HERE) {               \
    return msl_quad_prefix<OP, INCLUSIVE>(data, IDENTITY, site); \
  }
MSL_QUAD_PREFIX(quad_prefix_inclusive_sum, msl_add, true, 0)
MSL_QUAD_PREFIX(quad_prefix_exclusive_sum, msl_add, false, 0)
MSL_QUAD_PREFIX(quad_prefix_inclusive_product, msl_multiply, true, 1)
MSL_QUAD_PREFIX(quad_prefix_exclusive_product, msl_multiply, false, 1)
#undef MSL_QUAD_PREFIX

template <class T>
inline msl_if_value<T> quad_shuffle(T data, ushort lane, MSL_HERE) {
  return msl_read(msl_meet(data, site), msl_quad_base() + lane % msl_quad_width, site);
}
template <class T>
inline msl_if_value<T> quad_broadcast(T data, ushort lane, MSL_HERE) {
  return msl_read(msl_meet(data, site), msl_quad_base() + lane % msl_quad_width, site);
}
template <class T>
inline msl_if_value<T> quad_broadcast_first(T data, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  return lanes[__builtin_ctz(lanes.active() >> msl_quad_base()) + msl_quad_base()];
}
template <class T>
inline msl_if_value<T> quad_shuffle_xor(T data, ushort mask, MSL_HERE) {
  return msl_read(msl_meet(data, site), msl_quad_base() + ((msl_quad_lane() ^ mask) % msl_quad_width), site);
}
template <class T>
inline msl_if_value<T> quad_shuffle_down(T data, ushort delta, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint from = msl_quad_lane() + delta;
  return msl_read_if(from < msl_quad_width, lanes, msl_quad_base() + from, data, site);
}
template <class T>
inline msl_if_value<T> quad_shuffle_up(T data, ushort delta, MSL_HERE) {
  msl_lanes<T> lanes = msl_meet(data, site);
  uint lane = msl_quad_lane();
  return msl_read_if(lane >= delta, lanes, msl_quad_base() + lane - delta, data, site);
}
template <class T>
inline msl_if_value<T> quad_shuffle_rotate_down(T data, ushort delta, MSL_HERE) {
  return msl_read(msl_meet(data, site), msl_quad_base() + (msl_quad_lane() + delta) % msl_quad_width, site);
}
template <class T>
inline msl_if_value<T> quad_shuffle_rotate_up(T data, ushort delta, MSL_HERE) {
  return msl_read(msl_meet(data, site), msl_quad_base() + (msl_quad_lane() - delta) % msl_quad_width, site);
}

class quad_vote {
 public:
  typedef uint vote_t;
  constexpr explicit quad_vote(vote_t votes = 0) : votes(votes) {}
  constexpr explicit operator vote_t() const { return votes; }
  constexpr bool all() const { return (votes & 15u) == 15u; }
  constexpr bool any() const { return votes != 0; }

 private:
  vote_t votes;
};
inline uint msl_quad_ballot(bool expression, msl_site site) {
  return (uint)(msl_ballot(expression, site) >> msl_quad_base()) & 15u;
}
inline uint msl_quad_active(msl_site site) { return msl_active(site) >> msl_quad_base() & 15u; }
inline quad_vote quad_ballot(bool expression, MSL_HERE) { return quad_vote(msl_quad_ballot(expression, site)); }
inline quad_vote quad_active_threads_mask(MSL_HERE) { return quad_vote(msl_quad_active(site)); }
inline bool quad_all(bool expression, MSL_HERE) { return msl_quad_ballot(!expression, site) == 0; }
inline bool quad_any(bool expression, MSL_HERE) { return msl_quad_ballot(expression, site) != 0; }
inline bool quad_is_first(MSL_HERE) { return msl_quad_lane() == (uint)__builtin_ctz(msl_quad_active(site)); }

}  // namespace metal
