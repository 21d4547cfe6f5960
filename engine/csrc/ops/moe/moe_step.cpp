#include "ops/moe/moe_step.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/thread_team.h"
#include "ops/moe/gate.h"

namespace coli {
namespace {

// An expert's product is handed out in pieces of this many tiles.
constexpr int64_t kItemTiles = 4;

float* floats(AlignedBuffer& buffer, int64_t rows, int64_t width) {
  buffer.ensure(checked_mul(checked_mul(static_cast<size_t>(rows), static_cast<size_t>(width)),
                            sizeof(float)));
  return buffer.as<float>();
}

}  // namespace

void MoeStep::begin(const Rows& x, const Choices& choices, int64_t num_experts,
                    const StepInputs& inputs, const Expert& like) {
  require(x.width() == like.gate_up().num_inputs(), "moe: x and the experts differ");
  num_left_ = 0;  // until all of this has succeeded
  num_rows_ = x.rows();
  num_choices_ = choices.num_choices;
  width_ = like.width();
  num_outputs_ = like.down().num_outputs();
  down_numerics_ = like.down().numerics();
  clamp_ = like.clamp();
  group_by_expert(choices, num_rows_, num_experts);
  const int64_t pairs = num_rows_ * num_choices_;
  weights_.assign(choices.weights, choices.weights + pairs);
  floats(down_, pairs, num_outputs_);
  plain_ = {};
  rotated_ = {};
  if (inputs.plain != nullptr) {
    plain_ = plain_inputs_.prepare(*inputs.plain, x.data(), x.width(), num_rows_);
  }
  if (inputs.rotated != nullptr) {
    rotated_ = rotated_inputs_.prepare(*inputs.rotated, x.data(), x.width(), num_rows_);
  }
  is_done_.assign(groups_.size(), false);
  num_left_ = static_cast<int64_t>(groups_.size());
}

void MoeStep::group_by_expert(const Choices& choices, int64_t rows, int64_t num_experts) {
  const auto pairs = static_cast<size_t>(rows * choices.num_choices);
  const auto count = static_cast<size_t>(num_experts);
  groups_.clear();
  next_.assign(count + 1, 0);
  for (size_t p = 0; p < pairs; ++p) {
    const int32_t id = choices.ids[p];
    if (id < 0 || id >= num_experts) {
      throw std::out_of_range("expert " + std::to_string(id) + " is outside 0.." +
                              std::to_string(num_experts - 1));
    }
    ++next_[static_cast<size_t>(id) + 1];
  }
  group_of_.assign(count, -1);
  for (size_t e = 0; e < count; ++e) {
    if (next_[e + 1] != 0) {
      group_of_[e] = static_cast<int32_t>(groups_.size());
      groups_.push_back({static_cast<int32_t>(e), next_[e], next_[e] + next_[e + 1]});
    }
    next_[e + 1] += next_[e];
  }
  rows_of_.resize(pairs);
  position_.resize(pairs);
  for (size_t p = 0; p < pairs; ++p) {
    const int32_t place = next_[static_cast<size_t>(choices.ids[p])]++;
    rows_of_[static_cast<size_t>(place)] =
        static_cast<int32_t>(static_cast<int64_t>(p) / choices.num_choices);
    position_[p] = place;
  }
}

void MoeStep::check_like(const Expert& expert) const {
  require(expert.width() == width_ && expert.down().num_outputs() == num_outputs_ &&
              expert.down().numerics() == down_numerics_ && same_unit(expert.clamp(), clamp_),
          "moe: an expert is not like the others of its layer");
  const Linear& gate_up = expert.gate_up();
  const Activations& input = gate_up.rotation() == nullptr ? plain_ : rotated_;
  require(input.floats.x != nullptr &&
              (!gate_up.wants_quantized() ||
               (input.quantized.data != nullptr && input.quantized.numerics == gate_up.numerics())),
          "moe: an expert wants its input in another form than the others of its layer");
}

void MoeStep::add_part(int64_t group, const Expert& expert) {
  const Group& chosen = groups_[static_cast<size_t>(group)];
  const int32_t begin =
      parts_.empty() ? 0
                     : parts_.back().begin + parts_.back().group->end - parts_.back().group->begin;
  parts_.push_back({&chosen, &expert, begin});
}

void MoeStep::run(const int32_t* ids, const Expert* const* experts, int64_t count) {
  parts_.clear();
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids[i];
    const int32_t group = id < 0 || id >= static_cast<int64_t>(group_of_.size())
                              ? -1
                              : group_of_[static_cast<size_t>(id)];
    if (group < 0 || num_left_ == 0) {
      throw std::invalid_argument("moe: no row chose expert " + std::to_string(id));
    }
    for (const Part& part : parts_) {
      require(part.group->expert != id, "moe: an expert is given twice");
    }
    if (is_done_[static_cast<size_t>(group)]) {
      throw std::invalid_argument("moe: expert " + std::to_string(id) + " is computed already");
    }
    check_like(*experts[i]);
    add_part(group, *experts[i]);
  }
  compute();
}

void MoeStep::run_all(const ExpertTable& experts) {
  parts_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    add_part(static_cast<int64_t>(g), experts[groups_[g].expert]);
  }
  compute();
}

