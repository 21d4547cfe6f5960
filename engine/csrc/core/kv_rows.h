// Positions of a cache as rows of floats, the form in which they leave it and come back.
//
// A row is one position: layer by layer the keys of all heads, their values, the latent, the index
// key. It does not depend on how blocks are laid out.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_cache.h"

namespace coli {

// Reads what a cache holds now, from any thread, while its owner goes on appending. Keeps the memory
// alive. Rows must not be read once the owner has truncated the cache below them, for it may then
// write others in their place.
class KvReader {
 public:
  explicit KvReader(std::shared_ptr<const KvCache> cache);  // on the owner's thread

  int64_t length() const { return length_; }
  int64_t row_dim() const { return cache_->row_dim(); }
  int64_t state_dim() const { return cache_->state_dim(); }

  // Writes `count` rows from position `begin` on, beginning `stride` floats apart.
  // Throws std::invalid_argument beyond length().
  void read_rows(int64_t begin, int64_t count, float* to, int64_t stride) const;

  // Lengths whose recurrent state is known, ascending, and that state, state_dim() floats.
  // Throws std::invalid_argument for another length.
  std::vector<int64_t> state_lengths() const;
  void read_state(int64_t length, float* to) const;

 private:
  std::shared_ptr<const KvCache> cache_;
  int64_t length_;
  std::vector<float*> blocks_;
  std::vector<KvCache::Snapshot> snapshots_;
};

// Floats of one layer in a row.
int64_t row_dim_of(const LayerLayout& layout);

// One layer of a block.
struct LayerOfBlock {
  KvType type;
  LayerLayout layout;
  BlockOffsets at;
};

// Some positions of a block, and the distance of their rows in floats.
struct RowRange {
  int64_t first;
  int64_t count;
  int64_t stride;
};

// Copies one layer's part of rows into a block, or out of it; returns where its next layer's begins.
const float* put_layer_rows(const LayerOfBlock& layer, float* block, const RowRange& range,
                            const float* rows);
float* get_layer_rows(const LayerOfBlock& layer, const float* block, const RowRange& range,
                      float* rows);

}  // namespace coli
