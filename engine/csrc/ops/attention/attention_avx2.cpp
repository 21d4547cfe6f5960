// Attention with 256-bit vectors: a lane group is two registers.
#include "ops/attention/attention.h"
#include "ops/lanes/lanes_avx2.h"

namespace coli {
namespace {

constexpr int kTileQueries = 6;

// Lane groups per query that a tile of so many queries keeps in registers (16 of half a group).
constexpr int kTileUnits[] = {0, 4, 2, 2, 1, 1, 1};

}  // namespace
}  // namespace coli

#include "ops/attention/attention_walk.h"

namespace coli {

void store_keys_avx2(const KvLayerView& kv, int64_t kv_head, int64_t position, const float* key) {
  store_key_row(kv, kv_head, position, key);
}

void store_values_avx2(const KvLayerView& kv, int64_t kv_head, int64_t position,
                       const float* value) {
  store_value_row(kv, kv_head, position, value);
}

void attention_avx2(const KvLayerView& kv, const AttentionRange& range) { attend(kv, range); }

}  // namespace coli
