// packed_*: components without padding, aligned like one of them (MSL specification 2.2.3). They convert to and from
// vectors, and arithmetic gives vectors. Swizzles are those of the vector: write `float3(p).zyx`.
#pragma once

#include "constructors.h"

namespace metal {

template <class T, int N>
struct packed_vec;

template <class T, int N, class P>
inline vec<T, N> msl_unpack(P first) {
  vec<T, N> v;
  for (int i = 0; i < N; ++i) v[i] = first[i];
  return v;
}
// The copies from constant memory are written out, because the dialect's own take no object there.
#define MSL_PACKED_COMMON(N)                                                            \
  packed_vec() = default;                                                               \
  packed_vec(const packed_vec &) = default;                                             \
  packed_vec &operator=(const packed_vec &) = default;                                  \
  packed_vec(const constant packed_vec &o) : packed_vec(vec<T, N>(o)) {}                \
  packed_vec &operator=(const constant packed_vec &o) { return *this = packed_vec(o); } \
  packed_vec(vec<T, N> v) {                                                             \
    for (int i = 0; i < N; ++i) (*this)[i] = v[i];                                      \
  }                                                                                     \
  packed_vec &operator=(vec<T, N> v) { return *this = packed_vec(v); }                  \
  explicit packed_vec(T all) : packed_vec(vec<T, N>(all)) {}                            \
  operator vec<T, N>() const { return msl_unpack<T, N>(&x); }                           \
  operator vec<T, N>() const constant { return msl_unpack<T, N>(&x); }                  \
  T &operator[](int i) { return (&x)[i]; }                                              \
  T operator[](int i) const { return (&x)[i]; }                                         \
  T operator[](int i) const constant { return (&x)[i]; }

template <class T>
struct packed_vec<T, 2> {
  T x, y;
  MSL_PACKED_COMMON(2)
  constexpr packed_vec(T x, T y) : x(x), y(y) {}
};
template <class T>
struct packed_vec<T, 3> {
  T x, y, z;
  MSL_PACKED_COMMON(3)
  constexpr packed_vec(T x, T y, T z) : x(x), y(y), z(z) {}
};
template <class T>
struct packed_vec<T, 4> {
  T x, y, z, w;
  MSL_PACKED_COMMON(4)
  constexpr packed_vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
};
#undef MSL_PACKED_COMMON

#define MSL_X(T)                          \
  typedef packed_vec<T, 2> packed_##T##2; \
  typedef packed_vec<T, 3> packed_##T##3; \
  typedef packed_vec<T, 4> packed_##T##4;
MSL_FOR_NUMBERS(MSL_X)
#undef MSL_X

#define MSL_X(OP)                                                                                               \
  template <class T, int N>                                                                                     \
  inline vec<T, N> operator OP(packed_vec<T, N> a, packed_vec<T, N> b) { return vec<T, N>(a) OP vec<T, N>(b); } \
  template <class T, int N>                                                                                     \
  inline vec<T, N> operator OP(packed_vec<T, N> a, vec<T, N> b) { return vec<T, N>(a) OP b; }                   \
  template <class T, int N>                                                                                     \
  inline vec<T, N> operator OP(vec<T, N> a, packed_vec<T, N> b) { return a OP vec<T, N>(b); }                   \
  template <class T, int N>                                                                                     \
  inline vec<T, N> operator OP(packed_vec<T, N> a, T b) { return vec<T, N>(a) OP b; }                           \
  template <class T, int N>                                                                                     \
  inline vec<T, N> operator OP(T a, packed_vec<T, N> b) { return a OP vec<T, N>(b); }
MSL_X(+) MSL_X(-) MSL_X(*) MSL_X(/)
#undef MSL_X

}  // namespace metal
