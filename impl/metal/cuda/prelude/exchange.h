// What the lanes of a simdgroup exchange, on a warp. The other side of prelude/meeting.h: the same functions on the same
// terms, with a shuffle where the CPU reads memory. A shuffle needs the lane that is read, so every lane that meets
// executes every shuffle here, in the same order; conditions that differ between lanes choose among results only.
#pragma once

namespace metal {

// The lanes that are here: those of `site.lanes` (see masks.py) which have not returned. A vote waits for them.
inline uint msl_active(msl_site site) { return __nvvm_vote_ballot_sync(site.lanes, true); }

// What lane `from` of `active` has in `value`. All of `active` come here.
template <class T>
inline T msl_shuffle(uint active, T value, uint from) {
  constexpr uint words = (sizeof(T) + 3) / 4;
  int carried[words] = {0};
  __builtin_memcpy(carried, &value, sizeof(T));
  for (uint i = 0; i < words; ++i) carried[i] = __nvvm_shfl_sync_idx_i32(active, carried[i], (int)from, 31);
  __builtin_memcpy(&value, carried, sizeof(T));
  return value;
}

template <class T>
struct msl_lanes {
  T own;
  uint here;
  uint active() const { return here; }
  bool took_part(uint lane) const { return here >> lane & 1; }
  uint first() const { return __builtin_ctz(here); }
  T operator[](uint lane) const { return msl_shuffle(here, own, lane); }
};
template <class T>
inline msl_lanes<T> msl_meet(T value, msl_site site) {
  static_assert(sizeof(T) <= MSL_MAX_VALUE_BYTES, "a simdgroup function takes scalars and vectors");
  msl_lanes<T> lanes;
  lanes.own = value;
  lanes.here = msl_active(site);
  return lanes;
}
// A lane's value for another lane (where `wanted`); 0xFF bytes from an inactive lane, as on the CPU.
template <class T>
inline T msl_read(msl_lanes<T> lanes, uint lane, msl_site) {
  T value = lanes[lane & 31u];
  if (!lanes.took_part(lane & 31u)) __builtin_memset(&value, 0xFF, sizeof(T));
  return value;
}
template <class T>
inline T msl_read_if(bool wanted, msl_lanes<T> lanes, uint lane, T otherwise, msl_site site) {
  T value = msl_read(lanes, lane, site);
  return wanted ? value : otherwise;
}

// The lanes first .. first + count - 1, in ascending order; `count` is the same for all lanes.
template <class Op, class T>
inline T msl_fold(msl_lanes<T> lanes, uint first, uint count) {
  msl_accumulate_in<T> sum;
  bool empty = true;
  for (uint i = first; i < first + count; ++i) {
    auto value = msl_piece<msl_element<msl_accumulate_in<T>>>(lanes[i]);
    if (!lanes.took_part(i)) continue;
    sum = empty ? value : Op::of(sum, value);
    empty = false;
  }
  return msl_piece<msl_element<T>>(sum);
}
// With all lanes a butterfly, whose order of additions differs from that of msl_fold.
template <class Op, class T>
inline T msl_reduce(T value, msl_site site) {
  msl_lanes<T> lanes = msl_meet(value, site);
  if (lanes.here != 0xffffffffu) return msl_fold<Op>(lanes, 0, MSL_SIMD_WIDTH);
  msl_accumulate_in<T> sum = msl_piece<msl_element<msl_accumulate_in<T>>>(value);
  for (uint apart = 16; apart > 0; apart /= 2) sum = Op::of(sum, msl_shuffle(0xffffffffu, sum, msl_rt_lane() ^ apart));
  return msl_piece<msl_element<T>>(sum);
}
// The fold of the lanes from `first` to before `end`, beginning with `identity`; they lie within `most` lanes.
template <class Op, uint most, class T>
inline T msl_fold_from(msl_lanes<T> lanes, int identity, uint first, uint end) {
  using A = msl_accumulate_in<T>;
  A sum = (A)(msl_element<A>)identity;
  for (uint i = 0; i < most; ++i) {
    uint from = first + i;
    A value = (A)msl_piece<msl_element<A>>(lanes[from & 31u]);
    if (from < end && lanes.took_part(from & 31u)) sum = Op::of(sum, value);
  }
  return msl_piece<msl_element<T>>(sum);
}

inline ulong msl_ballot(bool expression, msl_site site) {
  return (ulong)__nvvm_vote_ballot_sync(msl_active(site), expression);
}

}  // namespace metal
