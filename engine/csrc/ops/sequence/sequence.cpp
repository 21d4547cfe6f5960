#include "ops/sequence/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/thread_team.h"
#include "dispatch.h"

namespace coli {
namespace {

constexpr int64_t kRopeGrain = 8;
// Prefill rows per attention item: enough queries to share loaded keys, small enough to balance
// the triangle.
constexpr int64_t kRowChunk = 32;

// `profiles`: mixing weights per head that follow k and v.
void check_qkv(const Rows& qkv, const Batch& batch, int64_t layer, int64_t num_heads,
               int64_t profiles = 0) {
  require(qkv.rows() == batch.num_rows(), "the batch and the rows differ");
  for (const Batch::Segment& segment : batch.segments()) {
    const LayerLayout& layout = segment.cache->layout(layer);
    require(layout.num_kv_heads != 0, "the cache's layer has no keys and values");
    require(num_heads >= 1 && num_heads <= qkv.width() && num_heads % layout.num_kv_heads == 0,
            "num_heads is not a multiple of the cache's heads");
    require(qkv.width() ==
                (num_heads + 2 * layout.num_kv_heads) * layout.head_dim + num_heads * profiles,
            "qkv has the wrong width for the cache");
  }
}

struct Item {
  int64_t segment;
  int64_t kv_head;
  int64_t head_begin;
  int64_t head_end;
  int64_t row_begin;
  int64_t row_end;
};

void add_items(std::vector<Item>& items, const Batch::Segment& segment, int64_t index,
               int64_t kv_heads, int64_t num_heads) {
  const int64_t group = num_heads / kv_heads;
  // Heads that share keys should share the reading of them, unless that leaves threads without work.
  const int64_t heads_per_item = kv_heads >= ThreadTeam::instance().size() ? group : 1;
  for (int64_t row = 0; row < segment.rows; row += kRowChunk) {
    const int64_t row_end = std::min(segment.rows, row + kRowChunk);
    for (int64_t head = 0; head < num_heads; head += heads_per_item) {
      items.push_back({index, head / group, head, head + heads_per_item, row, row_end});
    }
  }
}

// What the options add to the range of one item.
void add_options(AttentionRange& range, const AttentionOptions& options, const float* scales,
                 const float* mix) {
  range.window = options.window();
  if (!options.sinks().empty()) range.sinks = options.sinks().data();
  range.query_scales = scales;
  range.bank = options.bank();
  if (range.bank.data != nullptr) range.mix = mix;
}

// The factor of every row's queries; empty where all are 1.
std::vector<float> query_scales(const Batch& batch, const AttentionOptions& options) {
  std::vector<float> scales;
  if (!options.scales_queries(batch.end_position())) return scales;
  for (const Batch::Segment& segment : batch.segments()) {
    for (int64_t r = 0; r < segment.rows; ++r) {
      scales.push_back(options.query_scale(segment.start + r));
    }
  }
  return scales;
}

}  // namespace

void Batch::set(std::vector<Segment> segments) {
  segments_.clear();
  num_rows_ = 0;
  end_position_ = 0;
  int64_t rows = 0;
  int64_t end = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    Segment& segment = segments[i];
    require(segment.cache != nullptr, "a segment has no cache");
    require(segment.rows >= 1, "a segment needs at least one row");
    require(segment.start >= 0 && segment.start <= segment.cache->length(),
            "a segment starts behind the end of its cache");
    require(segment.rows <= std::numeric_limits<int64_t>::max() - segment.start,
            "KV cache cannot reserve more positions than a number counts");
    require(!segment.cache->has_state() || segment.start == segment.cache->length(),
            "a segment starts before the end of a cache with recurrent state: truncate it first");
    for (size_t j = 0; j < i; ++j) {
      require(segments[j].cache != segment.cache, "two segments share a cache");
    }
    segment.cache->reserve(segment.start + segment.rows);
    segment.first_row = rows;
    rows += segment.rows;
    end = std::max(end, segment.start + segment.rows);
  }
  segments_ = std::move(segments);
  num_rows_ = rows;
  end_position_ = end;
}

void Batch::commit() {
  for (const Segment& segment : segments_) segment.cache->commit(segment.start + segment.rows);
}

Rope::Rope(int64_t rotated, std::vector<double> inv_freq, double scale, bool interleaved)
    : rotated_(rotated), inv_freq_(std::move(inv_freq)), scale_(scale), interleaved_(interleaved) {
  require(rotated_ >= 2 && rotated_ % 2 == 0, "rotated must be even and positive");
  require(static_cast<int64_t>(inv_freq_.size()) == rotated_ / 2,
          "inv_freq must have rotated / 2 values");
}

void Rope::ensure(int64_t positions) {
  if (positions <= positions_) return;
  // Doubling keeps a long conversation from rebuilding the tables at every step.
  const int64_t target = std::max(positions, std::max<int64_t>(256, 2 * positions_));
  cos_.resize(index(target));
  sin_.resize(index(target));
  for (int64_t p = positions_; p < target; ++p) {
    for (int64_t j = 0; j < rotated_ / 2; ++j) {
      const double angle = static_cast<double>(p) * inv_freq_[static_cast<size_t>(j)];
      const size_t i = index(p) + static_cast<size_t>(j);
      cos_[i] = static_cast<float>(std::cos(angle) * scale_);
      sin_[i] = static_cast<float>(std::sin(angle) * scale_);
    }
  }
  positions_ = target;
}

