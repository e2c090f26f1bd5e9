// <metal_math>: floating-point functions (MSL specification 6.5), one overload for each type, as in Metal, so that
// mixed or integer arguments are as ambiguous here as they are there. half and bfloat are computed in float and rounded
// once. The functions of float and bfloat are what metal::fast and metal::precise hold; MLX adds bfloat to Metal's.
#pragma once

#include "componentwise.h"
#ifdef __NVPTX__
#include "../cuda/prelude/builtins.h"
#endif

namespace metal {

// bfloat beside float makes float: Metal has no implicit conversion to bfloat that could make the call ambiguous.
template <class... As>
using msl_float_beside_bfloat =
    enable_if_t<((is_same<As, float>::value || is_same<As, bfloat>::value) && ...) &&
                    (is_same<As, float>::value || ...) && (is_same<As, bfloat>::value || ...),
                float>;
#define MSL_MIXED_2(NAME)                               \
  template <class A, class B>                           \
  inline msl_float_beside_bfloat<A, B> NAME(A x, B y) { \
    return NAME((float)x, (float)y);                    \
  }
#define MSL_MIXED_3(NAME)                                       \
  template <class A, class B, class C>                          \
  inline msl_float_beside_bfloat<A, B, C> NAME(A x, B y, C z) { \
    return NAME((float)x, (float)y, (float)z);                  \
  }

// A function given by its float expression, for all floating-point types.
#define MSL_FUNCTION_1(NAME, EXPRESSION)                          \
  inline namespace msl_float {                                    \
  inline float NAME(float x) { return EXPRESSION; }               \
  inline bfloat NAME(bfloat x) { return (bfloat)NAME((float)x); } \
  }                                                               \
  inline half NAME(half x) { return (half)NAME((float)x); }       \
  inline namespace msl_float {                                    \
  MSL_VECTORS_1(NAME, msl_float_vector)                           \
  }
#define MSL_FUNCTION_2(NAME, EXPRESSION)                                              \
  inline namespace msl_float {                                                        \
  inline float NAME(float x, float y) { return EXPRESSION; }                          \
  inline bfloat NAME(bfloat x, bfloat y) { return (bfloat)NAME((float)x, (float)y); } \
  }                                                                                   \
  inline half NAME(half x, half y) { return (half)NAME((float)x, (float)y); }         \
  inline namespace msl_float {                                                        \
  MSL_MIXED_2(NAME)                                                                   \
  MSL_VECTORS_2(NAME, msl_float_vector)                                               \
  }
#define MSL_FUNCTION_3(NAME, EXPRESSION)                                                                  \
  inline namespace msl_float {                                                                            \
  inline float NAME(float x, float y, float z) { return EXPRESSION; }                                     \
  inline bfloat NAME(bfloat x, bfloat y, bfloat z) { return (bfloat)NAME((float)x, (float)y, (float)z); } \
  }                                                                                                       \
  inline half NAME(half x, half y, half z) { return (half)NAME((float)x, (float)y, (float)z); }           \
  inline namespace msl_float {                                                                            \
  MSL_MIXED_3(NAME)                                                                                       \
  MSL_VECTORS_3(NAME, msl_float_vector)                                                                   \
  }

// sin(pi x) and cos(pi x) are exact at multiples of 1/2: the argument is brought to [-1/2, 1/2] first.
inline float msl_sin_pi(float x) {
  float r = x - 2.0f * __builtin_rintf(0.5f * x);
  if (__builtin_fabsf(r) > 0.5f) r = __builtin_copysignf(1.0f, r) - r;
  return __builtin_sinf(M_PI_F * r);
}
inline float msl_cos_pi(float x) {
  return __builtin_sinf(M_PI_F * (0.5f - __builtin_fabsf(x - 2.0f * __builtin_rintf(0.5f * x))));
}

MSL_FUNCTION_1(acos, __builtin_acosf(x))
MSL_FUNCTION_1(acosh, __builtin_acoshf(x))
MSL_FUNCTION_1(asin, __builtin_asinf(x))
MSL_FUNCTION_1(asinh, __builtin_asinhf(x))
MSL_FUNCTION_1(atan, __builtin_atanf(x))
MSL_FUNCTION_1(atanh, __builtin_atanhf(x))
MSL_FUNCTION_1(ceil, __builtin_ceilf(x))
MSL_FUNCTION_1(cos, __builtin_cosf(x))
MSL_FUNCTION_1(cosh, __builtin_coshf(x))
MSL_FUNCTION_1(cospi, msl_cos_pi(x))
MSL_FUNCTION_1(exp, __builtin_expf(x))
MSL_FUNCTION_1(exp2, __builtin_exp2f(x))
MSL_FUNCTION_1(exp10, __builtin_exp10f(x))
MSL_FUNCTION_1(fabs, __builtin_fabsf(x))
MSL_FUNCTION_1(abs, __builtin_fabsf(x))
MSL_FUNCTION_1(floor, __builtin_floorf(x))
// Below 1 also where x - floor(x) rounds up to 1.
MSL_FUNCTION_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
MSL_FUNCTION_1(log, __builtin_logf(x))
MSL_FUNCTION_1(log2, __builtin_log2f(x))
MSL_FUNCTION_1(log10, __builtin_log10f(x))
MSL_FUNCTION_1(rint, __builtin_rintf(x))
MSL_FUNCTION_1(round, __builtin_roundf(x))
MSL_FUNCTION_1(rsqrt, 1.0f / __builtin_sqrtf(x))
MSL_FUNCTION_1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MSL_FUNCTION_1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == x ? x : 0.0f)
MSL_FUNCTION_1(sin, __builtin_sinf(x))
MSL_FUNCTION_1(sinh, __builtin_sinhf(x))
MSL_FUNCTION_1(sinpi, msl_sin_pi(x))
MSL_FUNCTION_1(sqrt, __builtin_sqrtf(x))
MSL_FUNCTION_1(tan, __builtin_tanf(x))
MSL_FUNCTION_1(tanh, __builtin_tanhf(x))
MSL_FUNCTION_1(tanpi, msl_sin_pi(x) / msl_cos_pi(x))
MSL_FUNCTION_1(trunc, __builtin_truncf(x))

