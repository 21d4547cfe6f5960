// Attention's walk over the cache with online softmax; an ISA file includes it, see
// attention_tiles.h.
//
// Queries (row, head) go in groups of up to 24 that walk the cache together, so that a block of 64
// keys and values is read from memory once and from L1 or L2 after that. Blocks a tile cannot see
// are skipped; only the blocks on the diagonal pay for masking.
#pragma once

#include "core/pod.h"
#include "ops/attention/attention_tiles.h"
#include "ops/attention/kv_rows.h"
#include "ops/lanes/cached_floats.h"

namespace coli {
namespace {

// Tiles are as even as possible: tile i of n holds queries [i * count / n, (i + 1) * count / n).
int num_tiles(const Group& group) { return (group.num_queries + kTileQueries - 1) / kTileQueries; }

int tile_begin(const Group& group, int tile) { return tile * group.num_queries / num_tiles(group); }

int64_t clamp_count(int64_t count) {
  return count < 0 ? 0 : count < kSoftmaxBlock ? count : kSoftmaxBlock;
}

// The keys of the softmax block at `start` that query i sees.
KeySpan seen_keys(const Group& group, int i, int64_t start) {
  const int64_t end = clamp_count(group.position[i] - start + 1);
  if (group.window == 0) return {0, end};
  const int64_t first = clamp_count(group.position[i] - group.window + 1 - start);
  return {first, end > first ? end - first : 0};
}

// From the first to the last key that any query of [begin, end) sees.
KeySpan all_seen(const Group& group, int begin, int end, int64_t start) {
  if (group.window == 0) return seen_keys(group, end - 1, start);
  int64_t first = kSoftmaxBlock;
  int64_t past = 0;
  for (int i = begin; i < end; ++i) {
    const KeySpan keys = seen_keys(group, i, start);
    if (keys.count == 0) continue;
    if (keys.first < first) first = keys.first;
    if (keys.first + keys.count > past) past = keys.first + keys.count;
  }
  return {first, past > first ? past - first : 0};
}

// Weights of N key blocks' scores under the maximum m, added to the lanes of `sum`.
template <int N>
Lanes weigh(float* scores, float m, Lanes sum) {
  Lanes weight[N];
#pragma GCC unroll 8
  for (int b = 0; b < N; ++b) {
    weight[b] = exp_not_positive(sub(load(scores + b * kKeyBlock), splat(m)));
  }
#pragma GCC unroll 8
  for (int b = 0; b < N; ++b) {
    store(scores + b * kKeyBlock, weight[b]);
    sum = add(sum, weight[b]);
  }
  return sum;
}

// Turns the scores of query i, which sees `keys`, into weights.
void softmax_step(Group& group, int i, KeySpan keys) {
  float* scores = group.p + i * kSoftmaxBlock;
  float* l = group.l + i * kKeyBlock;
  const int64_t count = keys.first + keys.count;
  const int64_t first_block = keys.first / kKeyBlock;
  const int64_t num_blocks = (count + kKeyBlock - 1) / kKeyBlock;
  if (count % kKeyBlock != 0) {
    float* last = scores + (num_blocks - 1) * kKeyBlock;
    store(last, keep_first(load(last), static_cast<int>(count % kKeyBlock), -__builtin_inff()));
  }
  if (keys.first % kKeyBlock != 0) {
    float* cut = scores + first_block * kKeyBlock;
    store(cut, keep_from(load(cut), static_cast<int>(keys.first % kKeyBlock), -__builtin_inff()));
  }
  Lanes top = load(scores + first_block * kKeyBlock);
  for (int64_t b = first_block + 1; b < num_blocks; ++b) {
    top = larger(top, load(scores + b * kKeyBlock));
  }
  const float before = group.m[i];
  const float block_m = largest_lane(top);
  const float m = before > block_m ? before : block_m;
  if (m != before) {
    group.m[i] = m;
    if (before != -__builtin_inff()) {  // else l and o are zero still
      const Lanes alpha = exp_not_positive(splat(before - m));
      store(l, mul(load(l), alpha));
      float* o = group.o + i * group.head_dim;
      for (int64_t d = 0; d < group.head_dim; d += kKeyBlock) {
        store(o + d, mul(load(o + d), alpha));
      }
    }
  }
  Lanes sum = load(l);
  if (num_blocks - first_block == 4) {
    sum = weigh<4>(scores, m, sum);
  } else {
    for (int64_t b = first_block; b < num_blocks; ++b) {
      sum = weigh<1>(scores + b * kKeyBlock, m, sum);
    }
  }
  store(l, sum);
}

// Adds the relative biases to the scores of a tile, for queries at one position together.
void add_biases(Group& group, int begin, int end, int64_t start) {
  for (int i = begin; i < end;) {
    int next = i + 1;
    while (next < end && group.position[next] == group.position[i]) ++next;
    const KeySpan keys = seen_keys(group, i, start);
    if (keys.count != 0) kTileKernels[next - i].biases(group, i, start, keys);
    i = next;
  }
}

// Scores and weights of a tile for the softmax block at `start`.
void tile_softmax(Group& group, int tile, int64_t start, const CacheBlock& block) {
  const int begin = tile_begin(group, tile);
  const int end = tile_begin(group, tile + 1);
  const KeySpan all = all_seen(group, begin, end, start);
  if (all.count == 0) return;
  kTileKernels[end - begin].scores(group, begin, block, all);
  if (group.bank.data != nullptr) add_biases(group, begin, end, start);
  for (int i = begin; i < end; ++i) {
    const KeySpan keys = seen_keys(group, i, start);
    if (keys.count != 0) softmax_step(group, i, keys);
  }
}

// Weighted values of a tile: the keys all its queries see together, those before and behind query
// by query.
void tile_add_values(Group& group, int tile, int64_t start, const CacheBlock& block) {
  const int begin = tile_begin(group, tile);
  const int end = tile_begin(group, tile + 1);
  const KeySpan earliest = seen_keys(group, begin, start);
  const KeySpan latest = seen_keys(group, end - 1, start);
  const int64_t shared_end = earliest.first + earliest.count;
  const int64_t shared_first = latest.first < shared_end ? latest.first : shared_end;
  if (group.window != 0) {
    for (int i = begin; i < end; ++i) {
      const KeySpan keys = seen_keys(group, i, start);
      const int64_t early = shared_first - keys.first;
      if (keys.count != 0 && early > 0) {
        kTileKernels[1].values(group, i, block, {keys.first, early});
      }
    }
  }
  if (shared_end > shared_first) {
    kTileKernels[end - begin].values(group, begin, block,
                                     {shared_first, shared_end - shared_first});
  }
  for (int i = begin + 1; i < end; ++i) {
    const KeySpan keys = seen_keys(group, i, start);
    const int64_t from = keys.first > shared_end ? keys.first : shared_end;
    const int64_t late = keys.first + keys.count - from;
    if (late > 0) kTileKernels[1].values(group, i, block, {from, late});
  }
}

// Takes up a query's mixing weights and scales what the range says.
void start_options(Group& group, const AttentionRange& range, int i, int64_t row, int64_t head) {
  const int64_t profiles = group.bank.num_profiles;
  float* mix = group.mix + i * profiles;
  if (range.mix != nullptr) {
    const float* from = range.mix + row * range.ldq + head * profiles;
    for (int64_t j = 0; j < profiles; ++j) mix[j] = from[j];
  }
  if (range.query_scales == nullptr) return;
  const float factor = range.query_scales[row];
  float* q = group.q + i * group.head_dim;
  for (int64_t d = 0; d < group.head_dim; d += kKeyBlock) {
    store(q + d, mul(load(q + d), splat(factor)));
  }
  for (int64_t j = 0; j < profiles; ++j) mix[j] *= factor;
}

// Takes up queries [first, first + group.num_queries) of the range, numbered row by row.
void start_group(Group& group, const AttentionRange& range, int64_t first) {
  const int64_t num_heads = range.head_end - range.head_begin;
  for (int i = 0; i < group.num_queries; ++i) {
    const int64_t row = (first + i) / num_heads;
    const int64_t head = range.head_begin + (first + i) % num_heads;
    const float* from = range.q + row * range.ldq + head * group.head_dim;
    float* q = group.q + i * group.head_dim;
    float* o = group.o + i * group.head_dim;
    for (int64_t d = 0; d < group.head_dim; d += kKeyBlock) {
      store(q + d, load(from + d));
      store(o + d, splat(0.0F));
    }
    store(group.l + i * kKeyBlock, splat(0.0F));
    group.m[i] = -__builtin_inff();
    if (range.sinks != nullptr) {
      group.m[i] = range.sinks[head];
      group.l[i * kKeyBlock] = 1.0F;
    }
    group.position[i] = range.first_position + row;
    start_options(group, range, i, row, head);
  }
}

void finish_group(const Group& group, const AttentionRange& range, int64_t first) {
  const int64_t num_heads = range.head_end - range.head_begin;
  for (int i = 0; i < group.num_queries; ++i) {
    const int64_t row = (first + i) / num_heads;
    const int64_t head = range.head_begin + (first + i) % num_heads;
    const float* o = group.o + i * group.head_dim;
    float* out = range.out + row * range.ldo + head * group.head_dim;
    const Lanes sum = splat(sum_lanes(load(group.l + i * kKeyBlock)));
    for (int64_t d = 0; d < group.head_dim; d += kKeyBlock) {
      store(out + d, divide(load(o + d), sum));
    }
  }
}

// Keys and values of a softmax block that are not stored as floats.
struct WideBlock {
  alignas(64) float keys[kSoftmaxBlock * kMaxHeadDim];
  alignas(64) float values[kSoftmaxBlock * kMaxHeadDim];
};

// The softmax block at `start`, of which the keys of the block at `next` will be wanted next.
CacheBlock read_block(const KvLayerView& kv, int64_t kv_head, int64_t start, int64_t next,
                      WideBlock* wide) {
  const int64_t size = kSoftmaxBlock * kv.head_dim;
  const float* block = block_of(kv, start);
  const int64_t ahead = key_at(kv, kv_head, next);
  if (kv.type == KvType::kF32) {
    return {block + key_at(kv, kv_head, start), block + value_at(kv, kv_head, start),
            block_of(kv, next) + ahead};
  }
  return {cached_floats(kv.type, block, key_at(kv, kv_head, start), size, wide->keys),
          cached_floats(kv.type, block, value_at(kv, kv_head, start), size, wide->values),
          block_of(kv, next) + ahead / 2};
}

void walk(const KvLayerView& kv, const AttentionRange& range, WideBlock* wide) {
  Group group;
  group.head_dim = kv.head_dim;
  group.scale = range.scale;
  group.window = range.window;
  group.bank = range.mix == nullptr ? RelativeBank{} : range.bank;
  const int64_t num_queries = range.num_rows * (range.head_end - range.head_begin);
  for (int64_t first = 0; first < num_queries; first += group.num_queries) {
    const int64_t rest = num_queries - first;
    group.num_queries = static_cast<int>(rest < kGroupQueries ? rest : kGroupQueries);
    start_group(group, range, first);
    const int tiles = num_tiles(group);
    const int64_t last = group.position[group.num_queries - 1];
    const int64_t oldest = group.position[0] - group.window + 1;  // with a window
    const int64_t begin =
        group.window == 0 || oldest < 0 ? 0 : oldest / kSoftmaxBlock * kSoftmaxBlock;
    for (int64_t start = begin; start <= last; start += kSoftmaxBlock) {
      const int64_t next = start + kSoftmaxBlock;
      const CacheBlock block =
          read_block(kv, range.kv_head, start, next <= last ? next : start, wide);
      for (int tile = 0; tile < tiles; ++tile) tile_softmax(group, tile, start, block);
      for (int tile = 0; tile < tiles; ++tile) tile_add_values(group, tile, start, block);
    }
    finish_group(group, range, first);
  }
}

void attend(const KvLayerView& kv, const AttentionRange& range) {
  if (kv.type == KvType::kF32) return walk(kv, range, nullptr);
  WideBlock wide;
  walk(kv, range, &wide);
}

}  // namespace
}  // namespace coli
