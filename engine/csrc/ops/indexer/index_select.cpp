#include "ops/indexer/index_select.h"

#include <algorithm>
#include <vector>

#include "core/scratch_pool.h"
#include "core/thread_team.h"
#include "dispatch.h"
#include "ops/indexer/choose.h"
#include "ops/indexer/indexer.h"

namespace coli {
namespace {

// Positions whose scores are one item where there are fewer rows than threads.
constexpr int64_t kSpan = 4096;
constexpr int64_t kRowsPerThread = 2;

// A row that has more positions than it may attend to.
struct RowChoice {
  int64_t row;
  RowsView keys;
  int64_t visible;
};

int64_t padded(int64_t positions) { return (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

// The query of a row; its weights, times the common scale, go to `scaled`.
IndexQuery query_of(const Rows& q, const Rows& weights, const IndexHeads& heads, int64_t row,
                    float* scaled) {
  const float* from = weights.row(row) + heads.weights_offset;
  for (int64_t h = 0; h < heads.num_heads; ++h) scaled[h] = from[h] * heads.scale;
  return {q.row(row), scaled, heads.num_heads};
}

void choose(const RowChoice& choice, const float* scores, Selection& selection) {
  const int64_t count = std::min(selection.topk(), choice.visible);
  choose_largest(scores, choice.visible, count, selection.list(choice.row));
  selection.set_count(choice.row, count);
}

// Scratch of one row: its scaled weights, then its scores.
struct RowScratch {
  int64_t weights;
  int64_t scores;

  int64_t size() const { return weights + scores; }
};

void choose_by_rows(const Rows& q, const Rows& weights, const IndexHeads& heads,
                    const std::vector<RowChoice>& choices, const RowScratch& sizes,
                    Selection& selection) {
  static ScratchPool pool;  // calls come from the one engine thread
  pool.ensure(ThreadTeam::instance().size(), static_cast<size_t>(sizes.size()));
  const auto count = static_cast<int64_t>(choices.size());
  ThreadTeam::instance().run(count, 1, [&](int64_t begin, int64_t end) {
    const ScratchPool::Lease scratch = pool.take();
    float* scores = scratch.data() + sizes.weights;
    for (int64_t i = begin; i < end; ++i) {
      const RowChoice& choice = choices[static_cast<size_t>(i)];
      const IndexQuery query = query_of(q, weights, heads, choice.row, scratch.data());
      kernels().index_scores(choice.keys, query, 0, choice.visible, scores);
      choose(choice, scores, selection);
    }
  });
}

// Few rows, many positions: the threads share the positions of each.
void choose_by_spans(const Rows& q, const Rows& weights, const IndexHeads& heads,
                     const std::vector<RowChoice>& choices, const RowScratch& sizes,
                     Selection& selection) {
  static AlignedBuffer buffer;
  const auto num_rows = static_cast<int64_t>(choices.size());
  buffer.ensure(static_cast<size_t>(num_rows * sizes.size()) * sizeof(float));
  float* scratch = buffer.as<float>();
  for (int64_t i = 0; i < num_rows; ++i) {
    query_of(q, weights, heads, choices[static_cast<size_t>(i)].row, scratch + i * sizes.size());
  }
  const int64_t spans = (sizes.scores + kSpan - 1) / kSpan;
  ThreadTeam::instance().run(num_rows * spans, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const RowChoice& choice = choices[static_cast<size_t>(i / spans)];
      float* row = scratch + i / spans * sizes.size();
      const int64_t first = i % spans * kSpan;
      const int64_t last = std::min(choice.visible, first + kSpan);
      if (first >= last) continue;
      const IndexQuery query{q.row(choice.row), row, heads.num_heads};
      kernels().index_scores(choice.keys, query, first, last, row + sizes.weights + first);
    }
  });
  ThreadTeam::instance().run(num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      choose(choices[static_cast<size_t>(i)], scratch + i * sizes.size() + sizes.weights,
             selection);
    }
  });
}

void check_widths(const Rows& q, const Rows& weights, const Batch& batch, const IndexHeads& heads) {
  require(q.rows() == batch.num_rows() && weights.rows() == batch.num_rows(),
          "index_select: the batch and the rows differ");
  require(heads.num_heads >= 1 && heads.weights_offset >= 0 &&
              heads.weights_offset <= weights.width() &&
              heads.num_heads <= weights.width() - heads.weights_offset,
          "index_select: the head weights lie outside the rows");
}

}  // namespace

void index_select(const Rows& q, const Rows& weights, const Batch& batch, int64_t layer,
                  const IndexHeads& heads, Selection& selection) {
  check_widths(q, weights, batch, heads);
  selection.reset(batch.num_rows());
  std::vector<RowChoice> choices;
  int64_t most = 0;
  for (const Batch::Segment& segment : batch.segments()) {
    const RowsView keys = segment.cache->index_keys(layer);
    require(q.width() / heads.num_heads == keys.dim && q.width() % heads.num_heads == 0,
            "index_select: the heads do not fit the cached index keys");
    for (int64_t r = 0; r < segment.rows; ++r) {
      const int64_t visible = segment.start + r + 1;
      if (!selection.lists(visible)) continue;
      choices.push_back({segment.first_row + r, keys, visible});
      most = std::max(most, visible);
    }
  }
  if (choices.empty()) return;
  selection.make_lists();
  const RowScratch sizes{padded(heads.num_heads), padded(most)};
  if (static_cast<int64_t>(choices.size()) < kRowsPerThread * ThreadTeam::instance().size()) {
    choose_by_spans(q, weights, heads, choices, sizes, selection);
  } else {
    choose_by_rows(q, weights, heads, choices, sizes, selection);
  }
}

}  // namespace coli
