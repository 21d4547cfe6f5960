// Indexer scores over blocks of 16 positions: one source for every vector instruction set.
//
// An ISA file includes its Lanes (ops/lanes/), defines kTileBlocks in namespace coli's unnamed
// namespace, then includes this file; all of it has internal linkage too. Bits follow indexer.h: a
// register tile only chooses which independent chains advance together.
#pragma once

#include "core/pod.h"
#include "ops/indexer/index_keys.h"
#include "ops/indexer/indexer.h"
#include "ops/lanes/cached_floats.h"

namespace coli {
namespace {

constexpr int kTileHeads = 6;

// Adds the weighted scores of H heads for B blocks of 16 positions.
template <int H, int B>
void head_tile(const float* const* keys, int64_t dim, const float* q, const float* weights,
               float* scores) {
  Lanes acc[H][B];
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[h][b] = splat(0.0F);
  }
  for (int64_t d = 0; d < dim; ++d) {
    Lanes key[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) key[b] = load(keys[b] + d * kKeyBlock);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const Lanes channel = splat(q[h * dim + d]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[h][b] = fmadd(channel, key[b], acc[h][b]);
    }
  }
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    Lanes total = load(scores + b * kKeyBlock);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      total = fmadd(splat(weights[h]), larger(acc[h][b], splat(0.0F)), total);
    }
    store(scores + b * kKeyBlock, total);
  }
}

template <int B>
void score_blocks(const float* const* keys, int64_t dim, const IndexQuery& query, float* scores) {
  for (int b = 0; b < B; ++b) store(scores + b * kKeyBlock, splat(0.0F));
  int64_t h = 0;
  for (; h + kTileHeads <= query.num_heads; h += kTileHeads) {
    head_tile<kTileHeads, B>(keys, dim, query.q + h * dim, query.weights + h, scores);
  }
  for (; h + 2 <= query.num_heads; h += 2) {
    head_tile<2, B>(keys, dim, query.q + h * dim, query.weights + h, scores);
  }
  if (h < query.num_heads) {
    head_tile<1, B>(keys, dim, query.q + h * dim, query.weights + h, scores);
  }
}

// The keys of 16 positions as floats; `room` as in cached_floats.
const float* keys_of(const RowsView& view, int64_t position, float* room) {
  return cached_floats(view.type, index_block(view, position), index_key_at(view, position),
                       kKeyBlock * view.dim, room);
}

void walk_positions(const RowsView& view, const IndexQuery& query, int64_t begin, int64_t end,
                    float* scores, float* room) {
  int64_t at = begin;
  for (; at + (kTileBlocks - 1) * kKeyBlock < end; at += kTileBlocks * kKeyBlock) {
    const float* keys[kTileBlocks];
    for (int b = 0; b < kTileBlocks; ++b) {
      keys[b] = keys_of(view, at + b * kKeyBlock, room + b * kKeyBlock * view.dim);
    }
    score_blocks<kTileBlocks>(keys, view.dim, query, scores + at - begin);
  }
  for (; at < end; at += kKeyBlock) {
    const float* key = keys_of(view, at, room);
    score_blocks<1>(&key, view.dim, query, scores + at - begin);
  }
}

void score_positions(const RowsView& view, const IndexQuery& query, int64_t begin, int64_t end,
                     float* scores) {
  if (view.type == KvType::kF32) return walk_positions(view, query, begin, end, scores, nullptr);
  alignas(64) float room[kTileBlocks * kKeyBlock * kMaxIndexDim];
  walk_positions(view, query, begin, end, scores, room);
}

}  // namespace
}  // namespace coli
