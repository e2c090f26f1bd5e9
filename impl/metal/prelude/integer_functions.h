// <metal_integer>: integer functions (MSL specification 6.4). Those that kernels mix with literals and vectors (abs,
// min, max, clamp) have one overload for each type; the rest are templates over an integer scalar or vector.
#pragma once

#include "math_functions.h"
#include "numeric_limits.h"

namespace metal {

#define MSL_INTEGER_OVERLOADS(T)                              \
  inline T abs(T x) { return x < 0 ? (T)(-x) : x; }           \
  inline T min(T x, T y) { return y < x ? y : x; }            \
  inline T max(T x, T y) { return x < y ? y : x; }            \
  inline T clamp(T x, T y, T z) { return min(max(x, y), z); } \
  inline T min3(T x, T y, T z) { return min(x, min(y, z)); }  \
  inline T max3(T x, T y, T z) { return max(x, max(y, z)); }  \
  inline T median3(T x, T y, T z) { return max(min(x, y), min(max(x, y), z)); }
MSL_FOR_INTEGERS(MSL_INTEGER_OVERLOADS)
#undef MSL_INTEGER_OVERLOADS
MSL_VECTORS_1(abs, msl_integer_vector)
MSL_VECTORS_2(min, msl_integer_vector)
MSL_VECTORS_2(max, msl_integer_vector)
MSL_VECTORS_3(clamp, msl_integer_vector)
MSL_VECTORS_3(min3, msl_integer_vector)
MSL_VECTORS_3(max3, msl_integer_vector)
MSL_VECTORS_3(median3, msl_integer_vector)

// Applies Op::of to one component of each argument at a time.
template <class Op, class V, class... More>
inline V msl_each(V x, More... more) {
  if constexpr (msl_is_vector<V>) {
    V r;
    for (int i = 0; i < msl_shape<V>::size; ++i) r[i] = Op::of(msl_element<V>(x[i]), msl_element<More>(more[i])...);
    return r;
  } else {
    return Op::of(x, more...);
  }
}
template <class V>
using msl_if_integer = enable_if_t<is_integral<msl_element<V>>::value && !is_same<msl_element<V>, bool>::value, V>;
template <class T>
using msl_unsigned = make_unsigned_t<T>;

// MSL_INTEGER_1(NAME, BODY): a function of one integer `x` of type T with `bits` bits and unsigned twin `u`.
#define MSL_OP_HEAD(NAME) \
  struct msl_##NAME {     \
    template <class T>    \
    static T of
#define MSL_INTEGER_1(NAME, ...)                                                                           \
  MSL_OP_HEAD(NAME)(T x) { constexpr int bits = 8 * sizeof(T); using U = msl_unsigned<T>; __VA_ARGS__ } }; \
  template <class V>                                                                                       \
  inline msl_if_integer<V> NAME(V x) {                                                                     \
    return msl_each<msl_##NAME>(x);                                                                        \
  }
#define MSL_INTEGER_2(NAME, ...)                                                                                \
  MSL_OP_HEAD(NAME)(T x, T y) { constexpr int bits = 8 * sizeof(T); using U = msl_unsigned<T>; __VA_ARGS__ } }; \
  template <class V>                                                                                            \
  inline msl_if_integer<V> NAME(V x, V y) {                                                                     \
    return msl_each<msl_##NAME>(x, y);                                                                          \
  }
#define MSL_INTEGER_3(NAME, ...)                      \
  MSL_OP_HEAD(NAME)(T x, T y, T z) { __VA_ARGS__ } }; \
  template <class V>                                  \
  inline msl_if_integer<V> NAME(V x, V y, V z) {      \
    return msl_each<msl_##NAME>(x, y, z);             \
  }

MSL_INTEGER_1(popcount, return (T)__builtin_popcountl((ulong)(U)x);)
MSL_INTEGER_1(clz, return x == 0 ? (T)bits : (T)(__builtin_clzl((ulong)(U)x) - (64 - bits));)
MSL_INTEGER_1(ctz, return x == 0 ? (T)bits : (T)__builtin_ctzl((ulong)(U)x);)
MSL_INTEGER_1(reverse_bits, return (T)(U)(__builtin_bitreverse64((ulong)(U)x) >> (64 - bits));)

MSL_INTEGER_2(rotate, U n = (U)y & (U)(bits - 1); return (T)(U)(((U)x << n) | ((U)x >> ((bits - n) & (bits - 1))));)
// Twice the width of T, which holds every product exactly.
template <class T>
using msl_wide = conditional_t<sizeof(T) == 8, conditional_t<is_signed<T>::value, __int128, unsigned __int128>,
                               conditional_t<is_signed<T>::value, long, ulong>>;
