// Attention's register tiles over 16-lane vectors: one source for every vector instruction set.
//
// An ISA file includes its Lanes and their operations (ops/lanes/), defines kTileQueries (5 or 6) and
// kTileUnits in namespace coli's unnamed namespace, then includes attention_walk.h, which includes
// this file; all of it has internal linkage too. Bits follow attention.h: a tile of queries only
// chooses which independent chains advance together while their sums stay in registers.
#pragma once

#include "core/pod.h"
#include "ops/attention/kv_rows.h"

namespace coli {
namespace {

constexpr int kGroupTiles = 4;
constexpr int kGroupQueries = kTileQueries * kGroupTiles;

// About 62 KiB of stack: the state of the queries in flight, rows of head_dim.
struct Group {
  alignas(64) float q[kGroupQueries * kMaxHeadDim];
  alignas(64) float o[kGroupQueries * kMaxHeadDim];
  alignas(64) float p[kGroupQueries * kSoftmaxBlock];  // scores, then weights, of one block
  alignas(64) float l[kGroupQueries * kKeyBlock];
  float mix[kGroupQueries * kMaxProfiles];  // rows of bank.num_profiles
  float m[kGroupQueries];
  int64_t position[kGroupQueries];  // never decreasing
  int64_t head_dim;
  int64_t window;     // 0: every earlier key is seen
  RelativeBank bank;  // without data: no bias
  float scale;
  int num_queries;
};

// The keys of a softmax block that are seen, or whose values are wanted: [first, first + count).
struct KeySpan {
  int64_t first;
  int64_t count;
};

// The keys and values of 64 positions, and the keys that will be wanted next.
struct CacheBlock {
  const float* keys;
  const float* values;
  const float* next_keys;
};

// Scores of R queries against B key blocks at `keys`, while as much of `ahead` is fetched, line by
// line: memory likes one stream, and processors do not foresee the next page.
template <int R, int B>
void score_blocks(const Group& group, const float* q, const float* keys, const float* ahead,
                  float* scores) {
  const int64_t head_dim = group.head_dim;
  Lanes acc[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) acc[r][b] = splat(0.0F);
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    Lanes key[B];
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) {
      key[b] = load(keys + (b * head_dim + d) * kKeyBlock);
      __builtin_prefetch(ahead + (d * B + b) * kKeyBlock);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Lanes query = splat(q[r * head_dim + d]);
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) acc[r][b] = fmadd(query, key[b], acc[r][b]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) {
      store(scores + r * kSoftmaxBlock + b * kKeyBlock, mul(acc[r][b], splat(group.scale)));
    }
  }
}

// Adds R queries' `num_keys` weighted values to their sums, for 16 * C channels, while as much of
// `ahead` is fetched.
template <int R, int C>
void value_channels(const float* p, const float* values, const float* ahead, int64_t head_dim,
                    int64_t num_keys, float* o) {
  Lanes acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[r][c] = load(o + r * head_dim + c * kKeyBlock);
  }
  for (int64_t t = 0; t < num_keys; ++t) {
    Lanes value[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      value[c] = load(values + t * head_dim + c * kKeyBlock);
      __builtin_prefetch(ahead + (t * C + c) * kKeyBlock);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Lanes weight = splat(p[r * kSoftmaxBlock + t]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[r][c] = fmadd(weight, value[c], acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) store(o + r * head_dim + c * kKeyBlock, acc[r][c]);
  }
}

// Scores of R queries from `begin` on for key blocks [b, end), B at a time while so many are
// left; returns the first block not done.
template <int R, int B>
int64_t score_span(Group& group, int begin, const CacheBlock& block, int64_t b, int64_t end) {
  for (; b + B <= end; b += B) {
    const int64_t at = b * group.head_dim * kKeyBlock;
    score_blocks<R, B>(group, group.q + begin * group.head_dim, block.keys + at, block.values + at,
                       group.p + begin * kSoftmaxBlock + b * kKeyBlock);
  }
  return b;
}

// Scores of R queries from `begin` on for the key blocks that `keys` touches.
template <int R>
void tile_scores(Group& group, int begin, const CacheBlock& block, KeySpan keys) {
  constexpr int kUnits = kTileUnits[R];
  const int64_t end = (keys.first + keys.count + kKeyBlock - 1) / kKeyBlock;
  int64_t b = score_span<R, kUnits>(group, begin, block, keys.first / kKeyBlock, end);
  if constexpr (kUnits > 2) b = score_span<R, 2>(group, begin, block, b, end);
  if constexpr (kUnits > 1) score_span<R, 1>(group, begin, block, b, end);
}

// Adds the values of `keys` to R queries from `begin` on, for channels [d, head_dim), 16 * C at a
// time while so many are left; returns the first channel not done.
template <int R, int C>
int64_t value_span(Group& group, int begin, const CacheBlock& block, KeySpan keys, int64_t d) {
  const int64_t head_dim = group.head_dim;
  for (; d + C * kKeyBlock <= head_dim; d += C * kKeyBlock) {
    const int64_t at = keys.first * head_dim + d;
    value_channels<R, C>(group.p + begin * kSoftmaxBlock + keys.first, block.values + at,
                         block.next_keys + d * keys.count, head_dim, keys.count,
                         group.o + begin * head_dim + d);
  }
  return d;
}

template <int R>
void tile_values(Group& group, int begin, const CacheBlock& block, KeySpan keys) {
  constexpr int kUnits = kTileUnits[R];
  int64_t d = value_span<R, kUnits>(group, begin, block, keys, 0);
  if constexpr (kUnits > 2) d = value_span<R, 2>(group, begin, block, keys, d);
  if constexpr (kUnits > 1) value_span<R, 1>(group, begin, block, keys, d);
}

// Biases of R queries for B key blocks whose values in profile 0 start at `from`, added to the
// scores.
template <int R, int B>
void bias_blocks(const RelativeBank& bank, const float* mix, const float* from, float* scores) {
  Lanes acc[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) acc[r][b] = splat(0.0F);
  }
  for (int64_t j = 0; j < bank.num_profiles; ++j) {
    Lanes profile[B];
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) profile[b] = load(from + j * bank.stride + b * kKeyBlock);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Lanes weight = splat(mix[r * bank.num_profiles + j]);
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) acc[r][b] = fmadd(weight, profile[b], acc[r][b]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) {
      float* to = scores + r * kSoftmaxBlock + b * kKeyBlock;
      store(to, add(load(to), acc[r][b]));
    }
  }
}

