// as_type, select, and the predicates on vectors (MSL specification 2.19, 6.3, 6.4).
#pragma once

#include "constructors.h"

namespace metal {

template <class To, class From>
constexpr To as_type(From value) {
  if constexpr (sizeof(To) == sizeof(From)) return __builtin_bit_cast(To, value);
  else static_assert(msl_never<To>, "as_type: the two types differ in size");
}

template <class T, class = enable_if_t<is_arithmetic<T>::value>>
constexpr T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}
template <class T, int N>
inline vec<T, N> select(vec<T, N> if_false, vec<T, N> if_true, msl_bool_vector<N> condition) {
  for (int i = 0; i < N; ++i) if_false[i] = condition[i] ? if_true[i] : if_false[i];
  return if_false;
}
template <class T, int N, class I>
inline vec<T, N> select(vec<T, N> if_false, vec<T, N> if_true, vec<I, N> condition) {
  return select(if_false, if_true, msl_bool_vector<N>(condition));
}

template <int N>
inline bool all(msl_bool_vector<N> b) {
  bool r = true;
  for (int i = 0; i < N; ++i) r = r && b[i];
  return r;
}
template <int N>
inline bool any(msl_bool_vector<N> b) {
  bool r = false;
  for (int i = 0; i < N; ++i) r = r || b[i];
  return r;
}
inline bool all(bool b) { return b; }
inline bool any(bool b) { return b; }
template <class I, int N>
inline bool all(vec<I, N> mask) { return all(msl_bool_vector<N>(mask)); }
template <class I, int N>
inline bool any(vec<I, N> mask) { return any(msl_bool_vector<N>(mask)); }

// MSL_PREDICATE(NAME, EXPRESSION in float x): bool for a scalar, boolN for a vector.
#define MSL_PREDICATE(NAME, EXPRESSION)                                               \
  inline bool NAME(float x) { return EXPRESSION; }                                    \
  inline bool NAME(half h) { return NAME((float)h); }                                 \
  inline bool NAME(bfloat b) { return NAME((float)b); }                               \
  template <class T, int N>                                                           \
  inline msl_bool_vector<N> NAME(vec<T, N> v) {                                       \
    static_assert(is_floating_point<T>::value, #NAME " takes floating-point values"); \
    msl_bool_vector<N> r;                                                             \
    for (int i = 0; i < N; ++i) r[i] = NAME(T(v[i]));                                 \
    return r;                                                                         \
  }
MSL_PREDICATE(isnan, x != x)
MSL_PREDICATE(isinf, __builtin_fabsf(x) == __builtin_inff())
MSL_PREDICATE(isfinite, __builtin_fabsf(x) < __builtin_inff())
MSL_PREDICATE(signbit, (as_type<uint>(x) >> 31) != 0)
#undef MSL_PREDICATE
// From the smallest normal number of its own type on: 2^-14 for half.
inline bool isnormal(float x) { return isfinite(x) && __builtin_fabsf(x) >= 0x1p-126f; }
inline bool isnormal(bfloat x) { return isnormal((float)x); }
inline bool isnormal(half x) { return isfinite(x) && __builtin_fabsf((float)x) >= 0x1p-14f; }
template <class T, int N>
inline msl_bool_vector<N> isnormal(vec<T, N> v) {
  msl_bool_vector<N> r;
  for (int i = 0; i < N; ++i) r[i] = isnormal(T(v[i]));
  return r;
}

#define MSL_PREDICATE2(NAME, EXPRESSION)                                    \
  inline bool NAME(float x, float y) { return EXPRESSION; }                 \
  inline bool NAME(half x, half y) { return NAME((float)x, (float)y); }     \
  inline bool NAME(bfloat x, bfloat y) { return NAME((float)x, (float)y); } \
  template <class T, int N>                                                 \
  inline msl_bool_vector<N> NAME(vec<T, N> x, vec<T, N> y) {                \
    msl_bool_vector<N> r;                                                   \
    for (int i = 0; i < N; ++i) r[i] = NAME((float)x[i], (float)y[i]);      \
    return r;                                                               \
  }
MSL_PREDICATE2(isequal, x == y)
MSL_PREDICATE2(isnotequal, x != y)
MSL_PREDICATE2(isgreater, x > y)
MSL_PREDICATE2(isgreaterequal, x >= y)
MSL_PREDICATE2(isless, x < y)
MSL_PREDICATE2(islessequal, x <= y)
MSL_PREDICATE2(islessgreater, x < y || x > y)
MSL_PREDICATE2(isordered, x == x && y == y)
MSL_PREDICATE2(isunordered, x != x || y != y)
#undef MSL_PREDICATE2

}  // namespace metal
