// Indexer scores with 512-bit vectors: a block of positions is one register.
#include "ops/indexer/indexer.h"
#include "ops/lanes/lanes_avx512.h"

namespace coli {
namespace {

constexpr int kTileBlocks = 4;

}  // namespace
}  // namespace coli

#include "ops/indexer/indexer_tiles.h"

namespace coli {

void index_scores_avx512(const RowsView& keys, const IndexQuery& query, int64_t begin, int64_t end,
                         float* scores) {
  score_positions(keys, query, begin, end, scores);
}

}  // namespace coli
