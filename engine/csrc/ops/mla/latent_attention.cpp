#include "ops/mla/latent_attention.h"

#include <algorithm>
#include <vector>

#include "core/kv_numbers.h"
#include "core/scratch_pool.h"
#include "core/thread_team.h"
#include "dispatch.h"
#include "ops/indexer/index_keys.h"
#include "ops/mla/latent_rows.h"
#include "ops/mla/mla.h"

namespace coli {
namespace {

constexpr int64_t kLaneWidth = 16;
// Lane groups that walk the cache together: their queries and sums fill half a megabyte. Fewer make
// less of a loaded latent: a quarter of the speed is lost with two, half of it with one.
constexpr int64_t kMostGroups = 4;
// Sets per thread from which they alone keep all threads busy to the end.
constexpr int64_t kSetsPerThread = 4;
constexpr size_t kMostSumsBytes = size_t{256} << 20;

// One row of the step and the keys it sees.
struct RowKeys {
  RowsView latents;
  const int32_t* list;  // null: positions 0, 1, ...
  int64_t count;

  int64_t num_segments() const { return (count + kMlaSegment - 1) / kMlaSegment; }
};

// The sizes all items share, and where rows are.
struct Step {
  Rows& absorbed;
  const Rows& q;
  int64_t num_heads;
  int64_t latent_dim;
  int64_t value_dim;
  float scale;
  std::vector<RowKeys> rows;
};

// Heads [head, head + lanes) of one row; those from num_heads on are padding.
struct HeadSet {
  int64_t row;
  int64_t head;
  MlaShape shape;
};

int64_t query_size(const MlaShape& shape) { return shape.dim * shape.lanes; }
int64_t state_size(const MlaShape& shape) { return (2 + shape.value_dim) * shape.lanes; }

// Floats that the latents of a softmax block are widened into, where they are not floats.
int64_t room_size(const Step& step) { return kSoftmaxBlock * step.latent_dim; }

// to[d * lanes] = from[d] for d < n, 16 heads at a time: `from` of lane i starts at i * stride.
void put_in_lanes(const float* from, int64_t stride, int64_t num_heads, int64_t n, int64_t lanes,
                  float* to) {
  for (int64_t begin = 0; begin < n; begin += kLaneWidth) {
    const int64_t end = std::min(n, begin + kLaneWidth);
    for (int64_t h = 0; h < num_heads; ++h) {
      const float* head = from + h * stride;
      for (int64_t d = begin; d < end; ++d) to[d * lanes + h] = head[d];
    }
    for (int64_t h = num_heads; h < lanes; ++h) {
      for (int64_t d = begin; d < end; ++d) to[d * lanes + h] = 0.0F;
    }
  }
}

// [dim][lanes] of a head set: the absorbed channels, then the rotated ones.
void pack_query(const Step& step, const HeadSet& set, float* to) {
  const int64_t num_heads = std::min(set.shape.lanes, step.num_heads - set.head);
  const int64_t rotated = step.latent_dim - step.value_dim;
  const int64_t head_width = step.q.width() / step.num_heads;
  put_in_lanes(step.absorbed.row(set.row) + set.head * step.value_dim, step.value_dim, num_heads,
               step.value_dim, set.shape.lanes, to);
  put_in_lanes(step.q.row(set.row) + (set.head + 1) * head_width - rotated, head_width, num_heads,
               rotated, set.shape.lanes, to + step.value_dim * set.shape.lanes);
}

void unpack_result(Step& step, const HeadSet& set, const float* state) {
  const float* o = state + 2 * set.shape.lanes;
  const int64_t num_heads = std::min(set.shape.lanes, step.num_heads - set.head);
  float* out = step.absorbed.row(set.row) + set.head * step.value_dim;
  for (int64_t begin = 0; begin < step.value_dim; begin += kLaneWidth) {
    const int64_t end = std::min(step.value_dim, begin + kLaneWidth);
    for (int64_t h = 0; h < num_heads; ++h) {
      for (int64_t c = begin; c < end; ++c) {
        out[h * step.value_dim + c] = o[c * set.shape.lanes + h];
      }
    }
  }
}

// `part` has the packed query, where the sums go, and room_size() floats.
void run_segment(const Step& step, const HeadSet& set, int64_t segment, MlaSegment part) {
  const RowKeys& keys = step.rows[static_cast<size_t>(set.row)];
  const int64_t begin = segment * kMlaSegment;
  part.list = keys.list == nullptr ? nullptr : keys.list + begin;
  part.first = begin;
  part.count = std::min(kMlaSegment, keys.count - begin);
  kernels().mla_segment(keys.latents, set.shape, part);
}

// Sets of `groups` lane groups of a row; the last may be smaller.
struct SetPlan {
  int64_t num_heads;
  int64_t groups;

