#include "ops/linear/linear.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/thread_team.h"

namespace coli {
namespace {

// Reading the weights of two tiles takes about a microsecond: less is not worth handing over.
constexpr int64_t kTileGrain = 2;
// Many rows are bound by arithmetic: a block's weights stay in the first-level cache while a panel
// of rows passes. Long panels read them less often, short ones give every thread its share.
constexpr int64_t kManyRows = 8;
constexpr int64_t kBlockTiles = 4;
constexpr int64_t kMinPanel = 64;
constexpr int64_t kMaxPanel = 512;
constexpr int64_t kItemsPerThread = 4;

}  // namespace

Linear::Linear(std::vector<std::shared_ptr<Matrix>> parts, std::vector<float> bias,
               Numerics numerics)
    : parts_(std::move(parts)), bias_(std::move(bias)), numerics_(numerics) {
  require(!parts_.empty(), "a linear layer needs at least one matrix");
  first_tiles_.push_back(0);
  for (const auto& part : parts_) {
    require(part != nullptr, "a part of a linear layer is missing");
    require(part->num_inputs() == num_inputs(), "parts of a linear layer differ in inputs");
    require(part->rotation() == rotation(), "only some parts of a linear layer are rotated");
    first_outputs_.push_back(num_outputs_);
    first_tiles_.push_back(first_tiles_.back() + part->num_tiles());
    num_outputs_ += part->num_outputs();
    wants_quantized_ |= part->is_integer() && numerics_ != Numerics::kFloat;
  }
  require(bias_.empty() || static_cast<int64_t>(bias_.size()) == num_outputs_,
          "bias and outputs differ in length");
}

size_t Linear::nbytes() const {
  size_t total = bias_.size() * sizeof(float);
  for (const auto& part : parts_) total += part->nbytes();
  return total;
}

QuantRows QuantScratch::quantize(const float* x, int64_t ldx, int64_t num_rows, int64_t num_inputs,
                                 Numerics numerics) {
  const int64_t padded = (num_inputs + kInputPad - 1) / kInputPad * kInputPad;
  const int64_t scales_per_row = padded / (numerics == Numerics::kFast ? 32 : 64);
  const int64_t sums_per_row = padded / kSumGroup;
  const auto rows = static_cast<size_t>(num_rows);
  data_.ensure(rows * static_cast<size_t>(padded) * 2);
  scales_.ensure(rows * static_cast<size_t>(scales_per_row) * sizeof(float));
  sums_.ensure(rows * static_cast<size_t>(sums_per_row) * sizeof(int32_t));
  const KernelTable& k = kernels();
  ThreadTeam::instance().run(num_rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      k.quantize_row(x + r * ldx, num_inputs, padded, numerics, data_.data() + r * padded * 2,
                     scales_.as<float>() + r * scales_per_row,
                     sums_.as<int32_t>() + r * sums_per_row);
    }
  });
  return {data_.data(), scales_.as<float>(), sums_.as<int32_t>(), padded, numerics};
}

void rotate_rows(const Rotation& rotation, const float* x, int64_t ldx, int64_t num_rows,
                 float* out, int64_t ldo) {
  ThreadTeam::instance().run(num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) rotation.apply(x + r * ldx, out + r * ldo);
  });
}

Activations InputScratch::prepare(const Linear& layer, const float* x, int64_t ldx,
                                  int64_t num_rows) {
  const int64_t width = layer.num_inputs();
  if (layer.rotation() != nullptr) {
    rotated_.ensure(checked_mul(
        checked_mul(static_cast<size_t>(num_rows), static_cast<size_t>(width)), sizeof(float)));
    rotate_rows(*layer.rotation(), x, ldx, num_rows, rotated_.as<float>(), width);
    x = rotated_.as<float>();
    ldx = width;
  }
  Activations input{{x, ldx}, {}};
  if (layer.wants_quantized()) {
    input.quantized = quantized_.quantize(x, ldx, num_rows, width, layer.numerics());
  }
  return input;
}

void multiply_tiles(const Linear& layer, const TileRange& tiles, const Activations& input,
                    const Target& target) {
  const KernelTable& k = kernels();
  for (size_t p = 0; p < layer.parts_.size(); ++p) {
    const int64_t first = layer.first_tiles_[p];
    const int64_t begin = std::max(tiles.tile_begin, first);
    const int64_t end = std::min(tiles.tile_end, layer.first_tiles_[p + 1]);
    if (begin >= end) continue;
    const Matrix& part = *layer.parts_[p];
    const int64_t output = layer.first_outputs_[p];
    const MatmulRange range{
        begin - first,     end - first,
        tiles.row_begin,   tiles.row_end,
        target.row_index,  layer.bias_.empty() ? nullptr : layer.bias_.data() + output,
        target.y + output, target.ldy,
        target.add ? 1 : 0};
    if (!part.is_integer()) {
      k.matmul_float(part.as_float(), input.floats, range);
    } else if (layer.numerics_ == Numerics::kFloat) {
      k.matmul_int_float(part.as_int(), input.floats, range);
    } else {
      k.matmul_int(part.as_int(), input.quantized, range);
    }
  }
}

void multiply(const Linear& layer, const Activations& input, const Target& target,
              int64_t num_rows) {
  const int64_t num_tiles = layer.num_tiles();
  if (num_rows < kManyRows) {
    ThreadTeam::instance().run(num_tiles, kTileGrain, [&](int64_t begin, int64_t end) {
      multiply_tiles(layer, {begin, end, 0, num_rows}, input, target);
    });
    return;
  }
  const int64_t blocks = (num_tiles + kBlockTiles - 1) / kBlockTiles;
  ThreadTeam& team = ThreadTeam::instance();
  int64_t panel = kMaxPanel;
  const auto num_panels = [&] { return (num_rows + panel - 1) / panel; };
  while (panel > kMinPanel && blocks * num_panels() < kItemsPerThread * team.size()) {
    panel /= 2;
  }
  team.run(blocks * num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / blocks * panel;
      const int64_t tile = item % blocks * kBlockTiles;
      multiply_tiles(
          layer,
          {tile, std::min(num_tiles, tile + kBlockTiles), row, std::min(num_rows, row + panel)},
          input, target);
    }
  });
}

void linear(const Rows& x, const Linear& layer, Rows& out, bool add) {
  require(x.width() == layer.num_inputs(), "linear: x and the layer differ in inputs");
  require(out.width() == layer.num_outputs(), "linear: out and the layer differ in outputs");
  require(x.data() != out.data(), "linear: x and out are the same rows");
  if (add) {
    require(out.rows() == x.rows(), "linear: x and out differ in rows");
  } else {
    out.set_rows(x.rows());
  }
  static InputScratch scratch;  // calls come from the one engine thread
  const Activations input = scratch.prepare(layer, x.data(), x.width(), x.rows());
  multiply(layer, input, {out.data(), out.width(), nullptr, add}, x.rows());
}

}  // namespace coli
