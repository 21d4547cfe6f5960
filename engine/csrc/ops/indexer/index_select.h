// An indexer's choice for the rows of a step, and the work split of it.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "ops/mla/selection.h"
#include "ops/sequence/sequence.h"

namespace coli {

// The heads of an indexer.
struct IndexHeads {
  int64_t num_heads;
  int64_t weights_offset;  // first of the columns that hold a row's head weights
  float scale;             // of every score
};

// Chooses for every row, of the positions up to its own, the selection's topk with the largest
// scores: q (rows, num_heads * index_dim), weights (rows, columns). The rows' own index keys are
// in the cache already. Throws std::invalid_argument.
void index_select(const Rows& q, const Rows& weights, const Batch& batch, int64_t layer,
                  const IndexHeads& heads, Selection& selection);

}  // namespace coli
