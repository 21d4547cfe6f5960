// Gated feed-forward blocks: one for all rows, or a mixture of experts chosen per row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/rows.h"
#include "ops/linear/linear.h"

namespace coli {

// down(silu(gate x) * up x), or with clamps the gated unit of swiglu_clamped_row. gate_up gives
// gate's outputs, then up's.
class Expert {
 public:
  // Throws std::invalid_argument when the two layers do not fit each other, or on a clamp that is
  // not positive and finite.
  Expert(std::shared_ptr<Linear> gate_up, std::shared_ptr<Linear> down,
         std::optional<SwigluClamp> clamp = std::nullopt);

  const Linear& gate_up() const { return *gate_up_; }
  const Linear& down() const { return *down_; }
  int64_t width() const { return down_->num_inputs(); }
  const std::optional<SwigluClamp>& clamp() const { return clamp_; }

 private:
  std::shared_ptr<Linear> gate_up_;
  std::shared_ptr<Linear> down_;
  std::optional<SwigluClamp> clamp_;
};

// The experts of one layer: all of one geometry, so that a step can treat them alike.
class ExpertTable {
 public:
  // Throws std::invalid_argument when an expert is missing or differs from the first.
  explicit ExpertTable(std::vector<std::shared_ptr<Expert>> experts);

  int64_t size() const { return static_cast<int64_t>(experts_.size()); }
  const Expert& operator[](int64_t i) const { return *experts_[static_cast<size_t>(i)]; }
  const Expert& front() const { return *experts_.front(); }
  // A layer that wants its input in every form that any gate_up without, or with, rotation wants;
  // null where there is none.
  const Linear* plain_gate_up() const { return plain_gate_up_; }
  const Linear* rotated_gate_up() const { return rotated_gate_up_; }

 private:
  std::vector<std::shared_ptr<Expert>> experts_;
  const Linear* plain_gate_up_ = nullptr;
  const Linear* rotated_gate_up_ = nullptr;
};

// out = expert(x), added to `out` when `add` is set.
void mlp(const Rows& x, const Expert& expert, Rows& out, bool add);

// What the router chose: num_choices experts for each row, with their weights.
struct Choices {
  const int32_t* ids;    // (rows, num_choices)
  const float* weights;  // (rows, num_choices)
  int64_t num_choices;
};

// out += sum over a row's choices j = 0, 1, ... of weight_j * expert_j(x), summed in that order
// whichever expert was computed first. Throws std::out_of_range on an id outside the table.
void moe(const Rows& x, const ExpertTable& experts, const Choices& choices, Rows& out);

}  // namespace coli
