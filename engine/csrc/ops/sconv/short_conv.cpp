#include "ops/sconv/short_conv.h"

#include <algorithm>
#include <cstring>

#include "core/thread_team.h"
#include "dispatch.h"

namespace coli {
namespace {

// A piece of this many channels is worth handing over.
constexpr int64_t kPieceChannels = 512;

// Inputs of one segment: those before it in the state, its own rows after them.
class Inputs {
 public:
  Inputs(const Rows& x, const ShortConv& conv, const Batch::Segment& segment, int64_t layer)
      : x_(x),
        conv_(conv),
        first_row_(segment.first_row),
        state_(segment.cache->state(layer) + conv.place().state_offset) {}

  // Input of the segment's row r; r < 0: of the rows before it.
  const float* operator[](int64_t r) const {
    return r < 0 ? state_ + (r + conv_.num_taps() - 1) * conv_.channels()
                 : x_.row(first_row_ + r) + conv_.place().column;
  }

 private:
  const Rows& x_;
  const ShortConv& conv_;
  int64_t first_row_;
  const float* state_;
};

void check(const Rows& x, const ShortConv& conv, const Batch& batch, int64_t layer,
           const Rows* residual) {
  require(x.rows() == batch.num_rows(), "the batch and the rows differ");
  require(conv.channels() <= x.width() && conv.place().column <= x.width() - conv.channels(),
          "short_conv: the channels lie outside the row");
  for (const Batch::Segment& segment : batch.segments()) {
    const int64_t state_dim = segment.cache->layout(layer).state_dim;
    require(
        conv.state_dim() <= state_dim && conv.place().state_offset <= state_dim - conv.state_dim(),
        "short_conv: the cache's layer has no room for the state");
  }
  if (residual == nullptr) return;
  require(residual->rows() == x.rows(), "short_conv: x and the residual differ in rows");
  require(residual->width() == conv.channels(), "short_conv: the residual has another width");
  require(residual->data() != x.data(), "short_conv: x and the residual are the same rows");
}

// The inputs of the segment's last num_taps - 1 rows, as the next step will find them.
void keep_inputs(const Inputs& inputs, const ShortConv& conv, int64_t rows, float* state) {
  for (int64_t j = 0; j + 1 < conv.num_taps(); ++j) {
    std::memcpy(state + j * conv.channels(), inputs[rows - conv.num_taps() + 1 + j],
                sizeof(float) * static_cast<size_t>(conv.channels()));
  }
}

// Channels [begin, end) of a segment. The last row comes first: it reads what the rows before it
// hold, and its own inputs are read by none of them.
void convolve(Rows& x, const Inputs& inputs, const ShortConv& conv, const Batch::Segment& segment,
              Rows* residual, int64_t begin, int64_t end) {
  const KernelTable& k = kernels();
  const float* taps[ShortConv::kMaxTaps];
  ConvRow row{
      taps,   conv.weights() + begin, conv.channels(), conv.num_taps(), end - begin, nullptr,
      nullptr};
  for (int64_t r = segment.rows - 1; r >= 0; --r) {
    for (int64_t j = 0; j < conv.num_taps(); ++j) {
      taps[j] = inputs[r - conv.num_taps() + 1 + j] + begin;
    }
    if (residual == nullptr) {
      row.out = x.row(segment.first_row + r) + conv.place().column + begin;
    } else {
      row.out = residual->row(segment.first_row + r) + begin;
      row.base = row.out;
    }
    k.sconv_row(row);
  }
}

}  // namespace

ShortConv::ShortConv(const float* weights, int64_t channels, int64_t num_taps,
                     const ConvPlace& place)
    : channels_(channels), num_taps_(num_taps), place_(place) {
  require(channels_ >= 1, "a short convolution needs at least one channel");
  require(num_taps_ >= 1 && num_taps_ <= kMaxTaps, "a short convolution has 1..16 taps");
  require(place_.column >= 0 && place_.state_offset >= 0,
          "a short convolution's column and state_offset cannot be negative");
  weights_.resize(static_cast<size_t>(num_taps_ * channels_));
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t j = 0; j < num_taps_; ++j) {
      weights_[static_cast<size_t>(j * channels_ + c)] = weights[c * num_taps_ + j];
    }
  }
}

void short_conv(Rows& x, const ShortConv& conv, const Batch& batch, int64_t layer, Rows* residual) {
  check(x, conv, batch, layer, residual);
  std::vector<Inputs> inputs;
  for (const Batch::Segment& segment : batch.segments()) {
    inputs.emplace_back(x, conv, segment, layer);
    keep_inputs(inputs.back(), conv, segment.rows,
                segment.cache->next_state(layer) + conv.place().state_offset);
  }
  const int64_t pieces = (conv.channels() + kPieceChannels - 1) / kPieceChannels;
  const auto count = static_cast<int64_t>(inputs.size()) * pieces;
  ThreadTeam::instance().run(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto segment = static_cast<size_t>(i / pieces);
      const int64_t channel = i % pieces * kPieceChannels;
      convolve(x, inputs[segment], conv, batch.segments()[segment], residual, channel,
               std::min(conv.channels(), channel + kPieceChannels));
    }
  });
}

}  // namespace coli
