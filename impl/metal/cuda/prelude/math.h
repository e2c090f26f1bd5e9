// The functions of <metal_math> that NVIDIA's processors lack, in float and in the arithmetic they have: correctly
// rounded fma, division and square root. NVIDIA's own libdevice is in no wheel under a free licence. Each function is
// right to 4 units in the last place or better over its whole range, tan to 5; tests/impl/test_cuda_math.py measures
// them on the CPU, where the same text compiles. Series are Taylor's, as long as float needs on the reduced argument.
#pragma once

inline uint msl_bits(float x) { return __builtin_bit_cast(uint, x); }
inline float msl_float_of(uint bits) { return __builtin_bit_cast(float, bits); }
// 2^k for -126 <= k <= 127.
inline float msl_power_of_two(int k) { return msl_float_of((uint)(k + 127) << 23); }
// x * 2^k, rounded once, for every k.
inline float msl_ldexpf(float x, int k) {
  k = k > 300 ? 300 : k < -300 ? -300 : k;
  for (int i = 0; i < 2; ++i) {
    int step = k > 126 ? 126 : k < -126 ? -126 : k;
    x *= msl_power_of_two(step);
    k -= step;
  }
  return x * msl_power_of_two(k > 126 ? 126 : k < -126 ? -126 : k);
}
inline int msl_ilogbf(float x) {
  uint magnitude = msl_bits(x) & 0x7fffffffu;
  return magnitude >= 0x00800000u ? (int)(magnitude >> 23) - 127 : -118 - __builtin_clz(magnitude | 1u);
}

// e^r - 1 for |r| <= 0.35.
inline float msl_expm1_small(float r) {
  float p = 1.0f / 40320;
  p = __builtin_fmaf(p, r, 1.0f / 5040);
  p = __builtin_fmaf(p, r, 1.0f / 720);
  p = __builtin_fmaf(p, r, 1.0f / 120);
  p = __builtin_fmaf(p, r, 1.0f / 24);
  p = __builtin_fmaf(p, r, 1.0f / 6);
  p = __builtin_fmaf(p, r, 0.5f);
  return __builtin_fmaf(p, r * r, r);
}
// e^x = 2^k * e^r.
inline float msl_exp_parts(float x, thread int &k) {
  float whole = __builtin_rintf(x * 0x1.715476p0f);
  k = (int)whole;
  return __builtin_fmaf(-whole, 0x1.7f7d1cp-20f, __builtin_fmaf(-whole, 0x1.62e4p-1f, x));
}
// (1 + small) * 2^k, where x says on which side it leaves the range.
inline float msl_scaled(float small, int k, float x) {
  float value = msl_ldexpf(1.0f + small, k);
  return x != x ? x : k > 128 ? __builtin_inff() : k < -150 ? 0.0f : value;
}
inline float msl_expf(float x) {
  float bounded = x > 100.0f ? 100.0f : x < -120.0f ? -120.0f : x;
  int k;
  float r = msl_exp_parts(bounded, k);
  return msl_scaled(msl_expm1_small(r), k, x);
}
inline float msl_exp2f(float x) {
  float bounded = x > 140.0f ? 140.0f : x < -160.0f ? -160.0f : x, whole = __builtin_rintf(bounded);
  return msl_scaled(msl_expm1_small((bounded - whole) * 0x1.62e43p-1f), (int)whole, x);
}
inline float msl_exp10f(float x) {
  float bounded = x > 45.0f ? 45.0f : x < -50.0f ? -50.0f : x;
  float whole = __builtin_rintf(bounded * 0x1.a934fp1f);
  // log10(2) and ln(10) in two parts each.
  float r = __builtin_fmaf(-whole, 0x1.3509f8p-18f, __builtin_fmaf(-whole, 0x1.344p-2f, bounded));
  return msl_scaled(msl_expm1_small(__builtin_fmaf(r, 0x1.26bb1cp1f, r * -0x1.12aabap-25f)), (int)whole, x);
}
inline float msl_expm1f(float x) {
  float bounded = x > 100.0f ? 100.0f : x < -30.0f ? -30.0f : x;
  int k;
  float r = msl_exp_parts(bounded, k), small = msl_expm1_small(r);
  if (k == 0 || x != x) return x != x ? x : small;
  if (k > 127) return __builtin_inff();
  float scale = msl_ldexpf(1.0f, k);
  return __builtin_fmaf(scale, small, scale - 1.0f);
}

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)), for finite x > 0.
inline float msl_log_parts(float x, thread int &k) {
  uint bits = msl_bits(x);
  k = (int)(bits - 0x3f3504f3u) >> 23;
  return msl_float_of(bits - ((uint)k << 23));
}
// ln(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1), as f - value. With s = f / (2 + f) it is 2 atanh(s).
inline float msl_log1p_rest(float f) {
  float s = f / (2.0f + f), z = s * s, half_square = 0.5f * f * f;
  float p = 2.0f / 15;
  p = __builtin_fmaf(p, z, 2.0f / 13);
  p = __builtin_fmaf(p, z, 2.0f / 11);
  p = __builtin_fmaf(p, z, 2.0f / 9);
  p = __builtin_fmaf(p, z, 2.0f / 7);
  p = __builtin_fmaf(p, z, 2.0f / 5);
  p = __builtin_fmaf(p, z, 2.0f / 3);
  return __builtin_fmaf(-s, __builtin_fmaf(z, p, half_square), half_square);
}
// What a logarithm is where it is no number.
inline float msl_log_edges(float x, float value) {
  return x == 0.0f ? -__builtin_inff() : x < 0.0f || x != x ? __builtin_nanf("") : x == __builtin_inff() ? x : value;
}
inline float msl_logf(float x) {
  int k;
  float f = msl_log_parts(x, k) - 1.0f, scale = (float)k;
  float low = __builtin_fmaf(scale, 0x1.7f7d1cp-20f, -msl_log1p_rest(f));
  return msl_log_edges(x, __builtin_fmaf(scale, 0x1.62e4p-1f, f + low));
}
inline float msl_log2f(float x) {
  int k;
  float f = msl_log_parts(x, k) - 1.0f, rest = msl_log1p_rest(f);
  // log2(e) in two parts.
  float value = __builtin_fmaf(f - rest, 0x1.715476p0f, (f - rest) * 0x1.4ae0cp-26f);
  return msl_log_edges(x, (float)k + value);
}
inline float msl_log10f(float x) {
  int k;
  float f = msl_log_parts(x, k) - 1.0f, scale = (float)k, rest = msl_log1p_rest(f);
  float low = __builtin_fmaf(scale, 0x1.3509f8p-18f, (f - rest) * 0x1.bcb7b2p-2f);
  return msl_log_edges(x, __builtin_fmaf(scale, 0x1.344p-2f, low));
}
inline float msl_log1pf(float x) {
  float whole = 1.0f + x, lost = x - (whole - 1.0f);
  if (__builtin_fabsf(x) < 0x1p-24f || whole == __builtin_inff()) return x;
  return whole == 0.0f ? msl_logf(whole) : msl_logf(whole) + lost / whole;
}

