#include "ops/moe/moe.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/thread_team.h"
#include "ops/moe/gate.h"
#include "ops/moe/moe_step.h"

namespace coli {
namespace {

// Scratch grows to the largest step and is kept; calls come from the one engine thread.
struct Scratch {
  AlignedBuffer gate_up;
  AlignedBuffer hidden;
  InputScratch inputs;
  InputScratch inner;
};

Scratch& scratch() {
  static Scratch instance;
  return instance;
}

float* floats(AlignedBuffer& buffer, int64_t rows, int64_t width) {
  buffer.ensure(checked_mul(static_cast<size_t>(rows) * static_cast<size_t>(width), sizeof(float)));
  return buffer.as<float>();
}

}  // namespace

void gate_rows(const Expert& expert, const float* gate_up, int64_t rows, float* hidden) {
  const KernelTable& k = kernels();
  const int64_t width = expert.width();
  const int64_t grain = std::max<int64_t>(1, 8192 / width);
  ThreadTeam::instance().run(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* up = gate_up + (2 * r + 1) * width;
      if (expert.clamp()) {
        k.swiglu_clamped_row(up - width, up, width, *expert.clamp(), hidden + r * width);
      } else {
        k.swiglu_row(up - width, up, width, hidden + r * width);
      }
    }
  });
}

bool same_unit(const std::optional<SwigluClamp>& a, const std::optional<SwigluClamp>& b) {
  if (!a || !b) return !a && !b;
  return a->limit == b->limit && a->alpha == b->alpha;
}

Expert::Expert(std::shared_ptr<Linear> gate_up, std::shared_ptr<Linear> down,
               std::optional<SwigluClamp> clamp)
    : gate_up_(std::move(gate_up)), down_(std::move(down)), clamp_(clamp) {
  require(gate_up_ != nullptr && down_ != nullptr, "an expert needs gate_up and down");
  require(gate_up_->num_outputs() == 2 * down_->num_inputs(),
          "gate_up must have twice down's inputs as outputs");
  require(!clamp_ || (std::isfinite(clamp_->limit) && clamp_->limit > 0.0F &&
                      std::isfinite(clamp_->alpha) && clamp_->alpha > 0.0F),
          "an expert's clamp must be positive and finite");
}

ExpertTable::ExpertTable(std::vector<std::shared_ptr<Expert>> experts)
    : experts_(std::move(experts)) {
  require(!experts_.empty(), "a mixture needs at least one expert");
  for (const auto& expert : experts_) {
    require(expert != nullptr, "an expert is missing");
    const Expert& first = *experts_.front();
    require(expert->width() == first.width() &&
                expert->gate_up().num_inputs() == first.gate_up().num_inputs() &&
                expert->down().num_outputs() == first.down().num_outputs(),
            "experts of one layer differ in shape");
    require(expert->gate_up().numerics() == first.gate_up().numerics() &&
                expert->down().numerics() == first.down().numerics(),
            "experts of one layer differ in numerics");
    require(same_unit(expert->clamp(), first.clamp()),
            "experts of one layer differ in their gated unit");
    const Linear& gate_up = expert->gate_up();
    const Linear*& kept = gate_up.rotation() == nullptr ? plain_gate_up_ : rotated_gate_up_;
    if (kept == nullptr || gate_up.wants_quantized()) kept = &gate_up;
  }
}

void mlp(const Rows& x, const Expert& expert, Rows& out, bool add) {
  require(x.width() == expert.gate_up().num_inputs(), "mlp: x and gate_up differ in inputs");
  require(out.width() == expert.down().num_outputs(), "mlp: out and down differ in outputs");
  require(x.data() != out.data(), "mlp: x and out are the same rows");
  if (add) {
    require(out.rows() == x.rows(), "mlp: x and out differ in rows");
  } else {
    out.set_rows(x.rows());
  }
  Scratch& s = scratch();
  const int64_t rows = x.rows();
  const int64_t width = expert.width();
  float* gate_up = floats(s.gate_up, rows, 2 * width);
  float* hidden = floats(s.hidden, rows, width);

  const Activations input = s.inputs.prepare(expert.gate_up(), x.data(), x.width(), rows);
  multiply(expert.gate_up(), input, {gate_up, 2 * width, nullptr, false}, rows);
  gate_rows(expert, gate_up, rows, hidden);
  const Activations inner = s.inner.prepare(expert.down(), hidden, width, rows);
  multiply(expert.down(), inner, {out.data(), out.width(), nullptr, add}, rows);
}

void moe(const Rows& x, const ExpertTable& experts, const Choices& choices, Rows& out) {
  require(x.width() == experts.front().gate_up().num_inputs(), "moe: x and the experts differ");
  require(out.width() == experts.front().down().num_outputs(), "moe: out and the experts differ");
  require(out.rows() == x.rows(), "moe: x and out differ in rows");
  require(x.data() != out.data(), "moe: x and out are the same rows");
  static MoeStep step;  // calls come from the one engine thread
  step.begin(x, choices, experts.size(), {experts.plain_gate_up(), experts.rotated_gate_up()},
             experts.front());
  step.run_all(experts);
  step.end(out);
}

}  // namespace coli
