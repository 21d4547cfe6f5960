// Attention of many heads over one shared latent row per position (MLA with absorbed weights).
//
// A latent row has `dim` channels: all of them are the key, the first `value_dim` the value, of
// every head. Heads are the lanes: queries lie as [channel][head], a latent's channel is one number
// for all of them, so one row-major copy of the latents serves both products and no lanes are added.
//
// For one query row and head, over a list of positions (0, 1, .. or a selection, ascending) cut in
// segments of 512 and those in blocks of 64, every step rounded to f32:
//   s_i  = scale * (sum over d in increasing order of q_d * latent_id, a chain of fma from 0)
//   m'   = max(m, s_i of the block)      exact; m starts at -inf in every segment
//   a    = exp(m - m'),  p_i = exp(s_i - m')
//   b    = (b0 + b1) + (b2 + b3) with b_j = b_j + p_i for i mod 4 = j, from 0, i increasing
//   l    = fma(l, a, b)
//   o_c  = o_c * a, then o_c = fma(p_i, latent_ic, o_c)    i increasing
// Segments are joined in order, the first two, then their result and the third:
//   m' = max(m1, m2), a1 = exp(m1 - m'), a2 = exp(m2 - m'), l = fma(l2, a2, l1 * a1), o_c likewise
// and at the end out_c = o_c / l. Nothing depends on other rows or heads, nor on who computes which
// segment, so any split gives the same bits; and a selection of everything gives those of the dense
// list. exp is the one of ops/swiglu/exp.h.
#pragma once

#include "core/pod.h"

namespace coli {

constexpr int64_t kMlaSegment = 512;  // list entries whose sums start anew

// Sizes of one layer. Lanes are heads padded to 16; those without a head are computed and unused.
struct MlaShape {
  int64_t dim;
  int64_t value_dim;
  int64_t lanes;  // a multiple of 16
  float scale;
};

// One query row against one segment.
//
// q:     [dim][lanes].
// state: [2 + value_dim][lanes]: m, l, then o; written, never read.
// list:  the segment's positions, or null for first, first + 1, ...
// room:  [64][dim], for latents that are not stored as floats; else not touched.
struct MlaSegment {
  const float* q;
  float* state;
  const int32_t* list;
  int64_t first;
  int64_t count;  // 1..kMlaSegment
  float* room = nullptr;
};

#define COLI_MLA_VARIANT(isa)                                                                     \
  void mla_segment_##isa(const RowsView& latents, const MlaShape& shape, const MlaSegment& part); \
  /* Joins the sums of the segments after those of `state` to it. */                              \
  void mla_join_##isa(const MlaShape& shape, float* state, const float* next);                    \
  /* o = o / l in place. */                                                                       \
  void mla_divide_##isa(const MlaShape& shape, float* state);

COLI_MLA_VARIANT(scalar)
COLI_MLA_VARIANT(avx2)
COLI_MLA_VARIANT(avx512)
COLI_MLA_VARIANT(neon)
#undef COLI_MLA_VARIANT

}  // namespace coli