// pi / 2 in three parts of 24 bits.
constexpr constant float msl_half_pi[3] = {0x1.921fb6p0f, -0x1.777a5cp-25f, -0x1.ee59dap-50f};
// 2 / pi in binary, behind one word of zeros.
constexpr constant uint msl_two_over_pi[8] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                              0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
// x - quadrant * pi/2, between -pi/4 and pi/4, for finite |x| >= 1024: after Payne and Hanek. Bits of 2/pi above those
// that count give whole turns, so 96 of them suffice.
inline float msl_reduced_far(float x, thread uint &quadrant) {
  uint bits = msl_bits(x), place = (bits >> 23 & 255u) - 120u;  // x = m * 2^(place - 30)
  ulong m = (bits & 0x7fffffu) | 0x800000u;
  uint from = place / 32u, shift = place % 32u, w[3];
  for (uint i = 0; i < 3; ++i)
    w[i] = (uint)(((ulong)msl_two_over_pi[from + i] << 32 | msl_two_over_pi[from + i + 1]) >> (32u - shift));
  ulong low = m * w[2], middle = m * w[1] + (low >> 32), high = m * w[0] + (middle >> 32);
  ulong turns = high << 32 | (middle & 0xffffffffu);  // in 2^-62 quarters
  quadrant = (uint)((turns + (1ul << 61)) >> 62) & 3u;
  long rest = (long)(turns << 2);
  float r = (float)rest * 0x1.921fb6p-64f;
  if (bits >> 31) {
    quadrant = (4u - quadrant) & 3u;
    r = -r;
  }
  return r;
}
inline float msl_reduced(float x, thread uint &quadrant) {
  quadrant = 0;
  if (__builtin_fabsf(x) == __builtin_inff()) return __builtin_nanf("");
  if (__builtin_fabsf(x) >= 1024.0f) return msl_reduced_far(x, quadrant);
  float turns = __builtin_rintf(x * 0x1.45f306p-1f), r = x;
  for (int i = 0; i < 3; ++i) r = __builtin_fmaf(-turns, msl_half_pi[i], r);
  quadrant = (uint)(int)turns & 3u;
  return r;
}
// sin and cos for |r| <= pi/4.
inline float msl_sin_small(float r) {
  float z = r * r, p = -1.0f / 39916800;
  p = __builtin_fmaf(p, z, 1.0f / 362880);
  p = __builtin_fmaf(p, z, -1.0f / 5040);
  p = __builtin_fmaf(p, z, 1.0f / 120);
  p = __builtin_fmaf(p, z, -1.0f / 6);
  return __builtin_fmaf(p * z, r, r);
}
inline float msl_cos_small(float r) {
  float z = r * r, p = -1.0f / 3628800;
  p = __builtin_fmaf(p, z, 1.0f / 40320);
  p = __builtin_fmaf(p, z, -1.0f / 720);
  p = __builtin_fmaf(p, z, 1.0f / 24);
  return __builtin_fmaf(p * z, z, __builtin_fmaf(-0.5f, z, 1.0f));
}
inline float msl_sine_from(float x, uint more) {
  uint quadrant;
  float r = msl_reduced(x, quadrant);
  quadrant += more;
  float value = quadrant & 1u ? msl_cos_small(r) : msl_sin_small(r);
  return quadrant & 2u ? -value : value;
}
inline float msl_sinf(float x) { return x == 0.0f ? x : msl_sine_from(x, 0); }
inline float msl_cosf(float x) { return msl_sine_from(x, 1); }
inline float msl_tanf(float x) {
  if (x == 0.0f) return x;
  uint quadrant;
  float r = msl_reduced(x, quadrant), s = msl_sin_small(r), c = msl_cos_small(r);
  return quadrant & 1u ? -c / s : s / c;
}

