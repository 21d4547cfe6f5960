// Where a position lives in the cache, and how one is written; internal to the attention files.
//
// Internal linkage only, so that no code built for one instruction set is shared with another.
#pragma once

#include "core/pod.h"

namespace coli {

constexpr int64_t kMaxHeadDim = 256;

// Keys of the 16 positions from `position` on (a multiple of 16), as [head_dim][16].
static inline float* key_block(const KvLayerView& kv, int64_t kv_head, int64_t position) {
  float* block = kv.blocks[position / kv.block_positions];
  const int64_t row = kv_head * kv.block_positions + position % kv.block_positions;
  return block + kv.key_offset + row * kv.head_dim;
}

// Values of `position`, followed by those of the next positions of its block.
static inline float* value_row(const KvLayerView& kv, int64_t kv_head, int64_t position) {
  float* block = kv.blocks[position / kv.block_positions];
  const int64_t row = kv_head * kv.block_positions + position % kv.block_positions;
  return block + kv.value_offset + row * kv.head_dim;
}

static inline void store_key_row(const KvLayerView& kv, int64_t kv_head, int64_t position,
                                 const float* key) {
  const int64_t lane = position % kKeyBlock;
  float* to = key_block(kv, kv_head, position - lane) + lane;
  for (int64_t d = 0; d < kv.head_dim; ++d) to[d * kKeyBlock] = key[d];
}

static inline void store_value_row(const KvLayerView& kv, int64_t kv_head, int64_t position,
                                   const float* value) {
  float* to = value_row(kv, kv_head, position);
  for (int64_t d = 0; d < kv.head_dim; ++d) to[d] = value[d];
}

}  // namespace coli
