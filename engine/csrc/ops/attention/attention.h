// Causal attention of query rows over one layer's cache, and the writes that fill the cache.
//
// For one query at position i, over keys t = 0..i in blocks of 64 aligned at absolute positions,
// every step rounded to f32:
//   s_t   = scale * (sum over d in increasing order of q_d * k_td, a chain of fma from 0)
//   m'    = max(m, s_t of the block)                    exact; m starts at -inf
//   l, o  = l * a, o * a  with a = exp(m - m')          only where m' differs from m
//   p_t   = exp(s_t - m')
//   l_j   = l_j + p_t       for t mod 16 = j, t increasing, 16 lanes
//   o_d   = fma(p_t, v_td, o_d)                         t increasing
// and at the end l is summed by halves, (l0 + l8) .. down to one, and out_d = o_d / l.
// Options, each off unless the range sets it:
//   query scale: q_d and the mixing weights r_j are multiplied by the row's factor first
//   relative bias: s_t = s_t + b with b = sum over j in increasing order of r_j * P_j[i - t], a
//     chain of fma from 0, where i - t < extent, else b = 0
//   window: only keys with i - t < window exist; blocks without any are not visited
//   sink: the walk starts as if behind a key with this score and no value: m = sink, l_0 = 1
// Nothing here depends on other rows or heads, so any split of a batch gives the same bits.
// Values of masked positions are never read. exp is the one of ops/swiglu/exp.h.
#pragma once

#include "core/pod.h"

namespace coli {

#define COLI_ATTENTION_VARIANT(isa)                                                 \
  /* Writes head_dim floats of one KV head at `position`. */                        \
  void store_keys_##isa(const KvLayerView& kv, int64_t kv_head, int64_t position,   \
                        const float* key);                                          \
  void store_values_##isa(const KvLayerView& kv, int64_t kv_head, int64_t position, \
                          const float* value);                                      \
  /* head_dim: a multiple of 16 up to 256. `out` may be `q` itself, row by row. */  \
  void attention_##isa(const KvLayerView& kv, const AttentionRange& range);

COLI_ATTENTION_VARIANT(scalar)
COLI_ATTENTION_VARIANT(avx2)
COLI_ATTENTION_VARIANT(avx512)
COLI_ATTENTION_VARIANT(neon)
#undef COLI_ATTENTION_VARIANT

}  // namespace coli