// atan for 0 <= t <= 1; beyond tan(pi/8) it is pi/4 + atan((t - 1) / (t + 1)).
inline float msl_atan_small(float t) {
  bool far = t > 0.41421356f;
  float u = far ? (t - 1.0f) / (t + 1.0f) : t, z = u * u, p = -1.0f / 23;
  p = __builtin_fmaf(p, z, 1.0f / 21);
  p = __builtin_fmaf(p, z, -1.0f / 19);
  p = __builtin_fmaf(p, z, 1.0f / 17);
  p = __builtin_fmaf(p, z, -1.0f / 15);
  p = __builtin_fmaf(p, z, 1.0f / 13);
  p = __builtin_fmaf(p, z, -1.0f / 11);
  p = __builtin_fmaf(p, z, 1.0f / 9);
  p = __builtin_fmaf(p, z, -1.0f / 7);
  p = __builtin_fmaf(p, z, 1.0f / 5);
  p = __builtin_fmaf(p, z, -1.0f / 3);
  float value = __builtin_fmaf(p * z, u, u);
  return far ? 0x1.921fb6p-1f + (value - 0x1.777a5cp-26f) : value;
}
// The angle of (x, y) for y >= 0, x >= 0, not both 0.
inline float msl_first_octants(float y, float x) {
  bool steep = y > x;
  float most = steep ? y : x, least = steep ? x : y;
  float value = msl_atan_small(most == __builtin_inff() ? (least == most ? 1.0f : 0.0f) : least / most);
  return steep ? 0x1.921fb6p0f - (value + 0x1.777a5cp-25f) : value;
}
inline float msl_atanf(float x) {
  return x != x ? x : __builtin_copysignf(msl_first_octants(__builtin_fabsf(x), 1.0f), x);
}
inline float msl_atan2f(float y, float x) {
  if (x != x || y != y) return x + y;
  bool left = msl_bits(x) >> 31;
  float value = x == 0.0f && y == 0.0f ? 0.0f : msl_first_octants(__builtin_fabsf(y), __builtin_fabsf(x));
  return __builtin_copysignf(left ? 0x1.921fb6p1f - (value + 0x1.777a5cp-24f) : value, y);
}
inline float msl_asinf(float x) {
  float size = __builtin_fabsf(x);
  if (!(size <= 1.0f)) return __builtin_nanf("");
  return __builtin_copysignf(msl_first_octants(size, __builtin_sqrtf((1.0f - size) * (1.0f + size))), x);
}
inline float msl_acosf(float x) {
  if (!(__builtin_fabsf(x) <= 1.0f)) return __builtin_nanf("");
  return msl_atan2f(__builtin_sqrtf((1.0f - x) * (1.0f + x)), x);
}

