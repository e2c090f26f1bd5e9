// Vectors: charN .. bfloatN are clang's extended vectors, which bring swizzles and arithmetic per component. boolN is a
// class here, because the dialect has no vectors of bool.
#pragma once

#include "type_traits.h"

namespace metal {

// Deducible: a template can take vec<T, N> and learn T and N.
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

#define MSL_X(T)                                      \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_FOR_NUMBERS(MSL_X)
#undef MSL_X

// What a type is made of: `element`, and `size`, 1 for a scalar, 0 for what is neither.
template <class V>
struct msl_shape {
  using element = V;
  static constexpr constant int size = is_arithmetic<V>::value ? 1 : 0;
};
template <class T, int N>
struct msl_shape<T __attribute__((ext_vector_type(N)))> {
  using element = T;
  static constexpr constant int size = N;
};
template <class V>
using msl_element = typename msl_shape<V>::element;
template <class V>
constexpr constant bool msl_is_vector = (msl_shape<V>::size > 1);

// boolN. A comparison of vectors gives charN, shortN, intN or longN, which convert to boolN. The dialect's value for
// true in them is -1; vector_lowering.py makes it Metal's 1.
#define MSL_BOOL_COMMON(N)                                                                   \
  msl_bool_vector() = default;                                                               \
  template <class I, class = enable_if_t<is_integral<I>::value && !is_same<I, bool>::value>> \
  constexpr msl_bool_vector(vec<I, N> mask) : msl_bool_vector(mask, 0) {}                    \
  bool operator[](int i) const { return (&x)[i]; }                                           \
  bool &operator[](int i) { return (&x)[i]; }
template <int N>
struct msl_bool_vector;
template <>
struct alignas(2) msl_bool_vector<2> {
  bool x, y;
  MSL_BOOL_COMMON(2)
  constexpr msl_bool_vector(bool all) : x(all), y(all) {}
  constexpr msl_bool_vector(bool x, bool y) : x(x), y(y) {}

 private:
  template <class V>
  constexpr msl_bool_vector(V m, int) : x(m.x != 0), y(m.y != 0) {}
};
template <>
struct alignas(4) msl_bool_vector<3> {
  bool x, y, z;
  MSL_BOOL_COMMON(3)
  constexpr msl_bool_vector(bool all) : x(all), y(all), z(all) {}
  constexpr msl_bool_vector(bool x, bool y, bool z) : x(x), y(y), z(z) {}

 private:
  template <class V>
  constexpr msl_bool_vector(V m, int) : x(m.x != 0), y(m.y != 0), z(m.z != 0) {}
};
template <>
struct alignas(4) msl_bool_vector<4> {
  bool x, y, z, w;
  MSL_BOOL_COMMON(4)
  constexpr msl_bool_vector(bool all) : x(all), y(all), z(all), w(all) {}
  constexpr msl_bool_vector(bool x, bool y, bool z, bool w) : x(x), y(y), z(z), w(w) {}

 private:
  template <class V>
  constexpr msl_bool_vector(V m, int) : x(m.x != 0), y(m.y != 0), z(m.z != 0), w(m.w != 0) {}
};
#undef MSL_BOOL_COMMON
typedef msl_bool_vector<2> bool2;
typedef msl_bool_vector<3> bool3;
typedef msl_bool_vector<4> bool4;
template <int N>
struct msl_shape<msl_bool_vector<N>> {
  using element = bool;
  static constexpr constant int size = N;
};

// 0 or 1 per component, as the vector type V.
template <class V, int N>
inline V msl_from_bools(msl_bool_vector<N> b) {
  V v;
  for (int i = 0; i < N; ++i) v[i] = (msl_element<V>)b[i];
  return v;
}

template <int N>
inline msl_bool_vector<N> operator!(msl_bool_vector<N> a) {
  for (int i = 0; i < N; ++i) a[i] = !a[i];
  return a;
}
// One side may also be a bool or the result of a comparison.
#define MSL_X(OP)                                                                        \
  template <int N>                                                                       \
  inline msl_bool_vector<N> operator OP(msl_bool_vector<N> a, msl_bool_vector<N> b) {    \
    for (int i = 0; i < N; ++i) a[i] = a[i] OP b[i];                                     \
    return a;                                                                            \
  }                                                                                      \
  template <int N, class M, class = enable_if_t<!is_same<M, msl_bool_vector<N>>::value>> \
  inline msl_bool_vector<N> operator OP(msl_bool_vector<N> a, M b) {                     \
    return a OP msl_bool_vector<N>(b);                                                   \
  }                                                                                      \
  template <int N, class M, class = enable_if_t<!is_same<M, msl_bool_vector<N>>::value>> \
  inline msl_bool_vector<N> operator OP(M a, msl_bool_vector<N> b) {                     \
    return msl_bool_vector<N>(a) OP b;                                                   \
  }
MSL_X(&&) MSL_X(||) MSL_X(&) MSL_X(|) MSL_X(^) MSL_X(==) MSL_X(!=)
#undef MSL_X

}  // namespace metal
