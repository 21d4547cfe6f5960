// Attention with 512-bit vectors: a lane group is one register.
#include "ops/attention/attention.h"
#include "ops/lanes/lanes_avx512.h"

namespace coli {
namespace {

constexpr int kTileQueries = 6;

// Vectors per query that a tile of so many queries keeps in registers (of 32).
constexpr int kTileUnits[] = {0, 4, 4, 4, 4, 4, 4};

}  // namespace
}  // namespace coli

#include "ops/attention/attention_walk.h"

namespace coli {

void store_keys_avx512(const KvLayerView& kv, int64_t kv_head, int64_t position, const float* key) {
  store_key_row(kv, kv_head, position, key);
}

void store_values_avx512(const KvLayerView& kv, int64_t kv_head, int64_t position,
                         const float* value) {
  store_value_row(kv, kv_head, position, value);
}

void attention_avx512(const KvLayerView& kv, const AttentionRange& range) { attend(kv, range); }

}  // namespace coli
