// The router's choice: which experts a row goes to, and with what weight.
#pragma once

#include <cstdint>

#include "core/rows.h"

namespace coli {

// kTopSoftmax: the logits choose, and the weights are the softmax over the chosen ones alone.
enum class Scoring : int32_t { kSigmoid = 0, kSoftmax = 1, kTopSoftmax = 2 };

// Source: docs/numerics.md, "Router".
struct RouterRule {
  Scoring scoring;
  int64_t num_choices;
  bool normalize;  // weights of a row sum to `scale`
  float scale;
  int64_t num_groups;  // experts come in groups, of which the best `kept_groups` take part
  int64_t kept_groups;
  int64_t num_shared = 0;  // the last experts, which every row takes, after those it chooses

  int64_t row_size() const { return num_choices + num_shared; }
};

// Throws std::invalid_argument when the rule does not fit this many experts.
void check_rule(const RouterRule& rule, int64_t num_experts);

// logits (rows, experts) -> ids and weights (rows, rule.row_size()), best first, ties to the lower
// id, then the shared. `bias` (a value for each expert but the shared, or null) moves the selection,
// never the weights. NaN counts as the lowest score. Throws std::invalid_argument on a rule that does not fit the experts.
void route(const Rows& logits, const float* bias, const RouterRule& rule, int32_t* ids,
           float* weights);

}  // namespace coli