// Biases of the one key block that the extent cuts: none below lane `first`.
template <int R>
void bias_cut_block(const RelativeBank& bank, const float* mix, const float* from, int first,
                    float* scores) {
  for (int r = 0; r < R; ++r) {
    float* to = scores + r * kSoftmaxBlock;
    alignas(64) float bias[kKeyBlock] = {};
    bias_blocks<1, 1>(bank, mix + r * bank.num_profiles, from, bias);
    store(to, add(load(to), keep_from(load(bias), first, 0.0F)));
  }
}

// The biases of R queries from `begin` on, all at one position, for the key blocks that `keys`
// touches in the softmax block at `start`.
template <int R>
void tile_biases(Group& group, int begin, int64_t start, KeySpan keys) {
  constexpr int kUnits = kTileUnits[R];
  const RelativeBank& bank = group.bank;
  const float* mix = group.mix + begin * bank.num_profiles;
  float* scores = group.p + begin * kSoftmaxBlock;
  // Lane 0 of the softmax block would have this entry of a profile.
  const int64_t origin = kBankPad + bank.extent - 1 - group.position[begin] + start;
  const int64_t reach = group.position[begin] - bank.extent + 1 - start;  // first lane with a bias
  const int64_t end = (keys.first + keys.count + kKeyBlock - 1) / kKeyBlock;
  int64_t b = keys.first / kKeyBlock;
  if (reach > b * kKeyBlock) {
    b = reach / kKeyBlock;
    if (b >= end) return;
    if (reach % kKeyBlock != 0) {
      bias_cut_block<R>(bank, mix, bank.data + origin + b * kKeyBlock,
                        static_cast<int>(reach % kKeyBlock), scores + b * kKeyBlock);
      ++b;
    }
  }
  for (; b + kUnits <= end; b += kUnits) {
    bias_blocks<R, kUnits>(bank, mix, bank.data + origin + b * kKeyBlock, scores + b * kKeyBlock);
  }
  for (; b < end; ++b) {
    bias_blocks<R, 1>(bank, mix, bank.data + origin + b * kKeyBlock, scores + b * kKeyBlock);
  }
}

struct TileKernels {
  void (*scores)(Group& group, int begin, const CacheBlock& block, KeySpan keys);
  void (*values)(Group& group, int begin, const CacheBlock& block, KeySpan keys);
  // Of queries at one position, which see the key at `start` + lane in lane `lane`.
  void (*biases)(Group& group, int begin, int64_t start, KeySpan keys);
};

// Indexed by the number of queries; the last is reached only where a tile has 6.
constexpr TileKernels kTileKernels[] = {
    {nullptr, nullptr, nullptr},
    {tile_scores<1>, tile_values<1>, tile_biases<1>},
    {tile_scores<2>, tile_values<2>, tile_biases<2>},
    {tile_scores<3>, tile_values<3>, tile_biases<3>},
    {tile_scores<4>, tile_values<4>, tile_biases<4>},
    {tile_scores<5>, tile_values<5>, tile_biases<5>},
    {tile_scores<kTileQueries>, tile_values<kTileQueries>, tile_biases<kTileQueries>},
};

}  // namespace
}  // namespace coli