MSL_INTEGER_2(mulhi, return (T)(((msl_wide<T>)x * (msl_wide<T>)y) >> bits);)
MSL_INTEGER_2(addsat,
  T r;
  if (!__builtin_add_overflow(x, y, &r)) return r;
  if constexpr (is_signed<T>::value) return x < 0 ? (T)((U)1 << (bits - 1)) : (T)~((U)1 << (bits - 1));
  return (T)~(U)0;)
MSL_INTEGER_2(subsat,
  T r;
  if (!__builtin_sub_overflow(x, y, &r)) return r;
  if constexpr (is_signed<T>::value) return x < 0 ? (T)((U)1 << (bits - 1)) : (T)~((U)1 << (bits - 1));
  return T(0);)
// (x + y) >> 1 and (x + y + 1) >> 1 without the overflow.
MSL_INTEGER_2(hadd, return (T)((x >> 1) + (y >> 1) + (x & y & 1));)
MSL_INTEGER_2(rhadd, return (T)((x >> 1) + (y >> 1) + ((x | y) & 1));)

MSL_INTEGER_3(madhi, return (T)(mulhi(x, y) + z);)
MSL_INTEGER_3(madsat,
  msl_wide<T> exact = (msl_wide<T>)x * (msl_wide<T>)y + (msl_wide<T>)z;
  return exact < (msl_wide<T>)numeric_limits<T>::min()   ? numeric_limits<T>::min()
         : exact > (msl_wide<T>)numeric_limits<T>::max() ? numeric_limits<T>::max()
                                                         : (T)exact;)

// 24-bit products are defined for 32-bit integers; the high bits of the operands are ignored.
struct msl_low24 {
  static int of(int x) { return (x << 8) >> 8; }
  static uint of(uint x) { return x & 0xffffffu; }
};
template <class V>
using msl_if_32_bit = enable_if_t<is_same<msl_element<V>, int>::value || is_same<msl_element<V>, uint>::value, V>;
template <class V>
inline msl_if_32_bit<V> mul24(V x, V y) {
  return msl_each<msl_low24>(x) * msl_each<msl_low24>(y);
}
template <class V>
inline msl_if_32_bit<V> mad24(V x, V y, V z) {
  return mul24(x, y) + z;
}

template <class T>
inline msl_unsigned<T> msl_absdiff(T x, T y) {
  using U = msl_unsigned<T>;
  return x < y ? (U)((U)y - (U)x) : (U)((U)x - (U)y);
}
template <class T, class = msl_if_integer<T>, class = enable_if_t<!msl_is_vector<T>>>
inline msl_unsigned<T> absdiff(T x, T y) {
  return msl_absdiff(x, y);
}
template <class T, int N>
inline vec<msl_unsigned<T>, N> absdiff(vec<T, N> x, vec<T, N> y) {
  vec<msl_unsigned<T>, N> r;
  for (int i = 0; i < N; ++i) r[i] = msl_absdiff(T(x[i]), T(y[i]));
  return r;
}

// Bits [offset, offset + count) of x; of a signed x with the top one as sign.
struct msl_extract_bits {
  template <class T>
  static T of(T x, uint offset, uint count) {
    constexpr uint bits = 8 * sizeof(T);
    if (count == 0 || offset >= bits) return T(0);
    if (count > bits - offset) count = bits - offset;
    T top = (T)((msl_unsigned<T>)x << (bits - offset - count));
    return (T)(top >> (bits - count));
  }
};
struct msl_insert_bits {
  template <class T>
  static T of(T base, T insert, uint offset, uint count) {
    using U = msl_unsigned<T>;
    constexpr uint bits = 8 * sizeof(T);
    if (count == 0 || offset >= bits) return base;
    U mask = count >= bits ? (U)~(U)0 : (U)(((U)1 << count) - 1);
    mask = (U)(mask << offset);
    return (T)(U)(((U)base & (U)~mask) | (((U)insert << offset) & mask));
  }
};
template <class V>
inline msl_if_integer<V> extract_bits(V x, uint offset, uint bits) {
  if constexpr (msl_is_vector<V>) {
    for (int i = 0; i < msl_shape<V>::size; ++i) x[i] = msl_extract_bits::of(msl_element<V>(x[i]), offset, bits);
    return x;
  } else {
    return msl_extract_bits::of(x, offset, bits);
  }
}
template <class V>
inline msl_if_integer<V> insert_bits(V base, V insert, uint offset, uint bits) {
  if constexpr (msl_is_vector<V>) {
    using E = msl_element<V>;
    for (int i = 0; i < msl_shape<V>::size; ++i) base[i] = msl_insert_bits::of(E(base[i]), E(insert[i]), offset, bits);
    return base;
  } else {
    return msl_insert_bits::of(base, insert, offset, bits);
  }
}

}  // namespace metal
