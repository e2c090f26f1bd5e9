// The mode of the floating-point unit while a kernel runs; as it was before, afterwards.
#pragma once
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace msl {

struct FloatingPoint {
#if defined(__x86_64__)
  uint32_t before = _mm_getcsr();
  // Flush results to zero and take denormal inputs as zero, all exceptions masked.
  void set(bool flush) const { _mm_setcsr((before & ~0x8040u) | (flush ? 0x8040u : 0u)); }
  ~FloatingPoint() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before = read();
  static uint64_t read() {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
  // FZ alone: Metal keeps half denormals, which FZ16 would flush.
  void set(bool flush) const { write((before & ~(uint64_t{1} << 24)) | (uint64_t{flush} << 24)); }
  ~FloatingPoint() { write(before); }
#else
#error "the runtime knows x86-64 and aarch64"
#endif
};

}  // namespace msl