inline float msl_sinhf(float x) {
  float size = __builtin_fabsf(x), e, value;
  if (size < 20.0f) {
    e = msl_expm1f(size);
    value = 0.5f * (e + e / (e + 1.0f));
  } else {
    e = msl_expf(0.5f * size);
    value = 0.5f * e * e;
  }
  return __builtin_copysignf(value, x);
}
inline float msl_coshf(float x) {
  float size = __builtin_fabsf(x), e;
  if (size < 20.0f) {
    e = msl_expf(size);
    return 0.5f * e + 0.5f / e;
  }
  e = msl_expf(0.5f * size);
  return 0.5f * e * e;
}
inline float msl_tanhf(float x) {
  float size = __builtin_fabsf(x), e = msl_expm1f(size > 10.0f ? 20.0f : 2.0f * size);
  return x != x ? x : __builtin_copysignf(e / (e + 2.0f), x);
}
inline float msl_asinhf(float x) {
  float size = __builtin_fabsf(x), square = size * size;
  float value = size > 1e9f ? msl_logf(size) + 0x1.62e43p-1f
                            : msl_log1pf(size + square / (1.0f + __builtin_sqrtf(1.0f + square)));
  return __builtin_copysignf(value, x);
}
inline float msl_acoshf(float x) {
  if (!(x >= 1.0f)) return __builtin_nanf("");
  float more = x - 1.0f;
  return x > 1e9f ? msl_logf(x) + 0x1.62e43p-1f : msl_log1pf(more + __builtin_sqrtf(more * (x + 1.0f)));
}
inline float msl_atanhf(float x) {
  float size = __builtin_fabsf(x);
  return __builtin_copysignf(0.5f * msl_log1pf(2.0f * size / (1.0f - size)), x);
}

// The remainder of x / y with the sign of x, exact: long division, 24 bits of the quotient at a time.
inline float msl_fmodf(float x, float y) {
  uint a = msl_bits(x) & 0x7fffffffu, b = msl_bits(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b < 0x00800000u) return __builtin_nanf("");
  if (a < b) return x;
  int steps = (int)(a >> 23) - (int)(b >> 23);
  ulong divisor = (b & 0x7fffffu) | 0x800000u, rest = ((a & 0x7fffffu) | 0x800000u) % divisor;
  for (; steps > 0; steps -= 24) rest = (rest << (steps < 24 ? steps : 24)) % divisor;
  float value = (float)(uint)rest;
  int k = (int)(b >> 23) - 150;
  return __builtin_copysignf(rest ? msl_ldexpf(value, k) : 0.0f, x);
}

// x^y = 2^(y log2(x)), with the logarithm in two floats: 2^128 needs 31 bits of it.
inline float msl_powf(float x, float y) {
  if (x == 1.0f || y == 0.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  float size = __builtin_fabsf(x), infinity = __builtin_inff();
  bool whole = __builtin_truncf(y) == y, odd = whole && __builtin_fabsf(y) < 0x1p24f && ((int)y & 1);
  bool negative = msl_bits(x) >> 31 && odd;
  if (size < 0x1p-126f) return y < 0.0f ? (negative ? -infinity : infinity) : (negative ? -0.0f : 0.0f);
  if (__builtin_fabsf(y) == infinity) return size == 1.0f ? 1.0f : (size > 1.0f) == (y > 0.0f) ? infinity : 0.0f;
  if (size == infinity) return y > 0.0f ? (negative ? -infinity : infinity) : (negative ? -0.0f : 0.0f);
  if (x < 0.0f && !whole) return __builtin_nanf("");
  int k;
  float f = msl_log_parts(size, k) - 1.0f;
  // s = f / (2 + f) as s + s_low; ln(1 + f) = 2 (s + s_low) + s^3 p(s^2).
  float d = 2.0f + f, d_low = f - (d - 2.0f), s = f / d;
  float s_low = (__builtin_fmaf(-s, d, f) - s * d_low) / d, z = s * s;
  float p = 2.0f / 15;
  p = __builtin_fmaf(p, z, 2.0f / 13);
  p = __builtin_fmaf(p, z, 2.0f / 11);
  p = __builtin_fmaf(p, z, 2.0f / 9);
  p = __builtin_fmaf(p, z, 2.0f / 7);
  p = __builtin_fmaf(p, z, 2.0f / 5);
  p = __builtin_fmaf(p, z, 2.0f / 3);
  float cubic = s * z * p, high = 2.0f * s + cubic, low = cubic - (high - 2.0f * s) + 2.0f * s_low;
  // Times log2(e) in two parts, plus k.
  float t = high * 0x1.715476p0f;
  float t_low = __builtin_fmaf(high, 0x1.715476p0f, -t) + __builtin_fmaf(high, 0x1.4ae0cp-26f, low * 0x1.715476p0f);
  float l = (float)k + t, l_low = (k ? t - (l - (float)k) : 0.0f) + t_low;
  float e = y * l, e_low = __builtin_fmaf(y, l, -e) + y * l_low;
  if (__builtin_fabsf(e) > 200.0f) return e > 0.0f ? (negative ? -infinity : infinity) : (negative ? -0.0f : 0.0f);
  float rounded = __builtin_rintf(e), r = (e - rounded) + e_low;
  float value = msl_scaled(msl_expm1_small(r * 0x1.62e43p-1f), (int)rounded, e);
  return negative ? -value : value;
}
