// Cached numbers as floats, whatever they are stored as; an ISA file's Lanes come first.
#pragma once

#include "core/kv_numbers.h"

namespace coli {
namespace {

// The `n` numbers of a block from `at` on: where they lie, or widened into `room`, which floats do
// not need.
inline const float* cached_floats(KvType type, const float* block, int64_t at, int64_t n,
                                  float* room) {
  if (type == KvType::kF32) return block + at;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(block) + at;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(room + i, widen(from + i));
  for (; i < n; ++i) room[i] = float_of_bf16(from[i]);
  return room;
}

}  // namespace
}  // namespace coli
