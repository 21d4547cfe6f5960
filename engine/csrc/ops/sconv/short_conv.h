// A short causal convolution over the rows of a step, whose last inputs live on in the caches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rows.h"
#include "ops/sequence/sequence.h"

namespace coli {

// Which columns of the rows are convolved, and where their state begins in the layer's state.
struct ConvPlace {
  int64_t column;
  int64_t state_offset;
};

class ShortConv {
 public:
  static constexpr int64_t kMaxTaps = 16;

  // weights (channels, num_taps), the current input's last. Throws std::invalid_argument.
  ShortConv(const float* weights, int64_t channels, int64_t num_taps, const ConvPlace& place);

  int64_t channels() const { return channels_; }
  int64_t num_taps() const { return num_taps_; }
  // Floats of state: the last num_taps - 1 inputs, oldest first.
  int64_t state_dim() const { return (num_taps_ - 1) * channels_; }
  const ConvPlace& place() const { return place_; }
  const float* weights() const { return weights_.data(); }  // (num_taps, channels)

 private:
  int64_t channels_;
  int64_t num_taps_;
  ConvPlace place_;
  std::vector<float> weights_;
};

// Columns of x become themselves plus their convolution; with `residual` (as many columns as the
// convolution) that is added to it instead and x stays. The inputs that later rows need go to the
// caches' next state. Throws std::invalid_argument.
void short_conv(Rows& x, const ShortConv& conv, const Batch& batch, int64_t layer, Rows* residual);

}  // namespace coli
