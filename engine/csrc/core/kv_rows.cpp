#include "core/kv_rows.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/kv_numbers.h"

namespace coli {
namespace {

constexpr int64_t kBlock = KvCache::kBlockPositions;

// Calls copy(at, step, dim, rows) for each part of a layer: `dim` numbers of position 0 lie `step`
// apart from `at` on, those of the next one as the part's own order says.
template <typename Row, typename Copy>
Row* for_each_part(const LayerOfBlock& layer, Row* rows, const Copy& copy) {
  const int64_t dim = layer.layout.head_dim;
  const int64_t heads = layer.layout.num_kv_heads;
  for (int64_t head = 0; head < heads; ++head, rows += dim) {
    copy(layer.at.keys + head * dim * kBlock, kKeyBlock, dim, rows);
  }
  for (int64_t head = 0; head < heads; ++head, rows += dim) {
    copy(layer.at.values + head * dim * kBlock, int64_t{1}, dim, rows);
  }
  copy(layer.at.latents, int64_t{1}, layer.layout.latent_dim, rows);
  rows += layer.layout.latent_dim;
  copy(layer.at.index_keys, kKeyBlock, layer.layout.index_dim, rows);
  return rows + layer.layout.index_dim;
}

// Where position t begins: [position / 16][dim][16], or [position][dim].
int64_t place_of(int64_t t, int64_t step, int64_t dim) {
  return step == 1 ? t * dim : t / kKeyBlock * dim * kKeyBlock + t % kKeyBlock;
}

}  // namespace

int64_t row_dim_of(const LayerLayout& layout) {
  return 2 * layout.num_kv_heads * layout.head_dim + layout.latent_dim + layout.index_dim;
}

const float* put_layer_rows(const LayerOfBlock& layer, float* block, const RowRange& range,
                            const float* rows) {
  return for_each_part(layer, rows, [&](int64_t at, int64_t step, int64_t dim, const float* row) {
    for (int64_t i = 0; i < range.count; ++i, row += range.stride) {
      put_numbers(layer.type, block, at + place_of(range.first + i, step, dim), step, dim, row);
    }
  });
}

float* get_layer_rows(const LayerOfBlock& layer, const float* block, const RowRange& range,
                      float* rows) {
  return for_each_part(layer, rows, [&](int64_t at, int64_t step, int64_t dim, float* row) {
    for (int64_t i = 0; i < range.count; ++i, row += range.stride) {
      get_numbers(layer.type, block, at + place_of(range.first + i, step, dim), step, dim, row);
    }
  });
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
      rows = get_layer_rows({cache_->type_, place.layout, place.at}, block, {first, part, stride},
                            rows);
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
