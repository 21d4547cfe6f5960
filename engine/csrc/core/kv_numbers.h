// The numbers of a cache, one by one: floats, or bf16, the upper half of one.
//
// Internal linkage only, so that no code built for one instruction set is shared with another.
#pragma once

#include "core/pod.h"

namespace coli {

static inline float float_of_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// To the nearest, ties to even; a NaN stays one, and what is beyond the largest becomes infinite.
static inline uint16_t bf16_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

// Number `at` of a block.
static inline float kv_number(KvType type, const float* block, int64_t at) {
  if (type == KvType::kF32) return block[at];
  return float_of_bf16(reinterpret_cast<const uint16_t*>(block)[at]);
}

// to[i] = number at + i * step, for i < n.
static inline void get_numbers(KvType type, const float* block, int64_t at, int64_t step, int64_t n,
                               float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = kv_number(type, block, at + i * step);
}

// Number at + i * step = from[i], for i < n.
static inline void put_numbers(KvType type, float* block, int64_t at, int64_t step, int64_t n,
                               const float* from) {
  if (type == KvType::kF32) {
    for (int64_t i = 0; i < n; ++i) block[at + i * step] = from[i];
    return;
  }
  auto* halves = reinterpret_cast<uint16_t*>(block);
  for (int64_t i = 0; i < n; ++i) halves[at + i * step] = bf16_of(from[i]);
}

}  // namespace coli