  int64_t per_row() const { return (num_heads + width() - 1) / width(); }
  int64_t width() const { return groups * kLaneWidth; }
};

HeadSet nth_set(const Step& step, const SetPlan& plan, int64_t index) {
  const int64_t head = index % plan.per_row() * plan.width();
  const int64_t rest = (step.num_heads - head + kLaneWidth - 1) / kLaneWidth * kLaneWidth;
  const int64_t lanes = std::min(plan.width(), rest);
  return {index / plan.per_row(), head, {step.latent_dim, step.value_dim, lanes, step.scale}};
}

MlaShape widest(const Step& step, const SetPlan& plan) {
  return {step.latent_dim, step.value_dim, plan.width(), step.scale};
}

// Enough sets: each is one item from its first segment to its result.
void attend_by_sets(Step& step, const SetPlan& plan) {
  static ScratchPool pool;  // calls come from the one engine thread
  const int64_t q_size = query_size(widest(step, plan));
  const int64_t sums_size = state_size(widest(step, plan));
  pool.ensure(ThreadTeam::instance().size(),
              static_cast<size_t>(q_size + 2 * sums_size + room_size(step)));
  const KernelTable& k = kernels();
  const auto count = static_cast<int64_t>(step.rows.size()) * plan.per_row();
  ThreadTeam::instance().run(count, 1, [&](int64_t begin, int64_t end) {
    const ScratchPool::Lease scratch = pool.take();
    float* q = scratch.data();
    float* state = q + q_size;
    float* next = state + sums_size;
    float* room = next + sums_size;
    for (int64_t i = begin; i < end; ++i) {
      const HeadSet set = nth_set(step, plan, i);
      pack_query(step, set, q);
      run_segment(step, set, 0, {q, state, nullptr, 0, 0, room});
      const int64_t num_segments = step.rows[static_cast<size_t>(set.row)].num_segments();
      for (int64_t segment = 1; segment < num_segments; ++segment) {
        run_segment(step, set, segment, {q, next, nullptr, 0, 0, room});
        k.mla_join(set.shape, state, next);
      }
      k.mla_divide(set.shape, state);
      unpack_result(step, set, state);
    }
  });
}

// One segment of one set, and where its sums go.
struct Piece {
  int64_t set;
  int64_t segment;
};

// Too few sets for the threads: segments are items, joined afterwards in their order.
void attend_by_segments(Step& step, const SetPlan& plan) {
  static ScratchPool pool;
  static AlignedBuffer sums;
  static std::vector<Piece> pieces;
  static std::vector<int64_t> first_pieces;
  const auto num_sets = static_cast<int64_t>(step.rows.size()) * plan.per_row();
  pieces.clear();
  first_pieces.clear();
  for (int64_t set = 0; set < num_sets; ++set) {
    first_pieces.push_back(static_cast<int64_t>(pieces.size()));
    const RowKeys& keys = step.rows[static_cast<size_t>(set / plan.per_row())];
    for (int64_t segment = 0; segment < keys.num_segments(); ++segment) {
      pieces.push_back({set, segment});
    }
  }
  const int64_t sums_size = state_size(widest(step, plan));
  sums.ensure(checked_mul(pieces.size(), static_cast<size_t>(sums_size) * sizeof(float)));
  const int64_t q_size = query_size(widest(step, plan));
  pool.ensure(ThreadTeam::instance().size(), static_cast<size_t>(q_size + room_size(step)));
  const auto num_pieces = static_cast<int64_t>(pieces.size());
  ThreadTeam::instance().run(num_pieces, 1, [&](int64_t begin, int64_t end) {
    const ScratchPool::Lease scratch = pool.take();
    int64_t packed = -1;
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      const HeadSet set = nth_set(step, plan, piece.set);
      if (packed != piece.set) pack_query(step, set, scratch.data());
      packed = piece.set;
      float* q = scratch.data();
      float* state = sums.as<float>() + i * sums_size;
      run_segment(step, set, piece.segment, {q, state, nullptr, 0, 0, q + q_size});
    }
  });
  const KernelTable& k = kernels();
  ThreadTeam::instance().run(num_sets, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const HeadSet set = nth_set(step, plan, i);
      const int64_t first = first_pieces[static_cast<size_t>(i)];
      float* state = sums.as<float>() + first * sums_size;
      const int64_t num_segments = step.rows[static_cast<size_t>(set.row)].num_segments();
      for (int64_t segment = 1; segment < num_segments; ++segment) {
        k.mla_join(set.shape, state, state + segment * sums_size);
      }
      k.mla_divide(set.shape, state);
      unpack_result(step, set, state);
    }
  });
}

