// An instruction of NVIDIA's processors that Metal text may use where __NVPTX__ is defined.
#pragma once

// base + the four bytes of `word`, modulo 2^32.
inline uint msl_add_bytes(uint word, uint base) {
  uint sum;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(word), "r"(0x01010101u), "r"(base));
  return sum;
}
