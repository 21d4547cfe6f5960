#include "ops/moe/topk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "dispatch.h"

namespace coli {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kSumFloor = 1e-20f;  // the published routers add this before dividing
// Below this a sigmoid is the exponential of its logit to the last bit, and sums of several may
// vanish: weights then come from the logits.
constexpr float kTinySum = 0x1p-60f;

// Scores of one row and the order in which its experts are taken.
struct RowState {
  RowState(int64_t experts, int64_t num_shared)
      : scores(static_cast<size_t>(experts)),
        selection(static_cast<size_t>(experts - num_shared)),
        order(static_cast<size_t>(experts - num_shared)) {}
  std::vector<float> scores;
  std::vector<float> selection;
  std::vector<int32_t> order;
};

// Keeps the groups whose two best experts sum highest; the others cannot be chosen.
void drop_groups(const RouterRule& rule, std::vector<float>& selection) {
  const auto groups = static_cast<size_t>(rule.num_groups);
  const size_t size = selection.size() / groups;
  std::vector<float> best(groups);
  std::vector<size_t> order(groups);
  for (size_t g = 0; g < groups; ++g) {
    float first = kLowest;
    float second = kLowest;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      if (selection[i] > first) {
        second = first;
        first = selection[i];
      } else if (selection[i] > second) {
        second = selection[i];
      }
    }
    best[g] = first + second;
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return best[a] > best[b]; });
  for (auto g = static_cast<size_t>(rule.kept_groups); g < groups; ++g) {
    const auto from = selection.begin() + static_cast<std::ptrdiff_t>(order[g] * size);
    std::fill(from, from + static_cast<std::ptrdiff_t>(size), kLowest);
  }
}

// Weights of a row that takes the shared experts too: shares of the sigmoids of all it takes.
void share(const RouterRule& rule, const float* logits, const RowState& state, int32_t* ids,
           float* weights) {
  const int64_t size = rule.row_size();
  const auto experts = static_cast<int64_t>(state.scores.size());
  float sum = 0.0f;
  for (int64_t j = 0; j < size; ++j) {
    if (j >= rule.num_choices) ids[j] = static_cast<int32_t>(experts - size + j);
    weights[j] = state.scores[static_cast<size_t>(ids[j])];
    sum += weights[j];
  }
  if (sum < kTinySum) {
    for (int64_t j = 0; j < size; ++j) weights[j] = logits[ids[j]];
    kernels().softmax_row(weights, size, weights);
    sum = 1.0f;
  }
  for (int64_t j = 0; j < size; ++j) weights[j] = weights[j] / sum * rule.scale;
}

// Ids of the rule's best experts, shared ones aside.
void choose(const RouterRule& rule, const float* bias, RowState& state, int32_t* ids) {
  const size_t experts = state.selection.size();
  for (size_t e = 0; e < experts; ++e) {
    const float value = bias == nullptr ? state.scores[e] : state.scores[e] + bias[e];
    state.selection[e] = std::isnan(value) ? kLowest : value;
  }
  if (rule.num_groups > 1) drop_groups(rule, state.selection);
  std::iota(state.order.begin(), state.order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float left = state.selection[static_cast<size_t>(a)];
    const float right = state.selection[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  };
  std::partial_sort(state.order.begin(), state.order.begin() + rule.num_choices, state.order.end(),
                    better);
  std::copy_n(state.order.begin(), rule.num_choices, ids);
}

// Weights of the experts a row chose.
void weigh(const RouterRule& rule, const RowState& state, const int32_t* ids, float* weights) {
  float sum = 0.0f;
  for (int64_t j = 0; j < rule.num_choices; ++j) {
    weights[j] = state.scores[static_cast<size_t>(ids[j])];
    sum += weights[j];
  }
  if (rule.scoring == Scoring::kTopSoftmax) {
    kernels().softmax_row(weights, rule.num_choices, weights);
    sum = 1.0f;
  }
  const float floor = rule.scoring == Scoring::kSigmoid ? kSumFloor : 0.0f;
  for (int64_t j = 0; j < rule.num_choices; ++j) {
    if (rule.normalize) weights[j] /= sum + floor;
    weights[j] *= rule.scale;
  }
}

}  // namespace

void check_rule(const RouterRule& rule, int64_t num_logits) {
  require(rule.num_shared >= 0 && rule.num_shared < num_logits,
          "route: num_shared must be 0..experts - 1");
  require(rule.num_shared == 0 || (rule.scoring == Scoring::kSigmoid && rule.normalize),
          "route: shared experts take part in normalized sigmoids only");
  const int64_t experts = num_logits - rule.num_shared;
  require(rule.num_choices >= 1 && rule.num_choices <= experts,
          "route: num_choices must be 1..experts");
  require(rule.num_groups >= 1 && experts % rule.num_groups == 0,
          "route: experts do not divide into groups");
  require(rule.kept_groups >= 1 && rule.kept_groups <= rule.num_groups,
          "route: kept_groups must be 1..num_groups");
  require(rule.num_groups == 1 || experts / rule.num_groups >= 2,
          "route: a group needs at least two experts");
  require(rule.num_choices <= experts / rule.num_groups * rule.kept_groups,
          "route: the kept groups have fewer experts than num_choices");
}

void route(const Rows& logits, const float* bias, const RouterRule& rule, int32_t* ids,
           float* weights) {
  const int64_t experts = logits.width();
  check_rule(rule, experts);
  const KernelTable& k = kernels();
  RowState state(experts, rule.num_shared);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const float* row = logits.row(r);
    switch (rule.scoring) {
      case Scoring::kSigmoid:
        k.sigmoid_row(row, experts, state.scores.data());
        break;
      case Scoring::kSoftmax:
        k.softmax_row(row, experts, state.scores.data());
        break;
      case Scoring::kTopSoftmax:
        std::copy_n(row, experts, state.scores.begin());
        break;
    }
    int32_t* row_ids = ids + r * rule.row_size();
    float* row_weights = weights + r * rule.row_size();
    choose(rule, bias, state, row_ids);
    if (rule.num_shared != 0) {
      share(rule, row, state, row_ids, row_weights);
    } else {
      weigh(rule, state, row_ids, row_weights);
    }
  }
}

}  // namespace coli