void attend(Step& step) {
  const int64_t threads = ThreadTeam::instance().size();
  const auto num_rows = static_cast<int64_t>(step.rows.size());
  SetPlan plan{step.num_heads, kMostGroups};
  plan.groups = std::min(plan.groups, (step.num_heads + kLaneWidth - 1) / kLaneWidth);
  int64_t num_segments = 0;
  for (const RowKeys& keys : step.rows) num_segments += keys.num_segments();
  const size_t sums_bytes = sizeof(float) * static_cast<size_t>(num_segments * plan.per_row()) *
                            static_cast<size_t>(state_size(widest(step, plan)));
  if (threads == 1 || num_rows * plan.per_row() >= kSetsPerThread * threads ||
      sums_bytes > kMostSumsBytes) {
    return attend_by_sets(step, plan);
  }
  while (plan.groups > 1 && num_segments * plan.per_row() < threads) {
    plan.groups = (plan.groups + 1) / 2;
  }
  attend_by_segments(step, plan);
}

void check_columns(const Rows& x, int64_t offset, int64_t width, const Batch& batch) {
  require(x.rows() == batch.num_rows(), "the batch and the rows differ");
  require(offset >= 0 && offset <= x.width() && width <= x.width() - offset,
          "the stored columns lie outside the rows");
}

}  // namespace

void latent_attention(Rows& absorbed, const Rows& q, const Batch& batch, int64_t layer,
                      const LatentHeads& heads, const Selection* selection) {
  const int64_t num_heads = heads.num_heads;
  require(absorbed.rows() == batch.num_rows() && q.rows() == batch.num_rows(),
          "latent_attention: the batch and the rows differ");
  require(num_heads >= 1 && absorbed.width() % num_heads == 0 && q.width() % num_heads == 0,
          "latent_attention: the rows are not num_heads heads wide");
  require(selection == nullptr || selection->rows() == batch.num_rows(),
          "latent_attention: the selection is of another step");
  if (batch.segments().empty()) return;
  const int64_t value_dim = absorbed.width() / num_heads;
  const int64_t latent_dim = batch.segments()[0].cache->layout(layer).latent_dim;
  Step step{absorbed, q, num_heads, latent_dim, value_dim, heads.scale, {}};
  for (const Batch::Segment& segment : batch.segments()) {
    const RowsView latents = segment.cache->latents(layer);
    require(latents.dim == latent_dim, "latent_attention: caches of different latents");
    require(value_dim <= latent_dim && latent_dim - value_dim <= q.width() / num_heads,
            "latent_attention: the heads do not fit the cached latents");
    for (int64_t r = 0; r < segment.rows; ++r) {
      const int64_t row = segment.first_row + r;
      const int64_t visible = segment.start + r + 1;
      if (selection == nullptr) {
        step.rows.push_back({latents, nullptr, visible});
      } else {
        step.rows.push_back({latents, selection->positions(row), selection->count(row, visible)});
      }
    }
  }
  attend(step);
}

void store_latents(const Rows& x, int64_t offset, const Batch& batch, int64_t layer) {
  for (const Batch::Segment& segment : batch.segments()) {
    const RowsView view = segment.cache->latents(layer);
    check_columns(x, offset, view.dim, batch);
    for (int64_t r = 0; r < segment.rows; ++r) {
      const int64_t position = segment.start + r;
      put_numbers(view.type, latent_block(view, position), latent_at(view, position), 1, view.dim,
                  x.row(segment.first_row + r) + offset);
    }
  }
}

void store_index_keys(const Rows& x, int64_t offset, const Batch& batch, int64_t layer) {
  for (const Batch::Segment& segment : batch.segments()) {
    const RowsView view = segment.cache->index_keys(layer);
    check_columns(x, offset, view.dim, batch);
    for (int64_t r = 0; r < segment.rows; ++r) {
      const int64_t position = segment.start + r;
      const int64_t lane = position % kKeyBlock;
      put_numbers(view.type, index_block(view, position),
                  index_key_at(view, position - lane) + lane, kKeyBlock, view.dim,
                  x.row(segment.first_row + r) + offset);
    }
  }
}

}  // namespace coli
