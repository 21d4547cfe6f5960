// Latent attention over lane groups: one source for every vector instruction set.
//
// An ISA file includes its Lanes (ops/lanes/), defines kTileGroups and kTileWidth in namespace
// coli's unnamed namespace, then includes this file; all of it has internal linkage too. Bits follow
// mla.h: a register tile only chooses which independent chains advance together.
#pragma once

#include "core/pod.h"
#include "ops/lanes/cached_floats.h"
#include "ops/mla/latent_rows.h"
#include "ops/mla/mla.h"

namespace coli {
namespace {

constexpr int64_t kLaneWidth = 16;

// Channels of the queries that a pass over a block's keys keeps in the first-level cache.
constexpr int64_t kChannelChunk = 128;

// Scores, then weights, of one block: [key][group of the tile][16].
struct BlockWeights {
  alignas(64) float p[kSoftmaxBlock * kTileGroups * kLaneWidth];
};

// Adds the products of G lane groups with K keys, over n channels, to s.
template <int G, int K>
void score_tile(const float* q, int64_t ldq, const float* const* keys, int64_t at, int64_t n,
                float* s) {
  Lanes acc[K][G];
#pragma GCC unroll 12
  for (int k = 0; k < K; ++k) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[k][g] = load(s + (k * G + g) * kLaneWidth);
  }
  const float* key[K];
#pragma GCC unroll 12
  for (int k = 0; k < K; ++k) key[k] = keys[k] + at;
  for (int64_t d = 0; d < n; ++d) {
    Lanes query[G];
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) query[g] = load(q + d * ldq + g * kLaneWidth);
#pragma GCC unroll 12
    for (int k = 0; k < K; ++k) {
      const Lanes channel = splat(key[k][d]);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) acc[k][g] = fmadd(channel, query[g], acc[k][g]);
    }
  }
#pragma GCC unroll 12
  for (int k = 0; k < K; ++k) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) store(s + (k * G + g) * kLaneWidth, acc[k][g]);
  }
}

template <int G, int K>
int64_t score_span(const float* q, int64_t ldq, const float* const* keys, int64_t at, int64_t n,
                   float* s, int64_t k, int64_t count) {
  for (; k + K <= count; k += K) {
    score_tile<G, K>(q, ldq, keys + k, at, n, s + k * G * kLaneWidth);
  }
  return k;
}

// Scores of a block, not yet scaled.
template <int G>
void block_scores(const MlaShape& shape, const float* q, const float* const* keys, int64_t count,
                  float* s) {
  for (int64_t i = 0; i < count * G; ++i) store(s + i * kLaneWidth, splat(0.0F));
  for (int64_t at = 0; at < shape.dim; at += kChannelChunk) {
    const int64_t rest = shape.dim - at;
    const int64_t n = rest < kChannelChunk ? rest : kChannelChunk;
    const float* chunk = q + at * shape.lanes;
    int64_t k = score_span<G, kTileWidth[G]>(chunk, shape.lanes, keys, at, n, s, 0, count);
    k = score_span<G, 4>(chunk, shape.lanes, keys, at, n, s, k, count);
    k = score_span<G, 2>(chunk, shape.lanes, keys, at, n, s, k, count);
    score_span<G, 1>(chunk, shape.lanes, keys, at, n, s, k, count);
  }
}

// Turns the scores of one lane group into weights; returns the factor of the sums before.
template <int G>
Lanes block_softmax(float scale, float* s, int64_t count, float* m_at, float* l_at) {
  constexpr int64_t kStep = G * kLaneWidth;
  const Lanes before = load(m_at);
  Lanes m = before;
  for (int64_t i = 0; i < count; ++i) {
    const Lanes score = mul(splat(scale), load(s + i * kStep));
    store(s + i * kStep, score);
    m = larger(score, m);
  }
  const Lanes alpha = exp_not_positive(sub(before, m));
  Lanes chain[4] = {splat(0.0F), splat(0.0F), splat(0.0F), splat(0.0F)};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Lanes weight = exp_not_positive(sub(load(s + (i + j) * kStep), m));
      store(s + (i + j) * kStep, weight);
      chain[j] = add(chain[j], weight);
    }
  }
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    if (i + j >= count) break;
    const Lanes weight = exp_not_positive(sub(load(s + (i + j) * kStep), m));
    store(s + (i + j) * kStep, weight);
    chain[j] = add(chain[j], weight);
  }
  store(m_at, m);
  store(l_at, fmadd(load(l_at), alpha, add(add(chain[0], chain[1]), add(chain[2], chain[3]))));
  return alpha;
}

