// How a function of scalars becomes one of vectors.
#pragma once

#include "conversions.h"

namespace metal {

// What several arguments make together, as far as Metal lets them mix: `type` is their one vector type, and scalars
// beside it are repeated for each component. `valid` is false without a vector, or with two different ones.
template <class... As>
struct msl_mix {
  using type = void;
  using element = void;
  static constexpr constant bool valid = false;
};
template <class A>
struct msl_mix<A> {
  using type = A;
  using element = msl_element<A>;
  static constexpr constant bool valid = msl_is_vector<A>;
};
template <class A, class B, class... Rest>
struct msl_mix<A, B, Rest...> {
  static constexpr constant bool same = is_same<A, B>::value;
  using type = typename msl_mix<conditional_t<msl_is_vector<A>, A, B>, Rest...>::type;
  using element = msl_element<type>;
  static constexpr constant bool valid =
      (msl_is_vector<A> ? same || is_arithmetic<B>::value : is_arithmetic<A>::value) &&
      msl_mix<conditional_t<msl_is_vector<A>, A, B>, Rest...>::valid;
};
template <class... As>
using msl_float_vector =
    enable_if_t<msl_mix<As...>::valid && is_floating_point<typename msl_mix<As...>::element>::value,
                typename msl_mix<As...>::type>;
template <class... As>
using msl_integer_vector =
    enable_if_t<msl_mix<As...>::valid && is_integral<typename msl_mix<As...>::element>::value &&
                    !is_same<typename msl_mix<As...>::element, bool>::value,
                typename msl_mix<As...>::type>;

// Component i as element type E; a scalar is every component.
template <class E, class A>
inline E msl_at(A a, int i) {
  if constexpr (msl_is_vector<A>) return a[i];
  else return msl_convert_element<E>(a);
}

// MSL_VECTORS_n(NAME, WHICH): NAME for vectors, from the overloads for scalars that metal::NAME has at this point.
// WHICH is msl_float_vector or msl_integer_vector.
#define MSL_VECTORS_1(NAME, WHICH)                                            \
  template <class V>                                                          \
  inline WHICH<V> NAME(V x) {                                                 \
    using E = msl_element<V>;                                                 \
    for (int i = 0; i < msl_shape<V>::size; ++i) x[i] = metal::NAME(E(x[i])); \
    return x;                                                                 \
  }
#define MSL_VECTORS_2(NAME, WHICH)                                                                     \
  template <class A, class B>                                                                          \
  inline WHICH<A, B> NAME(A x, B y) {                                                                  \
    using V = WHICH<A, B>;                                                                             \
    using E = msl_element<V>;                                                                          \
    V r;                                                                                               \
    for (int i = 0; i < msl_shape<V>::size; ++i) r[i] = metal::NAME(msl_at<E>(x, i), msl_at<E>(y, i)); \
    return r;                                                                                          \
  }
#define MSL_VECTORS_3(NAME, WHICH)                                           \
  template <class A, class B, class C>                                       \
  inline WHICH<A, B, C> NAME(A x, B y, C z) {                                \
    using V = WHICH<A, B, C>;                                                \
    using E = msl_element<V>;                                                \
    V r;                                                                     \
    for (int i = 0; i < msl_shape<V>::size; ++i)                             \
      r[i] = metal::NAME(msl_at<E>(x, i), msl_at<E>(y, i), msl_at<E>(z, i)); \
    return r;                                                                \
  }

}  // namespace metal
