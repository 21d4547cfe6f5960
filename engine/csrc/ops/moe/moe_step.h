// A mixture in parts: its chosen experts are computed in any order and in any split.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/rows.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"

namespace coli {

// The layers whose wishes decide in which forms a step's input is made: one without and one with
// rotation, null where no expert is of that kind.
struct StepInputs {
  const Linear* plain;
  const Linear* rotated;
};

// One step of a mixture, for experts that arrive one after the other: begin(), then run() until
// every expert that a row chose was computed, then end(). The result has the bits of moe() whatever
// came first and together with what, since each expert's product stands alone until end() sums a
// row's products in the order of its choices.
//
// Scratch grows to the largest step and is kept. One thread at a time.
class MoeStep {
 public:
  // Rows that chose the same expert: `begin` to `end` in the order of the experts' numbers.
  struct Group {
    int32_t expert;
    int32_t begin;
    int32_t end;
  };

  // Groups the rows of x by expert and makes the forms of x that `inputs` ask for; x must stay as
  // it is until the last run(). `like` is any expert of the layer. Throws std::out_of_range on a
  // choice outside of [0, num_experts), std::invalid_argument when x and `like` differ.
  void begin(const Rows& x, const Choices& choices, int64_t num_experts, const StepInputs& inputs,
             const Expert& like);

  // The experts that rows chose, ascending. Valid until the next begin().
  const std::vector<Group>& groups() const { return groups_; }

  // Computes some of the chosen experts, `experts[i]` having the number ids[i]. Throws
  // std::invalid_argument for one that nobody chose, that was computed before, or that is of
  // another shape than the layer's.
  void run(const int32_t* ids, const Expert* const* experts, int64_t count);

  // Computes all of the chosen experts at once.
  void run_all(const ExpertTable& experts);

  // out += each row's weighted experts, in the order of its choices. Throws std::invalid_argument
  // when an expert was not computed or out is of another shape.
  void end(Rows& out);

 private:
  struct Part {
    const Group* group;
    const Expert* expert;
    int32_t begin;  // of its rows among those of this run
  };

  void group_by_expert(const Choices& choices, int64_t rows, int64_t num_experts);
  void add_part(int64_t group, const Expert& expert);
  void check_like(const Expert& expert) const;
  void compute();

  template <typename Layer>
  void multiply_parts(const Layer& layer, bool is_target_of_all, const Activations& plain,
                      const Activations& rotated, const Target& target);
  void rotate_parts(float* hidden);

  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;  // expert -> its group, or -1
  std::vector<int32_t> next_;      // counts, then places, while grouping
  std::vector<bool> is_done_;      // by group
  int64_t num_left_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_choices_ = 0;
  int64_t width_ = 0;  // of an expert's inside
  int64_t num_outputs_ = 0;
  Numerics down_numerics_ = Numerics::kDefault;
  std::optional<SwigluClamp> clamp_;
  std::vector<float> weights_;     // by pair = row * num_choices + choice
  std::vector<int32_t> position_;  // pair -> place in expert order
  std::vector<int32_t> rows_of_;   // place in expert order -> row of x
  std::vector<Part> parts_;        // of the run in progress
  std::vector<int32_t> sources_;   // row of the run -> row of x
  std::vector<int32_t> run_rows_;  // place in expert order -> row of the run
  std::vector<float*> to_rotate_;
  Activations plain_{};
  Activations rotated_{};
  InputScratch plain_inputs_;
  InputScratch rotated_inputs_;
  QuantScratch hiddens_;
  AlignedBuffer gate_up_;
  AlignedBuffer hidden_;
  AlignedBuffer down_;
};

}  // namespace coli
