// Indexer scores with 128-bit vectors: a block of positions is four registers.
#include "ops/indexer/indexer.h"
#include "ops/lanes/lanes_neon.h"

namespace coli {
namespace {

constexpr int kTileBlocks = 1;

}  // namespace
}  // namespace coli

#include "ops/indexer/indexer_tiles.h"

namespace coli {

void index_scores_neon(const RowsView& keys, const IndexQuery& query, int64_t begin, int64_t end,
                       float* scores) {
  score_positions(keys, query, begin, end, scores);
}

}  // namespace coli
