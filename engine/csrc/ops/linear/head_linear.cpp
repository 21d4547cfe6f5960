#include "ops/linear/head_linear.h"

#include <algorithm>
#include <utility>

#include "core/scratch_pool.h"
#include "core/thread_team.h"
#include "dispatch.h"

namespace coli {
namespace {

constexpr int64_t kRowPanel = 64;
constexpr int64_t kLineFloats = 16;

int64_t whole_lines(int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// Where the quantized rows of a panel lie within its scratch, in floats.
struct QuantPlan {
  int64_t padded;
  int64_t scales_per_row;
  int64_t scales_at;
  int64_t sums_at;
  int64_t size;

  QuantPlan(int64_t rows, int64_t num_inputs, Numerics numerics)
      : padded((num_inputs + kInputPad - 1) / kInputPad * kInputPad),
        scales_per_row(padded / (numerics == Numerics::kFast ? 32 : 64)),
        scales_at(whole_lines(rows * padded / 2)),
        sums_at(scales_at + whole_lines(rows * scales_per_row)),
        size(sums_at + whole_lines(rows * padded / kSumGroup)) {}
};

}  // namespace

// Rows of one item: where its inputs and outputs lie, and memory for what becomes of them.
struct HeadLinear::Panel {
  const float* x;
  int64_t ldx;
  float* y;
  int64_t ldy;
  int64_t rows;
  float* scratch;
};

HeadLinear::HeadLinear(std::vector<std::shared_ptr<Matrix>> heads, std::vector<float> input_scales,
                       int64_t scale_outputs, Numerics numerics)
    : heads_(std::move(heads)),
      input_scales_(std::move(input_scales)),
      scale_outputs_(scale_outputs),
      numerics_(numerics) {
  require(!heads_.empty(), "a layer by heads needs at least one matrix");
  for (const auto& head : heads_) {
    require(head != nullptr, "a head of a layer is missing");
    require(head->num_inputs() == num_inputs() && head->num_outputs() == num_outputs(),
            "the heads of a layer differ in size");
    require(head->rotation() == nullptr, "a head of a layer is rotated");
  }
  if (input_scales_.empty()) return;
  require(scale_outputs_ >= kTile && scale_outputs_ % kTile == 0,
          "outputs with the same input scales come in multiples of 16");
  require(static_cast<int64_t>(input_scales_.size()) == num_heads() * num_runs() * num_inputs(),
          "input scales must be (heads, runs of outputs, inputs)");
  for (const auto& head : heads_) {
    require(head->is_integer(), "input scales are for matrices of integers");
  }
}

size_t HeadLinear::nbytes() const {
  size_t total = input_scales_.size() * sizeof(float);
  for (const auto& head : heads_) total += head->nbytes();
  return total;
}

int64_t HeadLinear::num_runs() const {
  return input_scales_.empty() ? 1 : (num_outputs() + scale_outputs_ - 1) / scale_outputs_;
}

size_t HeadLinear::scratch_floats(int64_t rows) const {
  const int64_t scaled = whole_lines(rows * num_inputs());
  return static_cast<size_t>(scaled + QuantPlan(rows, num_inputs(), numerics_).size);
}

void HeadLinear::multiply(int64_t head, const Panel& panel) const {
  for (int64_t run = 0; run < num_runs(); ++run) multiply_run(head, run, panel);
}

void HeadLinear::multiply_run(int64_t head, int64_t run, const Panel& panel) const {
  const KernelTable& k = kernels();
  const Matrix& matrix = *heads_[static_cast<size_t>(head)];
  FloatRows x{panel.x, panel.ldx};
  int64_t tile_end = matrix.num_tiles();
  int64_t tile_begin = 0;
  float* free = panel.scratch;
  if (!input_scales_.empty()) {
    tile_begin = run * scale_outputs_ / kTile;
    tile_end = std::min(tile_end, tile_begin + scale_outputs_ / kTile);
    const float* scales = input_scales_.data() + (head * num_runs() + run) * num_inputs();
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t i = 0; i < num_inputs(); ++i) {
        free[r * num_inputs() + i] = panel.x[r * panel.ldx + i] * scales[i];
      }
    }
    x = {free, num_inputs()};
    free += whole_lines(panel.rows * num_inputs());
  }
  const MatmulRange range{tile_begin, tile_end, 0,         panel.rows, nullptr,
                          nullptr,    panel.y,  panel.ldy, 0};
  if (!matrix.is_integer()) {
    k.matmul_float(matrix.as_float(), x, range);
  } else if (numerics_ == Numerics::kFloat) {
    k.matmul_int_float(matrix.as_int(), x, range);
  } else {
    const QuantPlan plan(panel.rows, num_inputs(), numerics_);
    auto* data = reinterpret_cast<uint8_t*>(free);
    float* scales = free + plan.scales_at;
    auto* sums = reinterpret_cast<int32_t*>(free + plan.sums_at);
    for (int64_t r = 0; r < panel.rows; ++r) {
      k.quantize_row(x.x + r * x.ldx, num_inputs(), plan.padded, numerics_,
                     data + r * plan.padded * 2, scales + r * plan.scales_per_row,
                     sums + r * plan.padded / kSumGroup);
    }
    k.matmul_int(matrix.as_int(), {data, scales, sums, plan.padded, numerics_}, range);
  }
}

void head_linear(const Rows& x, int64_t offset, const HeadLinear& layer, Rows& out) {
  const int64_t num_heads = layer.num_heads();
  require(x.width() % num_heads == 0, "head_linear: x is not num_heads heads wide");
  const int64_t width = x.width() / num_heads;
  require(offset >= 0 && offset <= width && layer.num_inputs() <= width - offset,
          "head_linear: the inputs lie outside a head");
  require(out.width() == num_heads * layer.num_outputs(),
          "head_linear: out and the layer differ in outputs");
  require(x.data() != out.data(), "head_linear: x and out are the same rows");
  out.set_rows(x.rows());
  static ScratchPool pool;  // calls come from the one engine thread
  pool.ensure(ThreadTeam::instance().size(), layer.scratch_floats(std::min(kRowPanel, x.rows())));
  const int64_t panels = (x.rows() + kRowPanel - 1) / kRowPanel;
  ThreadTeam::instance().run(num_heads * panels, 1, [&](int64_t begin, int64_t end) {
    const ScratchPool::Lease scratch = pool.take();
    for (int64_t item = begin; item < end; ++item) {
      const int64_t head = item / panels;
      const int64_t row = item % panels * kRowPanel;
      layer.multiply(head, {x.row(row) + head * width + offset, x.width(),
                            out.row(row) + head * layer.num_outputs(), out.width(),
                            std::min(kRowPanel, x.rows() - row), scratch.data()});
    }
  });
}

}  // namespace coli
