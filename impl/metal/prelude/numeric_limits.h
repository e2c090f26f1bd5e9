// <metal_limits>: metal::numeric_limits for every scalar type.
#pragma once

#include "type_traits.h"

namespace metal {

template <class T>
struct numeric_limits {
  static constexpr constant bool is_specialized = false;
};

#define MSL_INTEGER_LIMITS(T, LOWEST, HIGHEST, DIGITS, DIGITS10) \
  template <>                                                    \
  struct numeric_limits<T> {                                     \
    static constexpr constant bool is_specialized = true;        \
    static constexpr constant bool is_signed = T(-1) < T(0);     \
    static constexpr constant bool is_integer = true;            \
    static constexpr constant bool is_exact = true;              \
    static constexpr constant bool has_infinity = false;         \
    static constexpr constant bool has_quiet_NaN = false;        \
    static constexpr constant int digits = DIGITS;               \
    static constexpr constant int digits10 = DIGITS10;           \
    static constexpr constant int max_digits10 = 0;              \
    static constexpr constant int radix = 2;                     \
    static constexpr T min() { return LOWEST; }                  \
    static constexpr T lowest() { return LOWEST; }               \
    static constexpr T max() { return HIGHEST; }                 \
    static constexpr T epsilon() { return T(0); }                \
    static constexpr T infinity() { return T(0); }               \
    static constexpr T quiet_NaN() { return T(0); }              \
  };
MSL_INTEGER_LIMITS(bool, false, true, 1, 0)
MSL_INTEGER_LIMITS(char, -128, 127, 7, 2)
MSL_INTEGER_LIMITS(uchar, 0, 255, 8, 2)
MSL_INTEGER_LIMITS(short, -32768, 32767, 15, 4)
MSL_INTEGER_LIMITS(ushort, 0, 65535, 16, 4)
MSL_INTEGER_LIMITS(int, INT_MIN, INT_MAX, 31, 9)
MSL_INTEGER_LIMITS(uint, 0u, UINT_MAX, 32, 9)
MSL_INTEGER_LIMITS(long, LONG_MIN, LONG_MAX, 63, 18)
MSL_INTEGER_LIMITS(ulong, 0ul, ULONG_MAX, 64, 19)
#undef MSL_INTEGER_LIMITS

#define MSL_FLOAT_LIMITS(T, SMALLEST, HIGHEST, EPSILON, DENORM, DIGITS, DIGITS10, MAX_DIGITS10, MIN_EXP, MAX_EXP) \
  template <>                                                                                                     \
  struct numeric_limits<T> {                                                                                      \
    static constexpr constant bool is_specialized = true;                                                         \
    static constexpr constant bool is_signed = true;                                                              \
    static constexpr constant bool is_integer = false;                                                            \
    static constexpr constant bool is_exact = false;                                                              \
    static constexpr constant bool has_infinity = true;                                                           \
    static constexpr constant bool has_quiet_NaN = true;                                                          \
    static constexpr constant int digits = DIGITS;                                                                \
    static constexpr constant int digits10 = DIGITS10;                                                            \
    static constexpr constant int max_digits10 = MAX_DIGITS10;                                                    \
    static constexpr constant int radix = 2;                                                                      \
    static constexpr constant int min_exponent = MIN_EXP;                                                         \
    static constexpr constant int max_exponent = MAX_EXP;                                                         \
    static constexpr T min() { return (T)SMALLEST; }                                                              \
    static constexpr T max() { return (T)HIGHEST; }                                                               \
    static constexpr T lowest() { return -(T)HIGHEST; }                                                           \
    static constexpr T epsilon() { return (T)EPSILON; }                                                           \
    static constexpr T round_error() { return (T)0.5f; }                                                          \
    static constexpr T infinity() { return (T)__builtin_inff(); }                                                 \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }                                              \
    static constexpr T signaling_NaN() { return (T)__builtin_nansf(""); }                                         \
    static constexpr T denorm_min() { return (T)DENORM; }                                                         \
  };
MSL_FLOAT_LIMITS(float, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f, 0x1p-149f, 24, 6, 9, -125, 128)
MSL_FLOAT_LIMITS(half, 0x1p-14f, 65504.0f, 0x1p-10f, 0x1p-24f, 11, 3, 5, -13, 16)
MSL_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 0x1p-133f, 8, 2, 4, -125, 128)
#undef MSL_FLOAT_LIMITS

template <class T>
struct numeric_limits<const T> : numeric_limits<T> {};

}  // namespace metal
