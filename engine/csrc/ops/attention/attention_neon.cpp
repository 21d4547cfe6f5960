// Attention with 128-bit vectors: a lane group is four registers.
#include "ops/attention/attention.h"
#include "ops/lanes/lanes_neon.h"

namespace coli {
namespace {

constexpr int kTileQueries = 5;  // with 6, GCC keeps some sums in memory

// Lane groups per query that a tile of so many queries keeps in registers (32 registers).
constexpr int kTileUnits[] = {0, 2, 2, 1, 1, 1};

}  // namespace
}  // namespace coli

#include "ops/attention/attention_walk.h"

namespace coli {

void store_keys_neon(const KvLayerView& kv, int64_t kv_head, int64_t position, const float* key) {
  store_key_row(kv, kv_head, position, key);
}

void store_values_neon(const KvLayerView& kv, int64_t kv_head, int64_t position,
                       const float* value) {
  store_value_row(kv, kv_head, position, value);
}

void attention_neon(const KvLayerView& kv, const AttentionRange& range) { attend(kv, range); }

}  // namespace coli
