#include "core/kv_rows.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace coli {
namespace {

constexpr int64_t kBlock = KvCache::kBlockPositions;

// The side that is const is the one that is read.
template <typename Block, typename Row>
void copy_one(Block* block, Row* row) {
  if constexpr (std::is_const_v<Block>) {
    *row = *block;
  } else {
    *block = *row;
  }
}

// Between rows and [position / 16][dim][16].
template <typename Block, typename Row>
void copy_transposed(Block* block, Row* rows, const RowRange& range, int64_t dim) {
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t t = range.first + i;
    Block* from = block + t / kKeyBlock * dim * kKeyBlock + t % kKeyBlock;
    Row* row = rows + i * range.stride;
    for (int64_t d = 0; d < dim; ++d) copy_one(from + d * kKeyBlock, row + d);
  }
}

// Between rows and [position][dim].
template <typename Block, typename Row>
void copy_plain(Block* block, Row* rows, const RowRange& range, int64_t dim) {
  const size_t nbytes = sizeof(float) * static_cast<size_t>(dim);
  for (int64_t i = 0; nbytes != 0 && i < range.count; ++i) {
    Block* from = block + (range.first + i) * dim;
    if constexpr (std::is_const_v<Block>) {
      std::memcpy(rows + i * range.stride, from, nbytes);
    } else {
      std::memcpy(from, rows + i * range.stride, nbytes);
    }
  }
}

template <typename Block, typename Row>
Row* copy_layer(const LayerLayout& layout, const LayerBlock<Block>& block, const RowRange& range,
                Row* rows) {
  const int64_t dim = layout.head_dim;
  for (int64_t head = 0; head < layout.num_kv_heads; ++head, rows += dim) {
    copy_transposed(block.keys + head * dim * kBlock, rows, range, dim);
  }
  for (int64_t head = 0; head < layout.num_kv_heads; ++head, rows += dim) {
    copy_plain(block.values + head * dim * kBlock, rows, range, dim);
  }
  copy_plain(block.latents, rows, range, layout.latent_dim);
  rows += layout.latent_dim;
  copy_transposed(block.index_keys, rows, range, layout.index_dim);
  return rows + layout.index_dim;
}

}  // namespace

int64_t row_dim_of(const LayerLayout& layout) {
  return 2 * layout.num_kv_heads * layout.head_dim + layout.latent_dim + layout.index_dim;
}

const float* copy_layer_rows(const LayerLayout& layout, const LayerBlock<float>& block,
                             const RowRange& range, const float* rows) {
  return copy_layer(layout, block, range, rows);
}

float* copy_layer_rows(const LayerLayout& layout, const LayerBlock<const float>& block,
                       const RowRange& range, float* rows) {
  return copy_layer(layout, block, range, rows);
}

KvReader::KvReader(std::shared_ptr<const KvCache> cache)
    : cache_(std::move(cache)),
      length_(cache_->length_),
      blocks_(cache_->blocks_),
      snapshots_(cache_->snapshots_) {
  std::sort(snapshots_.begin(), snapshots_.end(),
            [](const auto& a, const auto& b) { return a.length < b.length; });
}

void KvReader::read_rows(int64_t begin, int64_t count, float* to, int64_t stride) const {
  if (begin < 0 || count < 0 || begin > length_ || count > length_ - begin ||
      stride < cache_->row_dim()) {
    throw std::invalid_argument("KV rows " + std::to_string(begin) + " + " + std::to_string(count) +
                                " are not within " + std::to_string(length_) +
                                " positions, or overlap");
  }
  for (int64_t done = 0; done < count;) {
    const int64_t first = (begin + done) % kBlock;
    const int64_t part = std::min(count - done, kBlock - first);
    const float* block = blocks_[static_cast<size_t>((begin + done) / kBlock)];
    float* rows = to + done * stride;
    for (const KvCache::Place& place : cache_->layers_) {
      rows =
          copy_layer_rows(place.layout,
                          LayerBlock<const float>{block + place.keys, block + place.values,
                                                  block + place.latents, block + place.index_keys},
                          {first, part, stride}, rows);
    }
    done += part;
  }
}

std::vector<int64_t> KvReader::state_lengths() const {
  std::vector<int64_t> lengths;
  for (const KvCache::Snapshot& kept : snapshots_) lengths.push_back(kept.length);
  return lengths;
}

void KvReader::read_state(int64_t length, float* to) const {
  for (const KvCache::Snapshot& kept : snapshots_) {
    if (kept.length == length) {
      std::memcpy(to, kept.state->data(), kept.state->size());
      return;
    }
  }
  throw std::invalid_argument("no recurrent state of " + std::to_string(length) + " positions");
}

}  // namespace coli
