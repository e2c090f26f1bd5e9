// Conversions to bfloat and half that a processor may lack and the compiler then calls by these names. Their usual
// home is the compiler's own library, which is not linked in. All round to nearest, ties to even.
#pragma once
#include <stdint.h>

#define MSL_EXPORTED extern "C" __attribute__((visibility("default")))

MSL_EXPORTED __bf16 __truncsfbf2(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return __builtin_bit_cast(__bf16, static_cast<uint16_t>(bits >> 16 | 0x40u));
  return __builtin_bit_cast(__bf16, static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16));
}

#if defined(__x86_64__)
// Processors without F16C.
MSL_EXPORTED _Float16 __truncsfhf2(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu, half;
  if (size > 0x7F800000u) {
    half = 0x7E00u | (size >> 13 & 0x1FFu);
  } else if (size >= 0x477FF000u) {  // rounds to more than the largest half
    half = 0x7C00u;
  } else if (size >= 0x38800000u) {
    half = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
  } else if (size > 0x33000000u) {  // a half denormal
    uint32_t shift = 126 - (size >> 23), whole = (size & 0x7FFFFFu) | 0x800000u;
    uint32_t rest = whole & ((1u << shift) - 1), tie = 1u << (shift - 1);
    half = whole >> shift;
    half += rest > tie || (rest == tie && (half & 1u));
  } else {
    half = 0;
  }
  return __builtin_bit_cast(_Float16, static_cast<uint16_t>(sign | half));
}

MSL_EXPORTED float __extendhfsf2(_Float16 value) {
  uint32_t bits = __builtin_bit_cast(uint16_t, value), sign = (bits & 0x8000u) << 16;
  uint32_t exponent = bits >> 10 & 31u, fraction = bits & 0x3FFu;
  if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7F800000u | fraction << 13);
  if (exponent) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
  if (!fraction) return __builtin_bit_cast(float, sign);
  uint32_t shift = static_cast<uint32_t>(__builtin_clz(fraction)) - 21;
  return __builtin_bit_cast(float, sign | (113 - shift) << 23 | (fraction << shift & 0x3FFu) << 13);
}
#endif
