// Scores by which a sparse attention layer chooses the positions a row attends to.
//
// Index keys lie transposed in blocks of 16 positions, so a lane is a position. For one row with
// query heads q_h and head weights w_h, every step rounded to f32:
//   s_h  = sum over d in increasing order of q_hd * k_td, a chain of fma from 0
//   I_t  = chain over h in increasing order: I = fma(w_h, max(s_h, 0), I), from 0
// A factor common to all scores belongs in the weights. Where a sum is NaN, so may be the score.
// Source: DeepSeek-V3.2, "lightning indexer".
#pragma once

#include "core/pod.h"

namespace coli {

// Heads of one row: q is [num_heads][dim], weights [num_heads].
struct IndexQuery {
  const float* q;
  const float* weights;
  int64_t num_heads;
};

// Writes scores[t - begin] for t from `begin` (a multiple of 16) up to the next multiple of 16 from
// `end` on; those beyond what the cache holds mean nothing.
#define COLI_INDEXER_VARIANT(isa)                                                       \
  void index_scores_##isa(const RowsView& keys, const IndexQuery& query, int64_t begin, \
                          int64_t end, float* scores);

COLI_INDEXER_VARIANT(scalar)
COLI_INDEXER_VARIANT(avx2)
COLI_INDEXER_VARIANT(avx512)
COLI_INDEXER_VARIANT(neon)
#undef COLI_INDEXER_VARIANT

}  // namespace coli