void rope_store(Rows& qkv, const Batch& batch, int64_t layer, Rope& rope, int64_t num_heads) {
  check_qkv(qkv, batch, layer, num_heads);
  rope.ensure(batch.end_position());
  const KernelTable& k = kernels();
  const auto rotate = rope.interleaved() ? k.rope_interleaved_row : k.rope_half_row;
  for (const Batch::Segment& segment : batch.segments()) {
    const int64_t kv_heads = segment.cache->layout(layer).num_kv_heads;
    const int64_t dim = segment.cache->layout(layer).head_dim;
    require(rope.rotated() <= dim, "rope rotates more channels than a head has");
    const KvLayerView view = segment.cache->view(layer);
    ThreadTeam::instance().run(segment.rows, kRopeGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t position = segment.start + r;
        float* row = qkv.row(segment.first_row + r);
        const int64_t rotated_heads = num_heads + kv_heads;
        for (int64_t h = 0; h < rotated_heads; ++h) {
          rotate(row + h * dim, rope.cos(position), rope.sin(position), rope.rotated());
        }
        const float* keys = row + num_heads * dim;
        const float* values = keys + kv_heads * dim;
        for (int64_t h = 0; h < kv_heads; ++h) {
          k.store_keys(view, h, position, keys + h * dim);
          k.store_values(view, h, position, values + h * dim);
        }
      }
    });
  }
}

void store_kv(const Rows& rows, const Batch& batch, int64_t layer, int64_t offset) {
  require(rows.rows() == batch.num_rows(), "the batch and the rows differ");
  const KernelTable& k = kernels();
  for (const Batch::Segment& segment : batch.segments()) {
    const int64_t heads = segment.cache->layout(layer).num_kv_heads;
    const int64_t dim = segment.cache->layout(layer).head_dim;
    require(offset >= 0 && offset <= rows.width() && 2 * heads * dim <= rows.width() - offset,
            "store_kv: keys and values lie outside the row");
    const KvLayerView view = segment.cache->view(layer);
    ThreadTeam::instance().run(segment.rows, kRopeGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* keys = rows.row(segment.first_row + r) + offset;
        for (int64_t h = 0; h < heads; ++h) {
          k.store_keys(view, h, segment.start + r, keys + h * dim);
          k.store_values(view, h, segment.start + r, keys + (heads + h) * dim);
        }
      }
    });
  }
}

void attention(const Rows& qkv, const Batch& batch, const AttentionCall& call, Rows& out) {
  static const AttentionOptions kPlain(0, {}, {nullptr, 0, 0}, {0.0, 0.0});
  const AttentionOptions& options = call.options == nullptr ? kPlain : *call.options;
  const int64_t num_heads = call.num_heads;
  check_qkv(qkv, batch, call.layer, num_heads, options.num_profiles());
  require(options.sinks().empty() || static_cast<int64_t>(options.sinks().size()) == num_heads,
          "attention: there must be one sink per query head");
  if (batch.segments().empty()) return;
  for (const Batch::Segment& segment : batch.segments()) {
    require(out.width() == num_heads * segment.cache->layout(call.layer).head_dim,
            "attention: out has the wrong width for a cache");
  }
  require(out.data() != qkv.data(), "attention: qkv and out are the same rows");
  out.set_rows(qkv.rows());
  static std::vector<Item> items;  // calls come from the one engine thread
  static std::vector<KvLayerView> views;
  items.clear();
  views.clear();
  for (const Batch::Segment& segment : batch.segments()) {
    add_items(items, segment, static_cast<int64_t>(views.size()),
              segment.cache->layout(call.layer).num_kv_heads, num_heads);
    views.push_back(segment.cache->view(call.layer));
  }
  const std::vector<float> scales = query_scales(batch, options);
  const int64_t mix_offset = qkv.width() - num_heads * options.num_profiles();
  const KernelTable& k = kernels();
  const auto count = static_cast<int64_t>(items.size());
  ThreadTeam::instance().run(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Item& item = items[static_cast<size_t>(i)];
      const Batch::Segment& segment = batch.segments()[static_cast<size_t>(item.segment)];
      const int64_t row = segment.first_row + item.row_begin;
      AttentionRange range{qkv.row(row),
                           out.row(row),
                           qkv.width(),
                           out.width(),
                           segment.start + item.row_begin,
                           item.row_end - item.row_begin,
                           item.head_begin,
                           item.head_end,
                           item.kv_head,
                           call.scale};
      add_options(range, options, scales.empty() ? nullptr : scales.data() + row,
                  qkv.row(row) + mix_offset);
      k.attention(views[static_cast<size_t>(item.segment)], range);
    }
  });
}

}  // namespace coli
