// Indexer scores, one position at a time: the definition the other variants equal bit for bit. The
// formula is in indexer.h.
#include <cmath>

#include "core/kv_numbers.h"
#include "ops/indexer/index_keys.h"
#include "ops/indexer/indexer.h"

namespace coli {

void index_scores_scalar(const RowsView& keys, const IndexQuery& query, int64_t begin, int64_t end,
                         float* scores) {
  for (int64_t block = begin; block < end; block += kKeyBlock) {
    const float* numbers = index_block(keys, block);
    const int64_t at = index_key_at(keys, block);
    for (int64_t lane = 0; lane < kKeyBlock; ++lane) {
      float total = 0.0F;
      for (int64_t h = 0; h < query.num_heads; ++h) {
        const float* q = query.q + h * keys.dim;
        float sum = 0.0F;
        for (int64_t d = 0; d < keys.dim; ++d) {
          sum = std::fma(q[d], kv_number(keys.type, numbers, at + d * kKeyBlock + lane), sum);
        }
        total = std::fma(query.weights[h], sum > 0.0F ? sum : 0.0F, total);
      }
      scores[block - begin + lane] = total;
    }
  }
}

}  // namespace coli