MSL_FUNCTION_2(atan2, __builtin_atan2f(x, y))
MSL_FUNCTION_2(copysign, __builtin_copysignf(x, y))
MSL_FUNCTION_2(divide, x / y)
MSL_FUNCTION_2(fdim, x > y ? x - y : x <= y ? 0.0f : x + y)
MSL_FUNCTION_2(fmax, __builtin_fmaxf(x, y))
MSL_FUNCTION_2(fmin, __builtin_fminf(x, y))
MSL_FUNCTION_2(max, __builtin_fmaxf(x, y))
MSL_FUNCTION_2(min, __builtin_fminf(x, y))
MSL_FUNCTION_2(fmod, __builtin_fmodf(x, y))
MSL_FUNCTION_2(pow, __builtin_powf(x, y))
MSL_FUNCTION_2(powr, x < 0.0f ? __builtin_nanf("") : __builtin_powf(x, y))
MSL_FUNCTION_2(step, y < x ? 0.0f : 1.0f)

MSL_FUNCTION_3(fma, __builtin_fmaf(x, y, z))
MSL_FUNCTION_3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSL_FUNCTION_3(mix, x + (y - x) * z)
MSL_FUNCTION_3(fmax3, fmax(x, fmax(y, z)))
MSL_FUNCTION_3(fmin3, fmin(x, fmin(y, z)))
MSL_FUNCTION_3(fmedian3, fmax(fmin(x, y), fmin(fmax(x, y), z)))
MSL_FUNCTION_3(max3, fmax3(x, y, z))
MSL_FUNCTION_3(min3, fmin3(x, y, z))
MSL_FUNCTION_3(median3, fmedian3(x, y, z))
inline float msl_smooth(float t) { return t * t * (3.0f - 2.0f * t); }
MSL_FUNCTION_3(smoothstep, msl_smooth(saturate((z - x) / (y - x))))

inline namespace msl_float {

// The parts of a number. Each works on any floating-point scalar or vector T of float, half or bfloat.
template <class T, class = enable_if_t<is_floating_point<T>::value>>
inline T ldexp(T x, int k) {
  return (T)__builtin_ldexpf((float)x, k);
}
template <class T, int N>
inline vec<T, N> ldexp(vec<T, N> x, vec<int, N> k) {
  for (int i = 0; i < N; ++i) x[i] = ldexp(T(x[i]), k[i]);
  return x;
}

template <class T, class = enable_if_t<is_floating_point<T>::value>>
inline int ilogb(T x) {
  return x == x && x != 0 ? __builtin_ilogbf((float)x) : FP_ILOGB0;
}
template <class T, int N>
inline vec<int, N> ilogb(vec<T, N> x) {
  vec<int, N> r;
  for (int i = 0; i < N; ++i) r[i] = ilogb(T(x[i]));
  return r;
}

template <class T, class = enable_if_t<is_floating_point<T>::value>>
inline T frexp(T x, thread int &exponent) {
  float value = (float)x;
  if (value == 0 || value != value || __builtin_fabsf(value) == __builtin_inff()) {
    exponent = 0;
    return x;
  }
  exponent = __builtin_ilogbf(value) + 1;
  return (T)__builtin_ldexpf(value, -exponent);
}
template <class T, int N>
inline vec<T, N> frexp(vec<T, N> x, thread vec<int, N> &exponent) {
  for (int i = 0; i < N; ++i) {
    int e;
    x[i] = frexp(T(x[i]), e);
    exponent[i] = e;
  }
  return x;
}

// Returns the fraction, which has the sign of x.
template <class T, class = enable_if_t<is_floating_point<T>::value>>
inline T modf(T x, thread T &whole) {
  whole = trunc(x);
  return isinf(x) ? copysign(T(0), x) : copysign(T(x - whole), x);
}
template <class T, int N>
inline vec<T, N> modf(vec<T, N> x, thread vec<T, N> &whole) {
  for (int i = 0; i < N; ++i) {
    T w;
    x[i] = modf(T(x[i]), w);
    whole[i] = w;
  }
  return x;
}

template <class T, class = enable_if_t<is_floating_point<msl_element<T>>::value>>
inline T sincos(T x, thread T &cosine) {
  cosine = cos(x);
  return sin(x);
}

// The neighbour of x towards y, in x's own format: a step of 1 in its bits.
template <class T, class Bits>
inline T msl_next_after(T x, T y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  constexpr Bits sign = Bits(1) << (8 * sizeof(T) - 1);
  Bits bits = as_type<Bits>(x);
  if (x == 0) return as_type<T>(Bits(1 | (y < 0 ? sign : Bits(0))));
  bits += ((x < y) == (x > 0)) ? 1 : -1;
  return as_type<T>(bits);
}
inline float nextafter(float x, float y) { return msl_next_after<float, uint>(x, y); }
inline bfloat nextafter(bfloat x, bfloat y) { return msl_next_after<bfloat, ushort>(x, y); }
}  // namespace msl_float
inline half nextafter(half x, half y) { return msl_next_after<half, ushort>(x, y); }
inline namespace msl_float {
MSL_VECTORS_2(nextafter, msl_float_vector)
}

}  // namespace metal