// One product of every expert of the run over its own rows, all in one parallel region. Rows are
// those of the run, or, where the target is that of the whole step, those of all chosen experts.
template <typename Layer>
void MoeStep::multiply_parts(const Layer& layer, bool is_target_of_all, const Activations& plain,
                             const Activations& rotated, const Target& target) {
  struct Item {
    const Part* part;
    const Linear* linear;
    int64_t tile;
  };
  static std::vector<Item> items;
  items.clear();
  for (const Part& part : parts_) {
    const Linear& linear = layer(*part.expert);
    for (int64_t tile = 0; tile < linear.num_tiles(); tile += kItemTiles) {
      items.push_back({&part, &linear, tile});
    }
  }
  const Item* list = items.data();
  ThreadTeam::instance().run(
      static_cast<int64_t>(items.size()), 1, [&, list](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          // Neighbouring items of one expert become one product: longer streams of weights.
          const Item& first = list[i];
          while (i < end && list[i].part == first.part) ++i;
          const Linear& linear = *first.linear;
          const Group& group = *first.part->group;
          const int64_t row = is_target_of_all ? group.begin : first.part->begin;
          multiply_tiles(linear,
                         {first.tile, std::min(linear.num_tiles(), list[i - 1].tile + kItemTiles),
                          row, row + group.end - group.begin},
                         linear.rotation() == nullptr ? plain : rotated, target);
        }
      });
}

// Rotates, in place, the rows that go into a rotated down projection.
void MoeStep::rotate_parts(float* hidden) {
  to_rotate_.clear();
  for (const Part& part : parts_) {
    if (part.expert->down().rotation() == nullptr) continue;
    const int64_t rows = part.group->end - part.group->begin;
    for (int64_t r = 0; r < rows; ++r) to_rotate_.push_back(hidden + (part.begin + r) * width_);
  }
  if (to_rotate_.empty()) return;
  const std::shared_ptr<const Rotation> rotation = Rotation::of(width_);
  float* const* list = to_rotate_.data();
  ThreadTeam::instance().run(static_cast<int64_t>(to_rotate_.size()), 1,
                             [&, list](int64_t begin, int64_t end) {
                               for (int64_t i = begin; i < end; ++i) {
                                 rotation->apply(list[i], list[i]);
                               }
                             });
}

void MoeStep::compute() {
  if (parts_.empty()) return;
  const Part& last = parts_.back();
  const int64_t rows = last.begin + last.group->end - last.group->begin;
  float* gate_up = floats(gate_up_, rows, 2 * width_);
  float* hidden = floats(hidden_, rows, width_);
  // Where a run holds everything in the step's own order nothing has to be looked up.
  const bool is_whole = rows == num_rows_ * num_choices_ &&
                        std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
                          return part.begin == part.group->begin;
                        });
  const int32_t* sources = rows_of_.data();
  if (!is_whole) {
    sources_.resize(static_cast<size_t>(rows));
    run_rows_.resize(position_.size());
    for (const Part& part : parts_) {
      for (int32_t place = part.group->begin; place < part.group->end; ++place) {
        const int32_t row = part.begin + place - part.group->begin;
        sources_[static_cast<size_t>(row)] = rows_of_[static_cast<size_t>(place)];
        run_rows_[static_cast<size_t>(place)] = row;
      }
    }
    sources = sources_.data();
  }
  multiply_parts([](const Expert& e) -> const Linear& { return e.gate_up(); }, false, plain_,
                 rotated_, {gate_up, 2 * width_, sources, false});
  gate_rows(*parts_.front().expert, gate_up, rows, hidden);
  rotate_parts(hidden);
  Activations inner{{hidden, width_}, {}};
  if (std::any_of(parts_.begin(), parts_.end(),
                  [](const Part& part) { return part.expert->down().wants_quantized(); })) {
    inner.quantized = hiddens_.quantize(hidden, width_, rows, width_, down_numerics_);
  }
  multiply_parts([](const Expert& e) -> const Linear& { return e.down(); }, true, inner, inner,
                 {down_.as<float>(), num_outputs_, is_whole ? nullptr : run_rows_.data(), false});
  for (const Part& part : parts_) {
    is_done_[static_cast<size_t>(part.group - groups_.data())] = true;
  }
  num_left_ -= static_cast<int64_t>(parts_.size());
}

void MoeStep::end(Rows& out) {
  require(out.width() == num_outputs_, "moe: out and the experts differ in outputs");
  require(out.rows() == num_rows_, "moe: x and out differ in rows");
  if (num_left_ != 0) {
    throw std::invalid_argument("moe: " + std::to_string(num_left_) +
                                " chosen experts are not computed yet");
  }
  const float* down = down_.as<float>();
  const KernelTable& k = kernels();
  ThreadTeam::instance().run(num_rows_, 4, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin * num_choices_; pair < end * num_choices_; ++pair) {
      const auto p = static_cast<size_t>(pair);
      k.axpy_row(weights_[p], down + position_[p] * num_outputs_, num_outputs_,
                 out.row(pair / num_choices_));
    }
  });
}

}  // namespace coli
