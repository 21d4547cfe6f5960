// Where a position lives in the cache, and how one is written; internal to the attention files.
//
// Internal linkage only, so that no code built for one instruction set is shared with another.
#pragma once

#include "core/kv_numbers.h"
#include "core/pod.h"

namespace coli {

constexpr int64_t kMaxHeadDim = 256;

static inline float* block_of(const KvLayerView& kv, int64_t position) {
  return kv.blocks[position / kv.block_positions];
}

// Where in its block the keys of the 16 positions from `position` on (a multiple of 16) begin, as
// [head_dim][16].
static inline int64_t key_at(const KvLayerView& kv, int64_t kv_head, int64_t position) {
  const int64_t row = kv_head * kv.block_positions + position % kv.block_positions;
  return kv.key_offset + row * kv.head_dim;
}

// Where in its block the values of `position` begin, followed by those of the next positions.
static inline int64_t value_at(const KvLayerView& kv, int64_t kv_head, int64_t position) {
  const int64_t row = kv_head * kv.block_positions + position % kv.block_positions;
  return kv.value_offset + row * kv.head_dim;
}

static inline void store_key_row(const KvLayerView& kv, int64_t kv_head, int64_t position,
                                 const float* key) {
  const int64_t lane = position % kKeyBlock;
  put_numbers(kv.type, block_of(kv, position), key_at(kv, kv_head, position - lane) + lane,
              kKeyBlock, kv.head_dim, key);
}

static inline void store_value_row(const KvLayerView& kv, int64_t kv_head, int64_t position,
                                   const float* value) {
  put_numbers(kv.type, block_of(kv, position), value_at(kv, kv_head, position), 1, kv.head_dim,
              value);
}

}  // namespace coli