// o[c][g] = o[c][g] * alpha[g] + sum of the block's weighted channels, for C channels.
template <int G, int C>
void value_tile(const float* p, const float* const* rows, int64_t channel, int64_t count,
                const Lanes* alpha, float* o, int64_t ldo) {
  Lanes acc[C][G];
#pragma GCC unroll 12
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[c][g] = mul(load(o + c * ldo + g * kLaneWidth), alpha[g]);
  }
  for (int64_t i = 0; i < count; ++i) {
    Lanes weight[G];
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) weight[g] = load(p + (i * G + g) * kLaneWidth);
    const float* row = rows[i] + channel;
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) {
      const Lanes value = splat(row[c]);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) acc[c][g] = fmadd(weight[g], value, acc[c][g]);
    }
  }
#pragma GCC unroll 12
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) store(o + c * ldo + g * kLaneWidth, acc[c][g]);
  }
}

template <int G, int C>
int64_t value_span(const MlaShape& shape, const float* p, const float* const* rows, int64_t count,
                   const Lanes* alpha, float* o, int64_t c) {
  for (; c + C <= shape.value_dim; c += C) {
    value_tile<G, C>(p, rows, c, count, alpha, o + c * shape.lanes, shape.lanes);
  }
  return c;
}

template <int G>
void add_block(const MlaShape& shape, const float* q, const float* const* rows, int64_t count,
               float* state) {
  BlockWeights weights;
  block_scores<G>(shape, q, rows, count, weights.p);
  Lanes alpha[G];
  for (int g = 0; g < G; ++g) {
    const int64_t at = g * kLaneWidth;
    alpha[g] =
        block_softmax<G>(shape.scale, weights.p + at, count, state + at, state + shape.lanes + at);
  }
  float* o = state + 2 * shape.lanes;
  int64_t c = value_span<G, kTileWidth[G]>(shape, weights.p, rows, count, alpha, o, 0);
  c = value_span<G, 4>(shape, weights.p, rows, count, alpha, o, c);
  c = value_span<G, 2>(shape, weights.p, rows, count, alpha, o, c);
  value_span<G, 1>(shape, weights.p, rows, count, alpha, o, c);
}

// add_block of as many groups as there are, up to G.
template <int G>
void add_block_of(int64_t groups, const MlaShape& shape, const float* q, const float* const* rows,
                  int64_t count, float* state) {
  if constexpr (G > 1) {
    if (groups < G) return add_block_of<G - 1>(groups, shape, q, rows, count, state);
  }
  add_block<G>(shape, q, rows, count, state);
}

void attend_segment(const RowsView& latents, const MlaShape& shape, const MlaSegment& part) {
  for (int64_t lane = 0; lane < shape.lanes; lane += kLaneWidth) {
    store(part.state + lane, splat(-__builtin_inff()));
    for (int64_t r = 1; r < 2 + shape.value_dim; ++r) {
      store(part.state + r * shape.lanes + lane, splat(0.0F));
    }
  }
  for (int64_t begin = 0; begin < part.count; begin += kSoftmaxBlock) {
    const int64_t rest = part.count - begin;
    const int64_t count = rest < kSoftmaxBlock ? rest : kSoftmaxBlock;
    const float* rows[kSoftmaxBlock];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = part.list != nullptr ? part.list[begin + i] : part.first + begin + i;
      rows[i] =
          cached_floats(latents.type, latent_block(latents, position), latent_at(latents, position),
                        latents.dim, part.room + i * latents.dim);
    }
    for (int64_t lane = 0; lane < shape.lanes; lane += kTileGroups * kLaneWidth) {
      const int64_t groups = (shape.lanes - lane) / kLaneWidth;
      add_block_of<kTileGroups>(groups, shape, part.q + lane, rows, count, part.state + lane);
    }
  }
}

void join_states(const MlaShape& shape, float* state, const float* next) {
  for (int64_t lane = 0; lane < shape.lanes; lane += kLaneWidth) {
    const Lanes m1 = load(state + lane);
    const Lanes m2 = load(next + lane);
    const Lanes m = larger(m2, m1);
    const Lanes a1 = exp_not_positive(sub(m1, m));
    const Lanes a2 = exp_not_positive(sub(m2, m));
    store(state + lane, m);
    for (int64_t r = 1; r < 2 + shape.value_dim; ++r) {
      float* sum = state + r * shape.lanes + lane;
      store(sum, fmadd(load(next + r * shape.lanes + lane), a2, mul(load(sum), a1)));
    }
  }
}

void divide_state(const MlaShape& shape, float* state) {
  for (int64_t lane = 0; lane < shape.lanes; lane += kLaneWidth) {
    const Lanes l = load(state + shape.lanes + lane);
    for (int64_t r = 2; r < 2 + shape.value_dim; ++r) {
      float* o = state + r * shape.lanes + lane;
      store(o, divide(load(o), l));
    }
  }
}

}  // namespace
}  // namespace coli
